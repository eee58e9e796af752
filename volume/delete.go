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
	// Damaged deletes a volume whose record cannot be read, too. Nothing
	// that it may have left on the host is undone, as nobody knows it; the
	// mount point of a persistent volume stays immutable. And it deletes one
	// whose volume group is gone.
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
	record, l, err := p.files.Hold(ctx, name)
	if err != nil {
		if !options.Damaged || !errors.Is(err, ErrCorrupt) {
			return err
		}
		return p.deleteDamaged(ctx, name)
	}
	defer l.Release()
	if record, err = p.finishInterrupted(ctx, record); err != nil {
		return err
	}
	if record.Attachment != nil {
		return fmt.Errorf("it is %w: attached at %s", ErrBusy, record.Attachment.Target)
	}
	err = p.blocks(record).CheckDelete(ctx, store.SnapshotsIn(p.files.VolumeDir(name)))
	forget := options.Damaged && errors.Is(err, backing.ErrGroupGone)
	switch {
	case forget:
		p.log.Warn("the volume is deleted without its logical volumes", "volume", name, "why", err)
	case errors.Is(err, backing.ErrGroupGone):
		return fmt.Errorf("%w; bring the volume group back, or, if it is gone for ever: daybook volume delete --damaged %s", err, name)
	case err != nil:
		return err
	}
	if record.Persist != nil {
		// A pool without space must allow it: what is deleted gives space back.
		if err := p.recordEnding(ctx, &record); err != nil && !errors.Is(err, ErrNoSpace) {
			return err
		}
		if err := p.endPersistence(ctx, &record); err != nil {
			return err
		}
	}
	if forget {
		// Without the record nobody looks for logical volumes. A volume without one
		// is deleted by the same command again.
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
	// Of its device nobody knows.
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
	record, l, err := p.files.Hold(ctx, name)
	if err != nil {
		return err
	}
	defer l.Release()
	if !slices.Contains(p.files.SnapshotNames(name), snapshot) {
		return fmt.Errorf("snapshot %s of volume %s %w", snapshot, name, ErrNotFound)
	}
	if _, err := os.Stat(p.files.SnapshotDir(name, snapshot)); err != nil {
		return err
	}
	// A damaged record says nothing of a logical volume.
	if s, err := p.files.ReadSnapshot(name, snapshot); err == nil {
		if err := p.blocks(record).CheckDeleteSnapshot(ctx, s); err != nil {
			return fmt.Errorf("cannot delete snapshot %s of volume %s: %w", snapshot, name, err)
		}
	}
	if err := p.drop(ctx, p.files.SnapshotDir(name, snapshot)); err != nil {
		return fmt.Errorf("cannot delete snapshot %s of volume %s: %w", snapshot, name, err)
	}
	return nil
}
