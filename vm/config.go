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
	DefaultBootTimeout = 5 * time.Minute
	// SystemdBootTimeout is longer: an emulated systemd needs about half a minute.
	SystemdBootTimeout = 10 * time.Minute

	maxDisks  = 16
	maxPmem   = 16
	maxCPUs   = 64
	sectorLen = 512
	// pmemAlign is the alignment in bytes below which Linux makes no
	// namespace of persistent memory.
	pmemAlign = 2 << 20
)

// Addresses of a guest with a network card, chosen by QEMU: those of the host and of the guest.
const (
	HostAddress  = "10.0.2.2"
	GuestAddress = "10.0.2.15"
)

// Config describes the guest to boot. The zero value of each field except
// Kernel is valid.
type Config struct {
	Kernel      string // its name in the pin file, such as "6.1"
	MemoryBytes int64  // 0: DefaultMemoryBytes
	CPUs        int    // 0: DefaultCPUs
	// Parallel lets emulated processors run at the same time, so that their
	// threads can interleave in more ways. Rarely, the emulator then makes the
	// guest panic with "Oops: int3", or hang. DAYBOOK_VM_PARALLEL=1 sets it for
	// each guest. With KVM they always run in parallel.
	Parallel bool
	// CountInstructions makes the guest's clocks advance by 1 ns for each instruction
	// that its processor executes, so that the clocks count instructions. While the
	// processor is idle they jump to the next timer. Such a guest is emulated, also
	// where KVM works, and has one processor.
	CountInstructions bool

	Disks []Disk // /dev/daybook/disk0, disk1, ... in the guest
	Pmem  []Pmem // /dev/daybook/pmem0, pmem1, ...

	// Modules are loaded before the first command, with their dependencies. A
	// name with a slash is a module file on the host, built for this kernel.
	// Modules for the devices above are loaded automatically.
	Modules []string
	Give    []Give
	Cgroup  int // the version that is mounted, 1 or 2; 0: 2
	// Systemd boots Debian with systemd as init, udev and D-Bus, from a root file
	// system that is built once (package rootfs). Writes to it last as long as the
	// Machine. All modules of the kernel are there; Modules are loaded early. A
	// given program uses the guest's own libraries, and gets those it lacks.
	// Commands are children of the unit daybook-vm.service.
	Systemd bool
	// Engines boots the root file system with Docker, Podman and containerd. It
	// needs Systemd.
	Engines bool
	// Network gives the guest a network card. QEMU forwards connections to [HostAddress]
	// to the loopback device of its own network namespace, and others to the network that
	// QEMU has. Nothing configures the card, and nothing can connect to the guest.
	Network bool
	Append  string // more of the kernel's command line
	// Init is the program that becomes the guest's init. It calls [InitIfAsked]. "" is this
	// program, which a kernel for another architecture cannot run.
	Init string

	// BootTimeout limits the time from the start to the first command; 0 means
	// DefaultBootTimeout.
	BootTimeout time.Duration
	// Console receives the kernel's messages as they arrive, in addition to
	// [Machine.Console]; nil discards them. It must not block.
	Console io.Writer
	// Log receives messages about long operations, such as fetching a kernel;
	// nil discards them.
	Log func(format string, args ...any)
}

// Disk is a virtio disk, or an NVMe one.
type Disk struct {
	SizeBytes int64 // a multiple of 512
	// Path is a file of the host that keeps the content. A missing file is
	// made; an existing one must have SizeBytes. "" is a file without a name,
	// which is deleted with the Machine.
	Path string
	// Limits of reads and writes together, enforced by QEMU; 0 means no limit.
	BytesPerSecond int64
	IOPS           int64
	// Volatile disks have a write cache whose unflushed content is lost when
	// the guest is killed, as on a real disk. Without it, all writes stay, and
	// a missing flush is not detected. It is slower, and supports no discards.
	// See also [Machine.Record].
	Volatile bool
	// FlushTime is the least time that a flush of a Volatile disk takes. Requests that
	// arrive later wait until the flush has ended.
	FlushTime time.Duration
	// NVMe makes it an NVMe disk, which has no I/O scheduler by default, instead of
	// a virtio one.
	NVMe bool
}

