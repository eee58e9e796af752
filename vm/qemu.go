package vm

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/daybook-project/daybook/vm/internal/wire"
	"github.com/daybook-project/daybook/vm/kernels"
)

// platform is how QEMU shows an architecture to the guest.
type platform struct {
	program, debian string // QEMU's program, and Debian's package of it
	machine         string
	processor       string // where it is emulated
	console         string // words of the kernel's command line
}

// platforms are those of the kernels that guests boot. Five-level page tables would slow
// down each miss of an emulated processor, and no guest here is so large. The processor of
// arm64 is that of many servers, with the atomic instructions of ARMv8.1.
//
// no_timer_check: on a loaded host an emulated timer can appear to stand still, and then
// the kernel panics (arch/x86/kernel/apic/io_apic.c, check_timer). Under KVM Linux omits
// this check itself.
var platforms = map[string]platform{
	kernels.AMD64: {
		program: "qemu-system-x86_64", debian: "qemu-system-x86",
		machine: "q35,smm=off,vmport=off", processor: "max,la57=off", console: "console=ttyS0 no_timer_check",
	},
	kernels.ARM64: {
		program: "qemu-system-aarch64", debian: "qemu-system-arm",
		machine: "virt,gic-version=3", processor: "neoverse-n1", console: "console=ttyAMA0",
	},
}

// accelerator is how QEMU executes the guest's instructions.
type accelerator string

const (
	kvm accelerator = "kvm" // by the processor
	tcg accelerator = "tcg" // emulated
)

// arguments returns QEMU's arguments for the accelerator.
//
// The processors take turns in one thread of QEMU, unless they are to run in parallel.
// With a thread for each processor, one sometimes runs a breakpoint of the kernel (static
// keys, ftrace) that another has just removed. The guest then panics with "Oops: int3" or
// hangs; each happened once in about a hundred boots (QEMU 7.2). On a host with two cores
// taking turns was not slower.
func (a accelerator) arguments(p platform, parallel bool) []string {
	if a == kvm {
		return []string{"-accel", "kvm", "-cpu", "host"}
	}
	thread := "single"
	if parallel {
		thread = "multi"
	}
	return []string{"-accel", "tcg,thread=" + thread, "-cpu", p.processor}
}

// parallelVariable requests processors that run in parallel in each guest.
const parallelVariable = "DAYBOOK_VM_PARALLEL"

// Descriptors that QEMU inherits, in this order; then the root file system and its
// overlay for systemd, then disks, then pmem.
const (
	channelFD = 3 + iota
	consoleFD
	initrdFD
	firstDeviceFD
)

// descriptorPath returns the path of an inherited descriptor. So QEMU needs no file
// names, and nothing remains of files without names.
func descriptorPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// virtioDisk is QEMU's device for a virtio disk. If the host's file system is full, the guest's
// write fails. By default QEMU would stop the guest until somebody continues it.
const virtioDisk = "virtio-blk-pci,werror=report"

