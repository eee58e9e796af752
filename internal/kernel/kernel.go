// Package kernel returns the release and the number of the running kernel, and the boot ID
// of the host.
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

// Stable is the number of a stable kernel, such as 6.1.176.
type Stable struct{ Major, Minor, Update int }

// Running returns the stable kernel from which the running one is made: the release has it, or
// on Debian, where the update in the release is always 0, the version. The update of other
// distributions can be 0, too, and then says nothing. It is {} if it is unknown.
func Running() Stable {
	var name unix.Utsname
	if unix.Uname(&name) != nil {
		return Stable{}
	}
	return parse(unix.ByteSliceToString(name.Release[:]), unix.ByteSliceToString(name.Version[:]))
}

// debian is how the version of a kernel of Debian has its package:
// "#1 SMP PREEMPT_DYNAMIC Debian 6.1.176-1 (2026-09-01)".
const debian = " Debian "

func parse(release, version string) Stable {
	if _, text, found := strings.Cut(version, debian); found {
		if s := numbers(text); s != (Stable{}) {
			return s
		}
	}
	return numbers(release)
}

// numbers reads the numbers before anything else, of which the third can be missing.
func numbers(text string) Stable {
	var s Stable
	if n, _ := fmt.Sscanf(text, "%d.%d.%d", &s.Major, &s.Minor, &s.Update); n < 2 {
		return Stable{}
	}
	return s
}

// AtLeast reports whether a kernel is of this series or a later one.
func (s Stable) AtLeast(major, minor int) bool {
	return s.Major > major || s.Major == major && s.Minor >= minor
}

// Is reports whether a kernel is of this series, with this update or a later one.
func (s Stable) Is(major, minor, update int) bool {
	return s.Major == major && s.Minor == minor && s.Update >= update
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
