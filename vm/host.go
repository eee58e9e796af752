package vm

import (
	"fmt"
	"os/exec"
	"runtime"

	"github.com/daybook-project/daybook/internal/kernel"
	"github.com/daybook-project/daybook/vm/kernels"
)

// MissingError says that a program is not on the PATH.
type MissingError struct{ Program, Package string }

func (e MissingError) Error() string {
	return fmt.Sprintf("guests need the program %s (Debian: %s), which is not on the PATH; scripts/setup vm installs it", e.Program, e.Package)
}

// CheckHost returns an error if this host lacks a requirement of guests with this kernel,
// except for the kernel itself.
func CheckHost(kernel string) error {
	pin, err := kernels.Find(kernel)
	if err != nil {
		return err
	}
	if runtime.GOARCH != "amd64" || runtime.GOOS != "linux" {
		return fmt.Errorf("guests run on Linux on amd64 only, because most guests have this program as init; this host is %s/%s", runtime.GOOS, runtime.GOARCH)
	}
	platform := platforms[pin.Arch()]
	for _, m := range []MissingError{{platform.program, platform.debian}, {"busybox", "busybox-static"}} {
		if _, err := exec.LookPath(m.Program); err != nil {
			return m
		}
	}
	return nil
}

// checkMemory returns an error if the host has too little memory for a guest. Without the
// check, the kernel would kill the guest later, and the reason would not be visible.
func checkMemory(wanted int64) error {
	if available, known := kernel.AvailableMemory(); known && wanted > available {
		return fmt.Errorf("the guest needs %d MiB of memory, and this host has %d MiB left: give the guest less, or end other guests", wanted>>20, available>>20)
	}
	return nil
}
