package region

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/volume/internal/cause"
)

// Facts are what the kernel reports of a region.
type Facts struct {
	Dev   blockdev.Dev
	Bytes uint64
	// Volatile says why the memory is not persistent; "" if it is, as far as the kernel
	// knows.
	Volatile string
}

// Look reads the facts of a region. The error wraps cause.ErrInvalid if it is no block
// device of persistent memory.
func Look(node string) (facts Facts, err error) {
	file, err := os.OpenFile(node, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return facts, fmt.Errorf("%w journal region %s: %w", cause.ErrInvalid, node, err)
	}
	defer func() { _ = file.Close() }()
	var st unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &st); err != nil {
		return facts, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFBLK {
		return facts, fmt.Errorf("%w journal region: %s is no block device", cause.ErrInvalid, node)
	}
	size, err := file.Seek(0, 2)
	if err != nil {
		return facts, err
	}
	facts.Bytes, facts.Dev = uint64(size), blockdev.DevOf(st.Rdev)
	tree := memoryTree{sys: blockdev.Host.Sys, proc: blockdev.Host.Proc}
	directory, err := tree.directory(facts.Dev)
	if err != nil {
		return facts, err
	}
	if !tree.isMemory(directory) && isMapped(directory) {
		return facts, fmt.Errorf("%w journal region: %s is a device of the device mapper without DAX: it has DAX if it is linear and all below it is persistent memory in fsdax mode "+
			"(ndctl list; ndctl create-namespace --force --reconfig NAMESPACE --mode fsdax erases it), not in raw mode", cause.ErrInvalid, node)
	}
	if !tree.isMemory(directory) {
		return facts, fmt.Errorf("%w journal region: %s is no persistent memory: want a pmem device, such as /dev/pmem0, or a device-mapper device on one, with DAX", cause.ErrInvalid, node)
	}
	facts.Volatile = tree.volatile(directory, 0)
	return facts, nil
}

// memoryTree reads sysfs.
type memoryTree struct{ sys, proc string }

// directory is that of a block device in sysfs, without links.
func (m memoryTree) directory(dev blockdev.Dev) (string, error) {
	return filepath.EvalSymlinks(filepath.Join(m.sys, "dev/block", dev.String()))
}

func says(directory, file, text string) bool {
	content, err := os.ReadFile(filepath.Join(directory, file))
	return err == nil && strings.TrimSpace(string(content)) == text
}

// isMemory says whether stores reach the device without a request: it is on the kernel's
// bus of memory devices, or has DAX. The directory of a partition is in that of its disk.
func (m memoryTree) isMemory(directory string) bool {
	for _, at := range []string{directory, filepath.Dir(directory)} {
		subsystem, err := filepath.EvalSymlinks(filepath.Join(at, "device/subsystem"))
		if err == nil && filepath.Base(subsystem) == "nd" || says(at, "queue/dax", "1") {
			return true
		}
	}
	return false
}

// isMapped says whether a device is one of the device mapper.
func isMapped(directory string) bool {
	_, err := os.Stat(filepath.Join(directory, "dm"))
	return err == nil
}

// maxLayers limits how deep devices are stacked.
const maxLayers = 8

// volatile says why memory is not persistent; "" if nothing is known against it. A device
// of the device mapper is as persistent as those below it.
func (m memoryTree) volatile(directory string, depth int) string {
	below, _ := filepath.Glob(filepath.Join(directory, "slaves/*"))
	for _, link := range below {
		under, err := filepath.EvalSymlinks(link)
		if err != nil || depth == maxLayers {
			continue
		}
		if why := m.volatile(under, depth+1); why != "" {
			return why
		}
	}
	for at := directory; len(at) > len(m.sys); at = filepath.Dir(at) {
		switch {
		case says(at, "provider", "virtio-pmem"):
			return "it is virtio-pmem, a page cache of the host that only the host can flush"
		case says(at, "provider", "e820") && m.reservedByCommandLine():
			return "the kernel's command line (memmap=) simulates it in ordinary memory"
		}
	}
	return ""
}

// reservedByCommandLine says whether memmap=SIZE!START declares ordinary memory as
// persistent.
func (m memoryTree) reservedByCommandLine() bool {
	text, _ := os.ReadFile(filepath.Join(m.proc, "cmdline")) // without it nothing is known
	for word := range strings.FieldsSeq(string(text)) {
		if value, found := strings.CutPrefix(word, "memmap="); found && strings.Contains(value, "!") {
			return true
		}
	}
	return false
}

// Nodes lists the memory devices of the host.
func Nodes() []string {
	names, _ := filepath.Glob(filepath.Join(blockdev.Host.Sys, "class/block/pmem*"))
	var nodes []string
	for _, name := range names {
		nodes = append(nodes, blockdev.NodeOf(filepath.Base(name)))
	}
	return nodes
}
