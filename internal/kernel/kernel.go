// Package kernel returns the release of the running kernel and the boot ID of
// the host.
package kernel

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Release returns the output of uname -r, such as "6.12.117+deb12-amd64"; "" if it is
// unknown.
func Release() string {
	var name unix.Utsname
	if unix.Uname(&name) != nil {
		return ""
	}
	return unix.ByteSliceToString(name.Release[:])
}

// BootID identifies the current boot of the host: another boot, or the kernel of a
// guest, has another ID (Documentation/admin-guide/sysctl/kernel.rst, random).
func BootID() (string, error) {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("cannot read the boot ID of the host: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}
