package volume

import (
	"context"
	"errors"
	"fmt"

	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/volume/internal/cause"
	"github.com/daybook-project/daybook/volume/internal/filesystem"
	"github.com/daybook-project/daybook/volume/internal/imagefile"
	"github.com/daybook-project/daybook/volume/internal/journal"
	"github.com/daybook-project/daybook/volume/records"
)

// CheckOptions are the choices of [Pool.Check].
type CheckOptions struct {
	// Snapshot is checked instead of the volume; its volume may be attached.
	Snapshot string
	// Repair has e2fsck or fsck.jfs correct what it can by itself. Snapshots are not
	// changed.
	Repair bool
}

// CheckReport is the result of a check.
type CheckReport struct {
	// Clean: no error is left.
	Clean bool `json:"clean"`
	// Corrected: there were errors, and they were corrected.
	Corrected bool `json:"corrected"`
	// Replayed: the journal had changes that were not in the file system yet, as
	// after a crash. Without Repair it was replayed on a copy.
	Replayed bool `json:"replayed"`
	// Report is that of e2fsck or fsck.jfs.
	Report string `json:"report"`
}

// Check runs e2fsck, or fsck.jfs, on a volume that is not attached, or on a snapshot.
// Without Repair nothing is changed. Errors wrap ErrBusy while it is attached,
// ErrCorrupt if errors are left; the report is returned in this case, too.
func (p *Pool) Check(ctx context.Context, name string, options CheckOptions) (CheckReport, error) {
	report, err := p.check(ctx, name, options)
	if err != nil {
		return report, cause.Failed("check of volume %s: %w", records.Origin(name, options.Snapshot), err)
	}
	return report, nil
}

func (p *Pool) check(ctx context.Context, name string, o CheckOptions) (report CheckReport, err error) {
	if o.Snapshot != "" && o.Repair {
		return report, fmt.Errorf("%w: snapshots are not repaired: clone it and repair the clone", ErrInvalid)
	}
	v, err := p.holdReady(ctx, name)
	if err != nil {
		return report, err
	}
	defer v.release()
	if o.Snapshot == "" && v.record.Attachment != nil {
		return report, fmt.Errorf("it is %w: attached at %s; detach it, or check a snapshot of it", ErrBusy, v.record.Attachment.Target)
	}
	target, record := v.offline(), v.record // of what is checked
	if o.Snapshot != "" {
		s, err := p.files.ReadSnapshot(name, o.Snapshot)
		if err == nil {
			err = v.blocks().ActivateSnapshot(ctx, s)
		}
		if err != nil {
			return report, err
		}
		// A snapshot has its whole journal inside, or none; nothing of it is in memory.
		target.Device, target.JournalDevice, target.Kept, record.JournalDevice = v.blocks().SnapshotNode(s), "", "", ""
		record.SizeBytes, record.JournalMemory = s.SizeBytes, nil
	}
	needsRecovery, err := filesystem.NeedsRecovery(record, target.Device)
	// The tool reports a damaged superblock better.
	if err == nil && needsRecovery {
		report.Replayed = true
		if !o.Repair {
			return p.checkCopy(ctx, target, record, report)
		}
	}
	if o.Repair {
		err := p.steps().Do(ctx, v.checkingWith(&report))
		return report, err
	}
	found, err := examine(ctx, record, target, false)
	found.Replayed = report.Replayed
	return found, err
}

// examine runs the tool that checks the file system.
func examine(ctx context.Context, record Record, target ext4.Offline, repair bool) (report CheckReport, err error) {
	report.Report, report.Corrected, err = filesystem.Check(ctx, record, target, repair)
	report.Clean = err == nil
	return report, err
}

// checkCopy checks a copy whose journal was replayed: otherwise e2fsck would report
// errors that the next mount removes.
func (p *Pool) checkCopy(ctx context.Context, target ext4.Offline, record Record, report CheckReport) (_ CheckReport, err error) {
	switch {
	case record.JournalMemory != nil:
		return report, fmt.Errorf("%w: its journal in memory must be written to it first: --repair does, or attach and detach it", ErrUnsupported)
	case !journal.Of(record).Inside():
		return report, fmt.Errorf("%w: its journal is on another device and must be replayed first: --repair does, or attach and detach it", ErrUnsupported)
	case !record.InPool():
		return report, fmt.Errorf("%w: its journal must be replayed first, and no copy is made of a device: --repair does, or attach and detach it", ErrUnsupported)
	}
	w, err := p.imageWork(ctx, record.SizeBytes)
	if err != nil {
		return report, fmt.Errorf("its journal must be replayed on a copy: %w", err)
	}
	defer func() { err = errors.Join(err, w.undo(context.WithoutCancel(ctx))) }()
	if _, err := imagefile.CopyStill(ctx, target.Device, w.image(), record.SizeBytes, nil); err != nil {
		return report, err
	}
	target.Device, target.Lock, target.Kept = w.image(), nil, ""
	if err := target.ReplayJournal(ctx); err != nil {
		return report, err
	}
	found, err := examine(ctx, record, target, false)
	found.Replayed = report.Replayed
	return found, err
}
