package vm

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/daybook-project/daybook/vm/kernels"
)

// Limits of a guest.
const (
	DefaultMemoryBytes = 1 << 30
	MinMemoryBytes     = 256 << 20
	DefaultCPUs        = 2
	DefaultBootTimeout = 2 * time.Minute

	maxDisks  = 16
	maxPmem   = 16
	maxCPUs   = 64
	sectorLen = 512
	// pmemAlign is the alignment in bytes below which Linux makes no
	// namespace of persistent memory.
	pmemAlign = 2 << 20
)

// Config says what guest to boot. The zero value of each field but Kernel is
// usable.
type Config struct {
	Kernel      string // its name in the pin file, such as "6.1"
	MemoryBytes int64  // 0: DefaultMemoryBytes
	CPUs        int    // 0: DefaultCPUs
	// Parallel processors run at the same time also where they are emulated,
	// and so meet in ways that processors that take turns do not; but rarely
	// the emulator makes the guest panic with "Oops: int3", or hang.
	// DAYBOOK_VM_PARALLEL=1 says so for each guest. With KVM they always do.
	Parallel bool

	Disks []Disk // /dev/daybook/disk0, disk1, ... in the guest
	Pmem  []Pmem // /dev/daybook/pmem0, pmem1, ...

	// Modules are loaded before the first command, with those they need. A
	// name with a slash is a module's file on the host, built for this kernel.
	// Modules for the devices above are loaded without being named.
	Modules []string
	Give    []Give
	Cgroup  int    // the version that is mounted, 1 or 2; 0: 2
	Append  string // more of the kernel's command line

	// BootTimeout bounds the time from the start to the first command.
	// 0: DefaultBootTimeout.
	BootTimeout time.Duration
	// Console gets the kernel's messages as they come, besides
	// [Machine.Console]; nil: none. It must not block.
	Console io.Writer
	// Log is told what takes long, such as fetching a kernel; nil: none.
	Log func(format string, args ...any)
}

// Disk is a virtio disk.
type Disk struct {
	SizeBytes int64 // a multiple of 512
	// Path is a file of the host that keeps the content. It is made if there
	// is none; one that is there must have SizeBytes. "" is a file without a
	// name, which is gone with the Machine.
	Path string
	// Limits that QEMU puts on reads and writes together; 0: none.
	BytesPerSecond int64
	IOPS           int64
	// Volatile disks have a write cache that loses what the guest has not
	// flushed when it is killed, as a real disk's may. Without, all that was
	// written stays: a flush that is missing shows only with it. It is slower,
	// and takes no discards. See also [Machine.Record].
	Volatile bool
}

// Pmem is persistent memory (an NVDIMM), which survives Kill as battery-backed
// memory survives a power cut.
type Pmem struct {
	SizeBytes int64 // a multiple of 2 MiB
	Path      string
	// Virtio makes it a virtio-pmem device instead: the host's page cache, which a
	// guest must ask the host to flush. So it is not memory that persists by itself.
	Virtio bool
}

// Give is a file, directory or program of the host for the guest. A program
// brings the shared libraries that it needs.
type Give struct {
	Host  string // a path, or the name of a program on the PATH
	Guest string // an absolute path; "" is the same as on the host
}

// withDefaults fills in what was left open.
func (c Config) withDefaults() Config {
	if c.MemoryBytes == 0 {
		c.MemoryBytes = DefaultMemoryBytes
	}
	if c.CPUs == 0 {
		c.CPUs = DefaultCPUs
	}
	if c.Cgroup == 0 {
		c.Cgroup = 2
	}
	c.Parallel = c.Parallel || os.Getenv(parallelVariable) == "1"
	if c.BootTimeout == 0 {
		c.BootTimeout = DefaultBootTimeout
	}
	return c
}

// ConfigError says that a Config cannot be booted anywhere.
type ConfigError struct{ error }

func (e ConfigError) Unwrap() error { return e.error }

// Check finds what is wrong with a Config, whatever the host.
func (c Config) Check() error {
	c = c.withDefaults()
	if _, err := kernels.Find(c.Kernel); err != nil {
		return ConfigError{err}
	}
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.MemoryBytes < MinMemoryBytes {
		bad("a guest with %d bytes of memory is too small: at least %d MiB", c.MemoryBytes, MinMemoryBytes>>20)
	}
	if c.CPUs < 1 || c.CPUs > maxCPUs {
		bad("a guest with %d processors: want 1 to %d", c.CPUs, maxCPUs)
	}
	if c.Cgroup != 1 && c.Cgroup != 2 {
		bad("cgroup version %d: want 1 or 2", c.Cgroup)
	}
	if len(c.Disks) > maxDisks || len(c.Pmem) > maxPmem {
		bad("%d disks and %d of persistent memory: at most %d and %d", len(c.Disks), len(c.Pmem), maxDisks, maxPmem)
	}
	for i, d := range c.Disks {
		if d.SizeBytes <= 0 || d.SizeBytes%sectorLen != 0 {
			bad("disk %d has %d bytes: want a multiple of %d", i, d.SizeBytes, sectorLen)
		}
		if d.BytesPerSecond < 0 || d.IOPS < 0 {
			bad("disk %d has a limit below zero", i)
		}
	}
	for i, p := range c.Pmem {
		if p.SizeBytes <= 0 || p.SizeBytes%pmemAlign != 0 {
			bad("persistent memory %d has %d bytes: want a multiple of %d MiB", i, p.SizeBytes, pmemAlign>>20)
		}
	}
	for _, module := range c.Modules {
		if module == "" {
			bad("a module has no name")
		}
	}
	if strings.ContainsAny(c.Append, "\n\x00") {
		bad("the kernel's command line has a line break")
	}
	if len(errs) > 0 {
		return ConfigError{errors.Join(errs...)}
	}
	return nil
}

// modules are those that are loaded: what the harness and the devices need,
// then what was asked for.
func (c Config) modules() []string {
	modules := []string{"virtio_pci", "virtio_console"}
	if len(c.Disks) > 0 {
		modules = append(modules, "virtio_blk")
	}
	if len(c.Pmem) > 0 {
		modules = append(modules, "nfit", "nd_pmem")
	}
	if slices.ContainsFunc(c.Pmem, func(p Pmem) bool { return p.Virtio }) {
		modules = append(modules, "virtio_pmem")
	}
	return append(modules, c.Modules...)
}
