package volume

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/volume/internal/cause"
	"github.com/daybook-project/daybook/volume/internal/chunk"
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
	v, err := p.holdReady(ctx, name)
	if err != nil {
		return Record{}, err
	}
	defer v.release()
	switch {
	case size != v.record.SizeBytes && v.record.FileSystem == JFS:
		err = fmt.Errorf("%w: Daybook does not resize JFS, which cannot become shorter: copy the files to a new volume", ErrUnsupported)
	case size > v.record.SizeBytes:
		err = v.grow(ctx, size, o.Progress)
	case size < v.record.SizeBytes:
		err = v.shrink(ctx, size)
	}
	return v.record, err
}

func (v *held) grow(ctx context.Context, size uint64, progress Progress) error {
	if err := v.checkWritable(); err != nil {
		return err
	}
	from := v.record.SizeBytes
	// Before anything changes.
	if v.record.LVM != nil && v.record.LVM.ThinPool != "" {
		if err := v.checkThinGrowth(ctx, size-from); err != nil {
			return err
		}
	}
	if v.record.Attachment == nil {
		if err := v.pool.steps().Do(ctx, v.checking()); err != nil {
			return err
		}
	} else if err := checkMayGrow(); err != nil {
		return err
	}
	had, err := v.checkNotLonger(size)
	if err != nil {
		return err
	}
	all, err := v.pool.files.Lock(ctx)
	if err != nil {
		return err
	}
	defer all.Release()
	if err := v.blocks().CheckResize(ctx, size); err != nil {
		return err
	}
	if v.record.InPool() {
		if err := v.pool.checkQuota(size - from); err != nil {
			return err
		}
	}
	// With its new length, the image counts in the quota.
	r := &resizing{held: v, from: from, to: size, had: had, progress: progress, counted: all.Release}
	return r.explain(v.run().DoOrUndo(ctx, r.growSteps()...))
}

// checkNotLonger refuses a size to which the file system would have to become shorter, because
// another program has made it longer than recorded. It returns the length of the blocks.
func (v *held) checkNotLonger(size uint64) (blocksBytes uint64, err error) {
	device, err := v.device()
	if err != nil {
		return 0, err
	}
	bytes, err := fileSystemBytes(device)
	if err != nil {
		return 0, err
	}
	if bytes > size {
		least := (bytes + chunk.UnitBytes - 1) / chunk.UnitBytes * chunk.UnitBytes
		return 0, fmt.Errorf("%w size: %d bytes, but its file system has %d bytes already (--size %d)", ErrInvalid, size, bytes, least)
	}
	return v.blocks().Length()
}

// checkThinGrowth refuses so many bytes more of a thin volume if its pool has no space for their
// tables. A kernel thread clears the new inode tables.
func (v *held) checkThinGrowth(ctx context.Context, bytes uint64) error {
	device, err := v.device()
	if err != nil {
		return err
	}
	s, err := ext4.ReadSuperblock(device)
	if err != nil {
		return err
	}
	inodes := float64(s.Inodes) / (float64(s.Blocks) * float64(s.BlockSizeBytes))
	return v.pool.checkThinSpace(ctx, v.record, bytes, uint64(float64(bytes)*inodes*float64(s.InodeBytes)))
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

func (v *held) checkWritable() error {
	if a := v.record.Attachment; a != nil && a.ReadOnly {
		return fmt.Errorf("it is %w: attached read-only at %s; detach it first", ErrBusy, a.Target)
	}
	return nil
}

// device is the path of the present file system: a block device, or the image.
func (v *held) device() (string, error) {
	if v.record.Attachment == nil {
		return v.blocks().Node(), nil
	}
	devices, err := v.openedDevices()
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
