package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/daybook-project/daybook/volume/internal/journal"
	"github.com/daybook-project/daybook/volume/internal/store"
	"github.com/daybook-project/daybook/volume/operation"
)

// finishInterrupted finishes or rolls back what a killed process left of an attachment,
// so that the record is true: the volume is attached completely or not at all.
func (p *Pool) finishInterrupted(ctx context.Context, record Record) (_ Record, err error) {
	if record.Frozen {
		if err := p.thaw(ctx, &record); err != nil {
			return record, err
		}
	}
	if record, err = p.finishMoving(ctx, record); err != nil {
		return record, err
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
		p.log.Info("the volume was attached, and is no longer: the host was restarted, or the volume was unmounted by other means", "volume", record.Name)
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
	_, mounted, err := p.readHost().mountedFrom(p, record)
	return mounted, err
}

// checking is the step in which e2fsck, or fsck.jfs, corrects the file system of a detached
// volume. fsck.jfs can be interrupted and repeated. The intent of e2fsck is the
// superblock, which ext4 keeps in a file until e2fsck or resize2fs has ended
// (ext4.Offline.Kept). Undone, the superblock is whole again; the step is then
// done again.
func (p *Pool) checking(record Record, l *store.Lock) operation.Step {
	return p.checkingWith(record, l, nil)
}

// checkingWith gives also the report of e2fsck.
func (p *Pool) checkingWith(record Record, l *store.Lock, report *CheckReport) operation.Step {
	offline := p.offline(record, l)
	return operation.Step{
		Name: "checked",
		Do: func(ctx context.Context) error {
			if _, err := journal.Of(record).Recover(ctx, offline.Device, offline.Lock); err != nil {
				return err
			}
			found, err := examine(ctx, record, offline, true)
			if report != nil {
				report.Clean, report.Corrected, report.Report = found.Clean, found.Corrected, found.Report
			}
			return err
		},
		Undo: func(context.Context) error {
			_, err := offline.PutBack()
			return err
		},
	}
}

// finishCheck does a check again that was interrupted, and says whether there was one.
// If a resize was interrupted, it only makes the superblock readable: finishResize does
// the rest.
func (p *Pool) finishCheck(ctx context.Context, record Record, l *store.Lock) (finished bool, err error) {
	if record.Attachment != nil {
		return false, nil
	}
	if _, err := os.Lstat(p.files.KeptSuperblock(record.Name)); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	blocks := p.blocks(record)
	if err := blocks.Activate(ctx); err != nil {
		return false, err
	}
	if err := blocks.CheckUnused(); err != nil {
		return false, err
	}
	check := p.checking(record, l)
	if err := p.steps().Undo(ctx, check); err != nil || record.Resize != 0 {
		return false, err
	}
	if err := p.steps().Do(ctx, check); err != nil {
		return false, err
	}
	p.log.Info("a check of the file system was interrupted: it was checked again", "volume", record.Name)
	return true, nil
}
