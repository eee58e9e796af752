package experiment

import "golang.org/x/sys/unix"

// kernelRelease is the kernel's, as uname -r gives it.
func kernelRelease() string {
	var name unix.Utsname
	if unix.Uname(&name) != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(name.Release[:])
}
