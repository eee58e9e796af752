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
// attached at the start of the host. While a process works in it, the error wraps
// ErrBusy and it stays attached. A volume that is not attached is not changed.
func (p *Pool) Detach(ctx context.Context, name string) error {
	return detachError(name, p.detach(ctx, name, "", false))
}

// DetachUntilStart is Detach, but a persistent volume ([AttachOptions].Persist) is
// attached again at the next start of the host.
func (p *Pool) DetachUntilStart(ctx context.Context, name string) error {
	return detachError(name, p.detach(ctx, name, "", true))
}

// DetachFrom is Detach, or with untilStart DetachUntilStart, of a volume that is attached
// at target, a resolved path. If it is attached elsewhere, the error wraps ErrNotFound and
// nothing is changed.
func (p *Pool) DetachFrom(ctx context.Context, name, target string, untilStart bool) error {
	return detachError(name, p.detach(ctx, name, target, untilStart))
}

func detachError(name string, err error) error {
	if err != nil {
		return cause.Failed("cannot detach volume %s: %w", name, err)
	}
	return nil
}

func (p *Pool) detach(ctx context.Context, name, target string, keepPersist bool) error {
	v, err := p.hold(ctx, name)
	if err != nil {
		return err
	}
	defer v.release()
	if err = v.finishInterrupted(ctx); err != nil {
		return err
	}
	record := v.record
	if record.Attachment == nil {
		if record.Persist == nil || keepPersist {
			return nil
		}
		if err := p.recordEnding(ctx, &record); err != nil {
			return err
		}
		return p.endPersistence(ctx, &record)
	}
	if target != "" && record.Attachment.Target != target {
		return fmt.Errorf("at %s it is %w: it is attached at %s", target, ErrNotFound, record.Attachment.Target)
	}
	if err := p.checkDetachable(record); err != nil {
		return err
	}
	if err := p.awaitAlone(ctx, record); err != nil {
		return err
	}
	// In a full pool it continues: an attachment that is recorded and no longer exists
	// is cleared later. But then a persistence does not end.
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
		// The unmount may have freed some space.
		if err := p.recordEnding(ctx, &after); err != nil {
			return fmt.Errorf("it is detached now, but: %w", err)
		}
		return p.endPersistence(ctx, &after)
	}
	return p.step(ctx, "detached", func(context.Context) error { return p.writeDetached(after) })
}

// writeDetached records that an attachment is gone. In a full pool the old record stays;
// the next operation on the volume clears it.
func (p *Pool) writeDetached(record Record) error {
	err := p.files.Write(record)
	if errors.Is(err, ErrNoSpace) {
		p.log.Warn("the volume is detached, but this cannot be recorded", "volume", record.Name, "why", err)
		return nil
	}
	return err
}

// checkDetachable refuses while the file system is also mounted elsewhere, such as by a
// container's bind mount, and if its image was removed.
func (p *Pool) checkDetachable(record Record) error {
	devices, err := p.openedDevices(record)
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

// mountAgain mounts a volume again that could not be detached, because another mount
// namespace still has its file system. If that fails, the next operation on the volume
// finishes the detaching.
func (p *Pool) mountAgain(ctx context.Context, record Record) error {
	devices, err := p.openedDevices(record)
	if err != nil || len(devices) != 1 {
		return err
	}
	_, mounted, err := p.readHost().mountedFrom(p, record)
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

// rollback undoes an attachment from any point, and returns the record without it, and with
// the weight from before an attach that was not finished.
func (p *Pool) rollback(ctx context.Context, record Record) (Record, error) {
	if err := p.run(&record).Undo(ctx, p.attachSteps(&record)...); err != nil {
		return record, err
	}
	if record.Persist != nil && record.Persist.Unfinished {
		record.Persist = nil
	}
	if earlier := record.Attachment.EarlierWeight; earlier != nil {
		record.Weight = *earlier
	}
	record.Attachment = nil
	return record, nil
}

// unmount unmounts a device's file system from a directory. It refuses if something else
// is mounted over it.
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
