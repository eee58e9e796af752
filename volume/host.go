package volume

import (
	"fmt"
	"sync"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/volume/internal/backing"
	"github.com/daybook-project/daybook/volume/internal/journal"
)

// host is what the kernel reports of loop devices, mounts and threads. Each list is read
// at most once: for a list of volumes, the cost would grow with the square of their
// number otherwise.
type host struct {
	pool     *Pool
	loops    backing.ReadLoops
	mounts   func() ([]blockdev.Mount, error)
	threads  journal.ReadThreads
	poolDisk func() (blockdev.Disk, error)
}

func (p *Pool) readHost() *host {
	return &host{
		pool:     p,
		loops:    sync.OnceValues(backing.Loops),
		mounts:   sync.OnceValues(blockdev.Mounts),
		threads:  sync.OnceValues(ext4.ReadJournalThreads),
		poolDisk: sync.OnceValues(func() (blockdev.Disk, error) { return p.disk(Record{}) }),
	}
}

// mountedFrom gives the device of an attached volume, and says whether it is mounted on
// the mount point.
func (h *host) mountedFrom(record Record) (device backing.Device, mounted bool, err error) {
	devices, err := h.pool.blocks(record).Opened(h.loops)
	if err != nil || len(devices) != 1 {
		return device, false, err
	}
	mounts, err := h.mounts()
	if err != nil {
		return device, false, err
	}
	for _, mount := range mounts {
		if mount.Dev == devices[0].Dev && mount.Point == record.Attachment.Target {
			return devices[0], true, nil
		}
	}
	return devices[0], false, nil
}

// disk is the disk under a volume.
func (h *host) disk(record Record) (blockdev.Disk, error) {
	if record.InPool() {
		return h.poolDisk()
	}
	return h.pool.disk(record)
}

// thread is the process ID of the volume's journal thread.
func (h *host) thread(record Record) (int, error) {
	dev, err := h.openedDev(record)
	if err != nil {
		return 0, err
	}
	return journal.Of(record).Thread(dev, h.threads)
}

// workers are the further threads of the volume's journal.
func (h *host) workers(record Record) ([]int, error) {
	dev, err := h.openedDev(record)
	if err != nil {
		return nil, err
	}
	return journal.Of(record).Workers(dev, h.threads)
}

// openedDev is the device of an attached volume.
func (h *host) openedDev(record Record) (blockdev.Dev, error) {
	devices, err := h.pool.blocks(record).Opened(h.loops)
	if err != nil {
		return blockdev.Dev{}, err
	}
	if len(devices) != 1 {
		return blockdev.Dev{}, fmt.Errorf("%w: Daybook has made %d loop devices of its image", ErrDetached, len(devices))
	}
	return devices[0].Dev, nil
}
