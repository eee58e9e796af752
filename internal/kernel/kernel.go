// Package kernel says which kernel runs here, and since which start of the host.
package kernel

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Release is what uname -r prints, such as "6.12.117+deb12-amd64"; "" if the kernel does
// not tell.
func Release() string {
	var name unix.Utsname
	if unix.Uname(&name) != nil {
		return ""
	}
	return unix.ByteSliceToString(name.Release[:])
}

// BootID names the present start of the host: another one, or the kernel in a guest, has
// another (Documentation/admin-guide/sysctl/kernel.rst, random).
func BootID() (string, error) {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("cannot tell this start of the host from others: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}
