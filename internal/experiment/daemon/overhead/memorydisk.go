package overhead

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// The disk of a guest.
const (
	guestDiskBytes    = 1 << 30 // so that mke2fs chooses blocks of 4 KiB
	guestJournalBytes = 64 << 20
)

const configfs = "/sys/kernel/config"

// memoryDisk is a disk in memory (null_blk) that completes each request while it is
// submitted. So no processor is idle while a program waits for it, and the number of
// executed instructions does not depend on time. The kernel's block layer and its
// tracepoints work as with any other disk.
type memoryDisk struct{ node, directory string }

// makeMemoryDisk needs the module null_blk, and a machine without other users.
func makeMemoryDisk() (d memoryDisk, err error) {
	const name = "nullb1" // the module makes nullb0, and older kernels number the next one
	d = memoryDisk{node: "/dev/" + name, directory: filepath.Join(configfs, "nullb", name)}
	if err := unix.Mount("configfs", configfs, "configfs", 0, ""); err != nil && !errors.Is(err, unix.EBUSY) {
		return d, fmt.Errorf("cannot mount configfs: %w", err)
	}
	if err := os.Mkdir(d.directory, 0o755); err != nil {
		return d, fmt.Errorf("cannot make a disk in memory: %w", err)
	}
	for _, attribute := range []struct{ name, value string }{
		{"size", strconv.Itoa(guestDiskBytes >> 20)}, {"blocksize", "512"}, {"memory_backed", "1"},
		{"queue_mode", "2"}, {"irqmode", "0"}, {"submit_queues", "1"}, {"power", "1"},
	} {
		if err := os.WriteFile(filepath.Join(d.directory, attribute.name), []byte(attribute.value), 0); err != nil {
			return d, errors.Join(fmt.Errorf("cannot set up a disk in memory: %w", err), d.remove())
		}
	}
	return d, nil
}

func (d memoryDisk) remove() error { return os.Remove(d.directory) }
