package report

import "golang.org/x/sys/unix"

// KernelRelease is the kernel's, as uname -r gives it.
func KernelRelease() string {
	var name unix.Utsname
	if unix.Uname(&name) != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(name.Release[:])
}
