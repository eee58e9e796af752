package volume

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/volume/internal/cause"
	"github.com/daybook-project/daybook/volume/internal/imagefile"
	"github.com/daybook-project/daybook/volume/internal/store"
)

// ResizeOptions are the choices of [Pool.Resize].
type ResizeOptions struct {
	// Progress is called during the writing of a full image's new part.
	Progress Progress
}

// Resize makes a volume longer, attached (at work) or not, or shorter while it
// is not attached. The errors wrap ErrBusy if an attached one is to become
// shorter, ErrInvalid if its data need more, ErrNoSpace if pool or quota have
// not so much; then nothing has changed.
//
// The size that is wanted is recorded first. A volume becomes shorter on a copy
// of its image, which then takes its place in one rename. Where that has no room
// in the pool, and where a detached volume becomes longer, what resize2fs
// overwrites is kept in an undo file beside the image, on disk before it is
// overwritten. So a resize that was interrupted is finished or rolled back by
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
	if record.Attachment == nil {
		if _, _, err := p.offline(record, l).Check(ctx, true); err != nil {
			return record, cause.Damaged(err)
		}
	} else if err := checkMayGrow(); err != nil {
		return record, err
	}
	if err := p.beginGrow(ctx, &record, size); err != nil {
		return record, err
	}
	return p.finishGrow(ctx, record, l, progress)
}

// checkMayGrow says whether the kernel will let us make a mounted ext4 longer.
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

// beginGrow records the size and makes the image so long, within the quota.
func (p *Pool) beginGrow(ctx context.Context, record *Record, size uint64) error {
	all, err := p.files.Lock(ctx)
	if err != nil {
		return err
	}
	defer all.Release()
	blocks := p.blocks(*record)
	if err := blocks.CheckResize(ctx, size); err != nil {
		return err
	}
	if blocks.InPool() {
		if err := p.checkQuota(size - record.SizeBytes); err != nil {
			return err
		}
	}
	if err := p.run(record).Do(ctx, enter("resizing", func() { record.Resize = size })); err != nil {
		return err
	}
	if err := blocks.SetLength(ctx, size); err != nil {
		record.Resize = 0
		return errors.Join(cause.NoSpace(err), p.files.Write(*record))
	}
	return nil
}

// finishGrow does what is left of a growing that was recorded, or rolls it back
// if the file system has not grown yet and cannot.
func (p *Pool) finishGrow(ctx context.Context, record Record, l *store.Lock, progress Progress) (Record, error) {
	err := p.growAll(ctx, record, l, progress)
	if err != nil {
		// Not with ctx, which may be why it failed.
		ctx := context.WithoutCancel(ctx)
		back, backErr := p.rollbackGrow(ctx, record, l)
		if backErr == nil {
			return back, err
		}
		if errors.Is(backErr, errGrown) {
			backErr = p.growAll(ctx, record, l, progress) // the rest of it
		}
		if backErr != nil {
			return record, errors.Join(err, fmt.Errorf("it stays half done, until daybook volume repair: %w", backErr))
		}
	}
	record.SizeBytes, record.Resize = record.Resize, 0
	return record, p.files.Write(record)
}

var errGrown = errors.New("the file system has grown already")

func (p *Pool) growAll(ctx context.Context, record Record, l *store.Lock, progress Progress) error {
	blocks, now, want := p.blocks(record), record.SizeBytes, record.Resize
	device, err := p.deviceOf(record)
	if err != nil {
		return err
	}
	grown, err := fileSystemBytes(device)
	if err != nil {
		return err
	}
	err = p.step(ctx, "lengthened", func(ctx context.Context) error {
		if err := blocks.SetLength(ctx, want); err != nil {
			return cause.NoSpace(err)
		}
		// A file system that has grown uses the new part already.
		if grown <= now {
			if err := blocks.Fill(ctx, now, progress); err != nil {
				return err
			}
		}
		return imagefile.Sync(blocks.Node())
	})
	if err != nil {
		return err
	}
	if record.Attachment == nil {
		return p.resizeOffline(ctx, record, l, want)
	}
	if err := p.step(ctx, "capacity", func(context.Context) error { return blocks.Lengthened(device) }); err != nil {
		return err
	}
	if err := ext4.Grow(ctx, device, want); err != nil {
		return cause.NoSpace(err)
	}
	return blocks.Grown(now)
}

// rollbackGrow makes the image as long as it was, if the file system is.
func (p *Pool) rollbackGrow(ctx context.Context, record Record, l *store.Lock) (Record, error) {
	if record.Attachment == nil {
		if err := p.rollbackOffline(ctx, record, l); err != nil {
			return record, err
		}
	}
	device, err := p.deviceOf(record)
	if err != nil {
		return record, err
	}
	grown, err := fileSystemBytes(device)
	if err != nil {
		return record, err
	}
	if grown > record.SizeBytes {
		return record, errGrown
	}
	if err := p.blocks(record).SetLength(ctx, record.SizeBytes); err != nil {
		return record, err
	}
	if record.Attachment != nil {
		if err := p.blocks(record).Lengthened(device); err != nil {
			return record, err
		}
	}
	record.Resize = 0
	return record, p.files.Write(record)
}

// finishResize brings an interrupted resize to an end, or rolls it back.
func (p *Pool) finishResize(ctx context.Context, record Record, l *store.Lock) (Record, error) {
	record, err := p.finishInterrupted(ctx, record)
	if err != nil {
		return record, err
	}
	if record.Resize < record.SizeBytes {
		return p.finishShrink(ctx, record, l)
	}
	if record.Attachment == nil {
		if err := p.rollbackOffline(ctx, record, l); err != nil {
			return record, err
		}
		// The journal may hold a growing that the superblock does not have yet.
		if _, _, err := p.offline(record, l).Check(ctx, true); err != nil {
			return record, cause.Damaged(err)
		}
	}
	after, err := p.finishGrow(ctx, record, l, nil)
	if err != nil && after.Resize == 0 {
		p.log.Warn("an interrupted resize was rolled back", "volume", record.Name, "why", err)
		return after, nil
	}
	return after, err
}

// deviceOf is what has the file system now: a block device, or the image.
func (p *Pool) deviceOf(record Record) (string, error) {
	if record.Attachment == nil {
		return p.blocks(record).Node(), nil
	}
	devices, err := p.underlying(record)
	if err != nil {
		return "", err
	}
	if len(devices) != 1 {
		return "", fmt.Errorf("its image has %d loop devices, want one", len(devices))
	}
	return devices[0].Node, nil
}

// fileSystemBytes is how long the file system on a device says it is.
func fileSystemBytes(device string) (uint64, error) {
	s, err := ext4.ReadSuperblock(device)
	if err != nil {
		return 0, err
	}
	return s.Blocks * uint64(s.BlockSizeBytes), nil
}
