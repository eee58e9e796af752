package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/internal/safetext"
	"github.com/daybook-project/daybook/volume/internal/backing"
	"github.com/daybook-project/daybook/volume/internal/cause"
	"github.com/daybook-project/daybook/volume/internal/mountpoint"
	"github.com/daybook-project/daybook/volume/placement"
)

// Detach unmounts a volume and undoes all that Attach did; it is no longer
// attached at boot. While a process works in it, the error wraps
// ErrBusy and it stays attached. A volume that is not attached is not changed.
func (p *Pool) Detach(ctx context.Context, name string) error {
	return detachError(name, p.detach(ctx, name, "", false))
}

// DetachUntilStart is Detach, but a persistent volume ([AttachOptions].Persist) is
// attached again at the next boot.
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
	if err := v.finishInterrupted(ctx); err != nil {
		return err
	}
	if v.record.Attachment != nil {
		return v.detach(ctx, target, keepPersist)
	}
	if v.record.Persist == nil || keepPersist {
		return nil
	}
	if err := v.recordEnding(ctx); err != nil {
		return err
	}
	return v.endPersistence(ctx)
}

// detach detaches an attached volume.
func (v *held) detach(ctx context.Context, target string, keepPersist bool) error {
	a := v.record.Attachment
	if target != "" && a.Target != target {
		return fmt.Errorf("at %s it is %w: it is attached at %s", target, ErrNotFound, a.Target)
	}
	devices, err := v.openedDevices()
	if err != nil {
		return err
	}
	if err := v.checkDetachable(devices); err != nil {
		return err
	}
	if err := awaitAlone(ctx, devices); err != nil {
		return err
	}
	// In a full pool it continues: an attachment that is recorded and no longer exists
	// is cleared later. But then a persistence does not end.
	recorded := true
	run := v.pool.engine.On(func() error {
		err := v.write()
		if errors.Is(err, ErrNoSpace) {
			recorded = false
			return nil
		}
		return err
	})
	detaching := enter("detaching", func() {
		a.State = Detaching
		if s := v.record.Persist; s != nil {
			s.Unfinished = !keepPersist
			if keepPersist && s.Target == a.Target {
				s.DetachedBootID = a.BootID
			}
		}
	})
	if err := run.Do(ctx, detaching); err != nil {
		return err
	}
	ends := v.record.Persist != nil && !keepPersist
	if !recorded && ends {
		v.record.Persist.Unfinished = false
	}
	if err := v.rollback(ctx); err != nil {
		return errors.Join(err, v.mountAgain(context.WithoutCancel(ctx)))
	}
	if v.record.Persist != nil && ends {
		// The unmount may have freed some space.
		if err := v.recordEnding(ctx); err != nil {
			return fmt.Errorf("it is detached now, but: %w", err)
		}
		return v.endPersistence(ctx)
	}
	return v.pool.step(ctx, "detached", func(context.Context) error { return v.writeDetached() })
}

// writeDetached records that an attachment is gone. In a full pool the old record stays;
// the next operation on the volume clears it.
func (v *held) writeDetached() error {
	err := v.write()
	if errors.Is(err, ErrNoSpace) {
		v.pool.log.Warn("the volume is detached, but this cannot be recorded", "volume", v.record.Name, "why", err)
		return nil
	}
	return err
}

// checkDetachable refuses while the file system is also mounted elsewhere, such as by a
// container's bind mount, and if its image was removed.
func (v *held) checkDetachable(devices []backing.Device) error {
	for _, device := range devices {
		image := v.pool.files.Image(v.record.Name)
		if _, err := os.Lstat(image); device.Loop != nil && errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("it is %w: its image was removed while it was attached, and without the mount its data are lost; stop its users and save them: mount -o remount,ro %s && (umask 077; cp --sparse=always %s %s)",
				ErrCorrupt, safetext.Word(v.record.Attachment.Target), device.Node, safetext.Word(image))
		}
		mounts, err := blockdev.MountsOf(device.Dev)
		if err != nil {
			return err
		}
		for _, mount := range mounts {
			if mount.Point != v.record.Attachment.Target {
				return fmt.Errorf("it is %w: mounted on %s, too", ErrBusy, mount.Point)
			}
		}
	}
	return nil
}

// awaitAlone waits a while until no other mount namespace, such as that of a container, has
// the devices of an attached volume. Otherwise an unmount here would hide the volume here,
// and its file system would stay mounted there. The error wraps ErrBusy.
func awaitAlone(ctx context.Context, devices []backing.Device) error {
	for _, device := range devices {
		err := backing.AwaitFree(ctx, func() error {
			pid, err := mountpoint.Elsewhere(device.Dev)
			if err != nil || pid == 0 {
				return err
			}
			return fmt.Errorf("it is %w: process %d (%s) has it in another mount namespace, as a container has: stop that first", ErrBusy, pid, strings.TrimSpace(placement.CommandName(pid)))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// mountAgain mounts a volume again that could not be detached, because another mount
// namespace still has its file system. If that fails, the next operation on the volume
// finishes the detaching.
func (v *held) mountAgain(ctx context.Context) error {
	devices, err := v.openedDevices()
	if err != nil || len(devices) != 1 {
		return err
	}
	mounted, err := v.isMounted()
	if err != nil {
		return err
	}
	if !mounted {
		if err := v.mount(devices[0].Node); err != nil {
			return err
		}
	}
	if err := v.place(ctx); err != nil {
		return err
	}
	v.record.Attachment.State = Attached
	if s := v.record.Persist; s != nil {
		s.Unfinished, s.DetachedBootID = false, ""
	}
	return v.write()
}

// rollback undoes an attachment from any point. Then the record has none, and the weight from
// before an attach that was not finished; the caller writes it.
func (v *held) rollback(ctx context.Context) error {
	if err := v.run().Undo(ctx, v.attachSteps()...); err != nil {
		return err
	}
	if v.record.Persist != nil && v.record.Persist.Unfinished {
		v.record.Persist = nil
	}
	if earlier := v.record.Attachment.EarlierWeight; earlier != nil {
		v.record.Weight = *earlier
	}
	v.record.Attachment = nil
	return nil
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
