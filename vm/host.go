package vm

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
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
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return nil // not known
	}
	if available, known := parseAvailable(string(text)); known && wanted > available {
		return fmt.Errorf("the guest wants %d MiB of memory, and this host has %d MiB left: ask for less, or end other guests", wanted>>20, available>>20)
	}
	return nil
}

// parseAvailable reads MemAvailable of /proc/meminfo, in bytes.
func parseAvailable(meminfo string) (int64, bool) {
	for line := range strings.Lines(meminfo) {
		fields := strings.Fields(line)
		if len(fields) == 3 && fields[0] == "MemAvailable:" {
			n, err := strconv.ParseInt(fields[1], 10, 64)
			return n << 10, err == nil
		}
	}
	return 0, false
}
