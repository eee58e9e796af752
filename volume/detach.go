package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/volume/internal/cause"
)

// Detach unmounts a volume and undoes all that Attach did; it is no longer
// attached at the start of the host. While somebody works in it, the error wraps
// ErrBusy and it stays attached. A volume that is not attached stays so.
func (p *Pool) Detach(ctx context.Context, name string) error {
	return detachError(name, p.detach(ctx, name, false))
}

// DetachUntilStart is Detach, but a volume that is attached at each start of the
// host ([AttachOptions].Persist) will be so again.
func (p *Pool) DetachUntilStart(ctx context.Context, name string) error {
	return detachError(name, p.detach(ctx, name, true))
}

func detachError(name string, err error) error {
	if err != nil {
		return cause.Failed("cannot detach volume %s: %w", name, err)
	}
	return nil
}

func (p *Pool) detach(ctx context.Context, name string, keepPersist bool) error {
	record, l, err := p.files.Hold(ctx, name)
	if err != nil {
		return err
	}
	defer l.Release()
	if record, err = p.finishInterrupted(ctx, record); err != nil {
		return err
	}
	if record.Attachment == nil {
		if record.Persist == nil || keepPersist {
			return nil
		}
		if err := p.recordEnding(ctx, &record); err != nil {
			return err
		}
		return p.endPersistence(ctx, &record)
	}
	if err := p.checkDetachable(record); err != nil {
		return err
	}
	if err := p.awaitAlone(ctx, record); err != nil {
		return err
	}
	// Without space it goes on: what is recorded as attached and is not is
	// cleared just as well. A persistence whose end is not recorded stays.
	recorded := true
	run := p.engine.On(func() error {
		err := p.files.Write(record)
		if errors.Is(err, ErrNoSpace) {
			recorded = false
			return nil
		}
		return err
	})
	detaching := enter("detaching", func() {
		record.Attachment.State = Detaching
		if s := record.Persist; s != nil {
			s.Unfinished = !keepPersist
			if keepPersist && s.Target == record.Attachment.Target {
				s.DetachedBootID = record.Attachment.BootID
			}
		}
	})
	if err := run.Do(ctx, detaching); err != nil {
		return err
	}
	ends := record.Persist != nil && !keepPersist
	if !recorded && ends {
		record.Persist.Unfinished = false
	}
	after, err := p.rollback(ctx, record)
	if err != nil {
		return errors.Join(err, p.mountAgain(context.WithoutCancel(ctx), record))
	}
	if after.Persist != nil && ends {
		// The unmounting may have freed some space.
		if err := p.recordEnding(ctx, &after); err != nil {
			return fmt.Errorf("it is detached now, but: %w", err)
		}
		return p.endPersistence(ctx, &after)
	}
	return p.step(ctx, "detached", func(context.Context) error { return p.writeDetached(after) })
}

// writeDetached records that an attachment is gone. In a pool without space the
// old record stays, and the next who works on the volume finds nothing of it.
func (p *Pool) writeDetached(record Record) error {
	err := p.files.Write(record)
	if errors.Is(err, ErrNoSpace) {
		p.log.Warn("the volume is detached, but its record cannot say so", "volume", record.Name, "why", err)
		return nil
	}
	return err
}

// checkDetachable refuses while the file system is mounted elsewhere, too, as a
// container's bind mount is, and where nothing of it would be left.
func (p *Pool) checkDetachable(record Record) error {
	devices, err := p.underlying(record)
	if err != nil {
		return err
	}
	for _, device := range devices {
		image := p.files.Image(record.Name)
		if _, err := os.Lstat(image); device.Loop != nil && errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("it is %w: its image was removed while it was attached, and without the mount its data are lost; stop its users and save them: cp --sparse=always %s %s",
				ErrCorrupt, device.Node, image)
		}
		mounts, err := blockdev.MountsOf(device.Dev)
		if err != nil {
			return err
		}
		for _, mount := range mounts {
			if mount.Point != record.Attachment.Target {
				return fmt.Errorf("it is %w: mounted on %s, too", ErrBusy, mount.Point)
			}
		}
	}
	return nil
}

// mountAgain brings back what a detaching took away that could not be ended:
// the file system is alive still in somebody's mount namespace. What is half
// gone is left to the next who works on the volume.
func (p *Pool) mountAgain(ctx context.Context, record Record) error {
	devices, err := p.underlying(record)
	if err != nil || len(devices) != 1 {
		return err
	}
	mounted, err := p.isMounted(record)
	if err != nil {
		return err
	}
	if !mounted {
		if err := p.mount(record, devices[0].Node); err != nil {
			return err
		}
	}
	if err := p.place(ctx, record); err != nil {
		return err
	}
	record.Attachment.State = Attached
	if record.Persist != nil {
		record.Persist.Unfinished, record.Persist.DetachedBootID = false, ""
	}
	return p.files.Write(record)
}

// rollback undoes an attachment from wherever it is, and gives the record without it.
func (p *Pool) rollback(ctx context.Context, record Record) (Record, error) {
	if err := p.run(&record).Undo(ctx, p.attachSteps(&record)...); err != nil {
		return record, err
	}
	if record.Persist != nil && record.Persist.Unfinished {
		record.Persist = nil
	}
	record.Attachment = nil
	return record, nil
}

// unmount unmounts a device's file system from a directory, and not what
// somebody mounted over it.
func unmount(ctx context.Context, target string, dev blockdev.Dev) error {
	var st unix.Stat_t
	if err := unix.Lstat(target, &st); err != nil {
		return fmt.Errorf("mount point %s: %w", target, err)
	}
	if top := blockdev.DevOf(st.Dev); top != dev {
		return fmt.Errorf("it is %w: something else is mounted over it on %s", ErrBusy, target)
	}
	err := ext4.Unmount(ctx, target)
	if errors.Is(err, ext4.ErrBusy) {
		err = fmt.Errorf("%w: %w", ErrBusy, err)
	}
	return err
}

// finishInterrupted finishes what a killed process left of a volume, so that the record
// says what is so: attached with all that belongs to it, or not at all.
func (p *Pool) finishInterrupted(ctx context.Context, record Record) (_ Record, err error) {
	if record.Frozen {
		if err := p.thaw(ctx, &record); err != nil {
			return record, err
		}
	}
	a := record.Attachment
	unfinished := record.Persist != nil && record.Persist.Unfinished
	if a == nil {
		if unfinished {
			err = p.endPersistence(ctx, &record)
		}
		return record, err
	}
	if a.State == Attached {
		whole, err := p.isMounted(record)
		if err == nil && whole && unfinished {
			err = p.unpersistAttached(ctx, &record)
		}
		if err != nil || whole {
			return record, err
		}
		p.log.Info("the volume was attached, and is no longer: the host was started anew, or somebody unmounted it", "volume", record.Name)
	}
	after, err := p.rollback(ctx, record)
	if err != nil {
		return record, fmt.Errorf("what is left of its last attachment cannot be cleared: %w", err)
	}
	return after, p.writeDetached(after)
}

// isMounted says whether the image has its loop device, and that, or the volume's
// own device, its mount.
func (p *Pool) isMounted(record Record) (bool, error) {
	devices, err := p.underlying(record)
	if err != nil || len(devices) != 1 {
		return false, err
	}
	mounts, err := blockdev.MountsOf(devices[0].Dev)
	if err != nil {
		return false, err
	}
	for _, mount := range mounts {
		if mount.Point == record.Attachment.Target {
			return true, nil
		}
	}
	return false, nil
}
