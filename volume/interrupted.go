package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/daybook-project/daybook/volume/internal/journal"
	"github.com/daybook-project/daybook/volume/operation"
)

// finishInterrupted finishes or rolls back what a killed process left of an attachment,
// so that the record is true: the volume is attached completely or not at all.
func (v *held) finishInterrupted(ctx context.Context) error {
	if v.record.Frozen {
		if err := v.thaw(ctx); err != nil {
			return err
		}
	}
	if err := v.finishMoving(ctx); err != nil {
		return err
	}
	a := v.record.Attachment
	unfinished := v.record.Persist != nil && v.record.Persist.Unfinished
	if a == nil {
		if unfinished {
			return v.endPersistence(ctx)
		}
		return nil
	}
	if a.State == Attached {
		whole, err := v.isMounted()
		if err == nil && whole && unfinished {
			err = v.unpersistAttached(ctx)
		}
		if err != nil || whole {
			return err
		}
		v.pool.log.Info("the volume was attached, and is no longer: the host was restarted, or the volume was unmounted by other means", "volume", v.record.Name)
	}
	if err := v.rollback(ctx); err != nil {
		return fmt.Errorf("what is left of its last attachment cannot be cleared: %w", err)
	}
	return v.writeDetached()
}

// checking is the step in which e2fsck, or fsck.jfs, corrects the file system of a detached
// volume. fsck.jfs can be interrupted and repeated. The intent of e2fsck is the
// superblock, which ext4 keeps in a file until e2fsck or resize2fs has ended
// (ext4.Offline.Kept). Undone, the superblock is whole again; the step is then
// done again.
func (v *held) checking() operation.Step { return v.checkingWith(nil) }

// checkingWith gives also the report of e2fsck.
func (v *held) checkingWith(report *CheckReport) operation.Step {
	offline := v.offline()
	return operation.Step{
		Name: "checked",
		Do: func(ctx context.Context) error {
			if _, err := journal.Of(v.record).Recover(ctx, offline.Device, offline.Lock); err != nil {
				return err
			}
			found, err := examine(ctx, v.record, offline, true)
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
func (v *held) finishCheck(ctx context.Context) (finished bool, err error) {
	if v.record.Attachment != nil {
		return false, nil
	}
	if _, err := os.Lstat(v.pool.files.KeptSuperblock(v.record.Name)); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	blocks := v.blocks()
	if err := blocks.Activate(ctx); err != nil {
		return false, err
	}
	if err := blocks.CheckUnused(); err != nil {
		return false, err
	}
	check := v.checking()
	if err := v.pool.steps().Undo(ctx, check); err != nil || v.record.Resize != 0 {
		return false, err
	}
	if err := v.pool.steps().Do(ctx, check); err != nil {
		return false, err
	}
	v.pool.log.Info("a check of the file system was interrupted: it was checked again", "volume", v.record.Name)
	return true, nil
}
