package volume

import (
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
	loops    backing.ReadLoops
	mounts   func() ([]blockdev.Mount, error)
	threads  journal.ReadThreads
	poolDisk func() (blockdev.Disk, error)
}

func (p *Pool) readHost() *host {
	return &host{
		loops:    sync.OnceValues(backing.Loops),
		mounts:   sync.OnceValues(blockdev.Mounts),
		threads:  sync.OnceValues(ext4.ReadJournalThreads),
		poolDisk: sync.OnceValues(func() (blockdev.Disk, error) { return p.disk(Record{}) }),
	}
}

// mountedFrom gives the device of an attached volume, and says whether it is mounted on
// the mount point.
func (h *host) mountedFrom(p *Pool, record Record) (device backing.Device, mounted bool, err error) {
	devices, err := p.blocks(record).Opened(h.loops)
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
func (h *host) disk(p *Pool, record Record) (blockdev.Disk, error) {
	if record.InPool() {
		return h.poolDisk()
	}
	return p.disk(record)
}