// arguments returns QEMU's command line for a guest.
func arguments(c Config, kernel kernels.Tree, a accelerator) []string {
	platform := platforms[kernel.Arch()]
	machine := platform.machine
	memory := strconv.FormatInt(c.MemoryBytes>>20, 10) + "M"
	if len(c.Pmem) > 0 {
		machine += ",nvdimm=on"
		most := c.MemoryBytes
		for _, p := range c.Pmem {
			most += p.SizeBytes
		}
		memory += fmt.Sprintf(",slots=%d,maxmem=%dM", len(c.Pmem), (most>>20)+1024)
	}
	args := a.arguments(platform, c.Parallel)
	if c.CountInstructions {
		// An instruction takes 2^shift ns of the virtual clock. sleep=off: an idle
		// processor does not wait for the time of the host.
		args = append(args, "-icount", "shift=0,sleep=off")
	}
	args = append(args,
		"-machine", machine,
		"-smp", strconv.Itoa(c.CPUs),
		"-m", memory,
		"-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-monitor", "none",
		"-kernel", kernel.Vmlinux,
		"-initrd", descriptorPath(initrdFD),
		"-append", commandLine(c, platform),
		"-chardev", "socket,id=console,fd="+strconv.Itoa(consoleFD),
		"-serial", "chardev:console",
		"-chardev", "socket,id=channel,fd="+strconv.Itoa(channelFD),
		"-device", "virtio-serial-pci",
		"-device", "virtserialport,chardev=channel,name="+wire.PortName,
	)
	fd := firstDeviceFD
	var rootFD, overlayFD int
	if c.Systemd {
		rootFD, overlayFD, fd = fd, fd+1, fd+2
	}
	for i, d := range c.Disks {
		drive := fmt.Sprintf("file=%s,format=raw,if=none,id=disk%d,cache=unsafe,discard=unmap", descriptorPath(fd), i)
		if d.Volatile {
			// volatile.go implements the flush.
			drive = fmt.Sprintf("file.driver=nbd,file.server.type=fd,file.server.str=%d,format=raw,if=none,id=disk%d,cache=writeback", fd, i)
		}
		if d.BytesPerSecond > 0 {
			drive += fmt.Sprintf(",throttling.bps-total=%d", d.BytesPerSecond)
		}
		if d.IOPS > 0 {
			drive += fmt.Sprintf(",throttling.iops-total=%d", d.IOPS)
		}
		model := virtioDisk
		if d.NVMe {
			model = "nvme"
		}
		args = append(args, "-drive", drive, "-device", fmt.Sprintf("%s,drive=disk%d,serial=%s", model, i, wire.DiskSerial(i)))
		fd++
	}
	for i, p := range c.Pmem {
		device := fmt.Sprintf("nvdimm,id=nvdimm%d,memdev=pmem%d,slot=%d", i, i, i)
		if p.Virtio {
			device = fmt.Sprintf("virtio-pmem-pci,id=vpmem%d,memdev=pmem%d,addr=%#x", i, i, wire.VirtioPmemSlot(i))
		}
		args = append(args,
			"-object", fmt.Sprintf("memory-backend-file,id=pmem%d,share=on,mem-path=%s,size=%d", i, descriptorPath(fd), p.SizeBytes),
			"-device", device)
		fd++
	}
	if c.Network {
		// Without a ROM: no guest boots from the network.
		args = append(args, "-netdev", "user,id=network", "-device", "virtio-net-pci,netdev=network,romfile=")
	}
	if c.Systemd {
		// After the other disks, so that the first of them is vda.
		root := fmt.Sprintf("driver=qcow2,file.driver=file,file.filename=%s,backing.driver=raw,backing.read-only=on,backing.file.driver=file,backing.file.filename=%s,if=none,id=root,cache=unsafe,discard=unmap",
			descriptorPath(overlayFD), descriptorPath(rootFD))
		args = append(args,
			"-drive", root, "-device", virtioDisk+",drive=root,serial="+wire.RootSerial,
			"-fsdev", "local,id=modules,readonly=on,security_model=none,path="+strings.ReplaceAll(kernel.Modules, ",", ",,"),
			"-device", "virtio-9p-pci,fsdev=modules,mount_tag="+wire.ModulesTag)
	}
	return args
}

// commandLine returns the kernel's command line. With loglevel=5 the console shows
// warnings and errors. A panic ends the emulator. The kernel reports a hung task after 300 s,
// not after 120 s: on a busy host an emulated guest can need that long to write everything out.
func commandLine(c Config, p platform) string {
	words := []string{
		p.console, "loglevel=5", "panic=-1", "sysctl.kernel.hung_task_timeout_secs=300",
		"rdinit=" + wire.AgentPath, wire.AgentVariable + "=1",
	}
	if c.Systemd {
		words = append(words, "systemd.show_status=0")
	}
	if c.Append != "" {
		words = append(words, c.Append)
	}
	return strings.Join(words, " ")
}
