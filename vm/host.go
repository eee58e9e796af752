package vm

import (
	"fmt"
	"os/exec"
	"runtime"

	"github.com/daybook-project/daybook/internal/kernel"
)

// MissingError says that a program is not on the PATH.
type MissingError struct{ Program, Package string }

func (e MissingError) Error() string {
	return fmt.Sprintf("guests need the program %s (Debian: %s), which is not on the PATH; scripts/setup vm installs it", e.Program, e.Package)
}

// CheckHost says what this host lacks for booting guests, but for kernels.
func CheckHost() error {
	if runtime.GOARCH != "amd64" || runtime.GOOS != "linux" {
		return fmt.Errorf("guests are Linux on amd64, and the guest's init is this program: on %s/%s there are none", runtime.GOOS, runtime.GOARCH)
	}
	for _, m := range []MissingError{{qemuProgram, "qemu-system-x86"}, {"busybox", "busybox-static"}} {
		if _, err := exec.LookPath(m.Program); err != nil {
			return m
		}
	}
	return nil
}

// checkMemory refuses a guest that the host has no memory for: it would be
// killed later, at some point that says nothing.
func checkMemory(wanted int64) error {
	if available, known := kernel.AvailableMemory(); known && wanted > available {
		return fmt.Errorf("the guest wants %d MiB of memory, and this host has %d MiB left: ask for less, or end other guests", wanted>>20, available>>20)
	}
	return nil
}
