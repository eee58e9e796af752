package volume

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/volume/internal/cause"
	"github.com/daybook-project/daybook/volume/internal/store"
)

// ResizeOptions are the choices of [Pool.Resize].
type ResizeOptions struct {
	// Progress is called during the writing of a full image's new part.
	Progress Progress
}

// Resize makes a volume longer, attached (in use) or not, or shorter while it
// is not attached. The errors wrap ErrBusy if an attached one is to become
// shorter, ErrInvalid if its data need more, ErrNoSpace if the pool or its quota has
// not enough space; then nothing has changed.
//
// The requested size is recorded first. A volume becomes shorter on a copy
// of its image, which then replaces it in one rename. Where the pool has no room for
// that, and where a detached volume becomes longer, what resize2fs
// overwrites is kept in an undo file beside the image, on disk before it is
// overwritten. So an interrupted resize is finished or rolled back by
// [Pool.Repair], and by the next operation on the volume.
func (p *Pool) Resize(ctx context.Context, name string, sizeBytes uint64, options ResizeOptions) (Record, error) {
	record, err := p.resize(ctx, name, sizeBytes, options)
	if err != nil {
		return Record{}, cause.Failed("cannot resize volume %s: %w", name, err)
	}
	return record, nil
}

func (p *Pool) resize(ctx context.Context, name string, size uint64, o ResizeOptions) (Record, error) {
	if err := CheckSize(size); err != nil {
		return Record{}, err
	}
	record, l, err := p.holdReady(ctx, name)
	if err != nil {
		return Record{}, err
	}
	defer l.Release()
	switch {
	case size != record.SizeBytes && record.FileSystem == JFS:
		return record, fmt.Errorf("%w: Daybook does not resize JFS, which cannot become shorter: copy the files to a new volume", ErrUnsupported)
	case size > record.SizeBytes:
		return p.grow(ctx, record, l, size, o.Progress)
	case size < record.SizeBytes:
		return p.shrink(ctx, record, l, size)
	}
	return record, nil
}

func (p *Pool) grow(ctx context.Context, record Record, l *store.Lock, size uint64, progress Progress) (Record, error) {
	if err := p.checkWritable(record); err != nil {
		return record, err
	}
	// Before anything changes.
	if record.LVM != nil && record.LVM.ThinPool != "" {
		if err := p.checkThinGrowth(ctx, record, size-record.SizeBytes); err != nil {
			return record, err
		}
	}
	if record.Attachment == nil {
		if err := p.steps().Do(ctx, p.checking(record, l)); err != nil {
			return record, err
		}
	} else if err := checkMayGrow(); err != nil {
		return record, err
	}
	all, err := p.files.Lock(ctx)
	if err != nil {
		return record, err
	}
	defer all.Release()
	blocks := p.blocks(record)
	if err := blocks.CheckResize(ctx, size); err != nil {
		return record, err
	}
	if record.InPool() {
		if err := p.checkQuota(size - record.SizeBytes); err != nil {
			return record, err
		}
	}
	// With its new length, the image counts in the quota.
	r := &resizing{pool: p, record: &record, lock: l, from: record.SizeBytes, to: size, progress: progress, counted: all.Release}
	err = r.explain(p.run(&record).DoOrUndo(ctx, r.growSteps()...))
	return record, err
}

// checkThinGrowth refuses so many bytes more of a thin volume if its pool has no space for their
// tables. A kernel thread clears the new inode tables.
func (p *Pool) checkThinGrowth(ctx context.Context, record Record, bytes uint64) error {
	device, err := p.deviceOf(record)
	if err != nil {
		return err
	}
	s, err := ext4.ReadSuperblock(device)
	if err != nil {
		return err
	}
	inodes := float64(s.Inodes) / (float64(s.Blocks) * float64(s.BlockSizeBytes))
	return p.checkThinSpace(ctx, record, bytes, uint64(float64(bytes)*inodes*float64(s.InodeBytes)))
}

// checkMayGrow refuses if the kernel does not allow this process to make a mounted ext4
// longer.
func checkMayGrow() error {
	var head = unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var have [2]unix.CapUserData
	if err := unix.Capget(&head, &have[0]); err != nil {
		return err
	}
	if have[0].Effective&(1<<unix.CAP_SYS_RESOURCE) == 0 {
		return fmt.Errorf("%w: for a mounted ext4 to become longer, the kernel wants CAP_SYS_RESOURCE, which this process has not; detach the volume first", ErrUnsupported)
	}
	return nil
}

func (p *Pool) checkWritable(record Record) error {
	if a := record.Attachment; a != nil && a.ReadOnly {
		return fmt.Errorf("it is %w: attached read-only at %s; detach it first", ErrBusy, a.Target)
	}
	return nil
}

// deviceOf is the path of the present file system: a block device, or the image.
func (p *Pool) deviceOf(record Record) (string, error) {
	if record.Attachment == nil {
		return p.blocks(record).Node(), nil
	}
	devices, err := p.openedDevices(record)
	if err != nil {
		return "", err
	}
	if len(devices) != 1 {
		return "", fmt.Errorf("its image has %d loop devices, want one", len(devices))
	}
	return devices[0].Node, nil
}

// fileSystemBytes is the length of the file system on a device, by its superblock.
func fileSystemBytes(device string) (uint64, error) {
	s, err := ext4.ReadSuperblock(device)
	if err != nil {
		return 0, err
	}
	return s.Blocks * uint64(s.BlockSizeBytes), nil
}