// Pmem is persistent memory (an NVDIMM), which survives Kill as battery-backed
// memory survives a power cut.
type Pmem struct {
	SizeBytes int64 // a multiple of 2 MiB
	Path      string
	// Virtio makes it a virtio-pmem device instead: the page cache of the host,
	// which only the host can flush. So it is not persistent by itself.
	Virtio bool
}

// Give is a file, directory or program of the host for the guest. A program is
// copied with its shared libraries.
type Give struct {
	Host  string // a path, or the name of a program on the PATH
	Guest string // an absolute path; "" is the same as on the host
}

// withDefaults fills in the defaults.
func (c Config) withDefaults() Config {
	if c.MemoryBytes == 0 {
		c.MemoryBytes = DefaultMemoryBytes
	}
	if c.CPUs == 0 {
		c.CPUs = DefaultCPUs
		if c.CountInstructions {
			c.CPUs = 1
		}
	}
	if c.Cgroup == 0 {
		c.Cgroup = 2
	}
	c.Parallel = c.Parallel || os.Getenv(parallelVariable) == "1" && !c.CountInstructions
	if c.BootTimeout == 0 {
		c.BootTimeout = DefaultBootTimeout
		if c.Systemd {
			c.BootTimeout = SystemdBootTimeout
		}
	}
	return c
}

// ConfigError means that a Config is invalid on any host.
type ConfigError struct{ error }

func (e ConfigError) Unwrap() error { return e.error }

// Check returns an error if a Config is invalid, independent of the host.
func (c Config) Check() error {
	c = c.withDefaults()
	pin, err := kernels.Find(c.Kernel)
	if err != nil {
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
	if c.CountInstructions && (c.CPUs != 1 || c.Parallel) {
		bad("a guest that counts instructions has one processor")
	}
	if c.Cgroup != 1 && c.Cgroup != 2 {
		bad("cgroup version %d: want 1 or 2", c.Cgroup)
	}
	if c.Engines && !c.Systemd {
		bad("container engines are only in the guest with systemd")
	}
	if c.Systemd && c.Cgroup == 1 {
		bad("a guest with systemd has cgroup v2 only")
	}
	if arch := pin.Arch(); arch != kernels.AMD64 {
		if c.Init == "" {
			bad("kernel %s cannot run this program as its init: give one for %s, which GOARCH=%s go build makes", c.Kernel, arch, arch)
		}
		if c.Systemd || len(c.Pmem) > 0 {
			bad("a guest with kernel %s has neither systemd nor persistent memory: these are for %s only", c.Kernel, kernels.AMD64)
		}
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
		if d.FlushTime < 0 || d.FlushTime > 0 && !d.Volatile {
			bad("disk %d: only a volatile disk has a time of its flushes, and that is not below zero", i)
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

// modules returns the modules to load: those of the agent and the devices, then
// the requested ones.
func (c Config) modules() []string {
	modules := []string{"virtio_pci", "virtio_console"}
	if len(c.Disks) > 0 || c.Systemd {
		modules = append(modules, "virtio_blk")
	}
	if slices.ContainsFunc(c.Disks, func(d Disk) bool { return d.NVMe }) {
		modules = append(modules, "nvme")
	}
	if c.Systemd {
		modules = append(modules, "ext4", "9p", "9pnet_virtio")
	}
	if len(c.Pmem) > 0 {
		modules = append(modules, "nfit", "nd_pmem")
	}
	if c.Network {
		modules = append(modules, "virtio_net")
	}
	if slices.ContainsFunc(c.Pmem, func(p Pmem) bool { return p.Virtio }) {
		modules = append(modules, "virtio_pmem")
	}
	return append(modules, c.Modules...)
}
