package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/daybook-project/daybook/volume/internal/backing"
	"github.com/daybook-project/daybook/volume/internal/cause"
	"github.com/daybook-project/daybook/volume/internal/store"
)

// DeleteOptions are the choices of [Pool.Delete].
type DeleteOptions struct {
	// Damaged also deletes a volume with an unreadable record. What that volume
	// may have left on the host is unknown and not undone; the mount point of a
	// persistent volume stays immutable. It also deletes a volume on LVM if its
	// volume group is gone, or if records of its snapshots are unreadable; their
	// logical volumes are left. It also deletes a volume whose journal was in memory
	// that is gone.
	Damaged bool
}

// Delete deletes a volume, with its snapshots. The error wraps ErrBusy while it
// is attached.
func (p *Pool) Delete(ctx context.Context, name string, options DeleteOptions) error {
	if err := p.delete(ctx, name, options); err != nil {
		return cause.Failed("cannot delete volume %s: %w", name, err)
	}
	return nil
}

func (p *Pool) delete(ctx context.Context, name string, options DeleteOptions) error {
	v, err := p.hold(ctx, name)
	if err != nil {
		if !options.Damaged || !errors.Is(err, ErrCorrupt) {
			return err
		}
		return p.deleteDamaged(ctx, name)
	}
	defer v.release()
	if err := v.finishInterrupted(ctx); err != nil {
		return err
	}
	if v.record.Attachment != nil {
		return fmt.Errorf("it is %w: attached at %s", ErrBusy, v.record.Attachment.Target)
	}
	snapshots, unread, unreadErr := store.SnapshotsIn(p.files.VolumeDir(name))
	if v.record.InPool() {
		unread, unreadErr = nil, nil // what belongs to them is in the pool
	}
	switch {
	case unreadErr != nil && !options.Damaged:
		return fmt.Errorf("%w; the logical volume of that snapshot is unknown and would be left (lvs --select lv_tags=daybook.volume=%s); if it may be: daybook volume delete --damaged %s", unreadErr, name, name)
	case unreadErr != nil:
		p.log.Warn("logical volumes of snapshots are left: lvs --select lv_tags=daybook.volume="+name, "volume", name, "why", unreadErr)
	}
	err = v.blocks().CheckDelete(ctx, snapshots)
	forget := options.Damaged && errors.Is(err, backing.ErrGroupGone)
	switch {
	case forget:
		p.log.Warn("the volume is deleted without its logical volumes", "volume", name, "why", err)
	case errors.Is(err, backing.ErrGroupGone):
		return fmt.Errorf("%w; make the volume group available again, or, if it is gone for ever: daybook volume delete --damaged %s", err, name)
	case err != nil:
		return err
	}
	if v.record.Device != "" {
		if err := v.blocks().Check(ctx); err != nil {
			p.log.Warn("the device is left as it is; if it still exists at another path, wipefs --all erases its file system", "volume", name, "why", err)
		}
	}
	if err := v.checkDeleteMemory(options); err != nil {
		return err
	}
	if v.record.Persist != nil {
		// A full pool must allow it: deleting frees space.
		if err := v.recordEnding(ctx); err != nil && !errors.Is(err, ErrNoSpace) {
			return err
		}
		if err := v.endPersistence(ctx); err != nil {
			return err
		}
	}
	for _, snapshot := range unread {
		if err := os.RemoveAll(snapshot); err != nil {
			return err
		}
	}
	if forget {
		// Without the record, clearing looks for no logical volumes. If this process is
		// killed now, the same command deletes the rest.
		if err := store.RemoveIfThere(filepath.Join(p.files.VolumeDir(name), store.RecordFile)); err != nil {
			return err
		}
	}
	return p.drop(ctx, p.files.VolumeDir(name))
}

func (p *Pool) deleteDamaged(ctx context.Context, name string) error {
	l, err := store.AwaitLock(ctx, p.files.VolumeDir(name))
	if err != nil {
		return err
	}
	defer l.Release()
	// Its device is unknown.
	if err := p.blocks(Record{Name: name}).CheckUnused(); err != nil {
		return err
	}
	if err := p.drop(ctx, p.files.VolumeDir(name)); err != nil {
		return err
	}
	p.log.Warn("if the volume was persistent, its mount point is still immutable: lsattr -d DIR shows the flag i, chattr -i DIR clears it; if it was on LVM, its logical volumes are left: lvs --select lv_tags=daybook.volume="+name, "volume", name)
	return nil
}

// DeleteSnapshot deletes one snapshot of a volume.
func (p *Pool) DeleteSnapshot(ctx context.Context, name, snapshot string) (err error) {
	defer func() { err = cause.Public(err) }()
	if err := CheckName(snapshot); err != nil {
		return err
	}
	v, err := p.hold(ctx, name)
	if err != nil {
		return err
	}
	defer v.release()
	if !slices.Contains(p.files.SnapshotNames(name), snapshot) {
		return fmt.Errorf("snapshot %s of volume %s %w", snapshot, name, ErrNotFound)
	}
	if _, err := os.Stat(p.files.SnapshotDir(name, snapshot)); err != nil {
		return err
	}
	s, err := p.files.ReadSnapshot(name, snapshot)
	switch {
	case err == nil:
		err = v.blocks().CheckDeleteSnapshot(ctx, s)
	case v.record.InPool():
		err = nil // what belongs to it is in the pool
	default:
		err = fmt.Errorf("%w; its logical volume is unknown and would be left (lvs --select lv_tags=daybook.volume=%s); daybook volume delete --damaged deletes the volume without it", err, name)
	}
	if err != nil {
		return fmt.Errorf("cannot delete snapshot %s of volume %s: %w", snapshot, name, err)
	}
	if err := p.drop(ctx, p.files.SnapshotDir(name, snapshot)); err != nil {
		return fmt.Errorf("cannot delete snapshot %s of volume %s: %w", snapshot, name, err)
	}
	return nil
}
