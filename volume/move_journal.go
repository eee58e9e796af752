package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/volume/internal/cause"
	"github.com/daybook-project/daybook/volume/internal/journal"
	"github.com/daybook-project/daybook/volume/internal/region"
	"github.com/daybook-project/daybook/volume/operation"
	"github.com/daybook-project/daybook/volume/records"
)

// MoveJournal moves the journal of a volume that is not attached into a slice of persistent
// memory, or with nil back into the volume. If the journal is on the side that was asked
// for, nothing changes. If it is in memory, and another region, size or number of partitions
// is asked for, the error wraps ErrUnsupported. If a move to memory fails or is interrupted,
// it is undone; an interrupted move to the disk is finished by the next operation on the
// volume.
func (p *Pool) MoveJournal(ctx context.Context, name string, to *MemoryOptions) (Record, error) {
	record, err := p.moveJournal(ctx, name, to)
	if err != nil {
		return Record{}, cause.Failed("cannot move the journal of volume %s: %w", name, err)
	}
	return record, nil
}

func (p *Pool) moveJournal(ctx context.Context, name string, to *MemoryOptions) (_ Record, err error) {
	asked := to
	if to, err = to.located(); err != nil {
		return Record{}, err
	}
	v, err := p.holdReady(ctx, name)
	if err != nil {
		return Record{}, err
	}
	defer v.release()
	switch {
	case v.record.Attachment != nil:
		err = fmt.Errorf("it is %w: attached at %s; detach it first", ErrBusy, v.record.Attachment.Target)
	case to != nil && v.record.JournalMemory != nil:
		err = asked.checkHas(*v.record.JournalMemory)
	case to == nil && v.record.JournalMemory == nil:
	case v.record.FileSystem == records.JFS:
		err = fmt.Errorf("%w: a volume with JFS has its journal in memory", ErrUnsupported)
	case to == nil:
		err = v.journalToDisk(ctx)
	default:
		err = v.journalToMemory(ctx, to)
	}
	return v.record, err
}

// checkHas checks that a journal in memory has what the options name.
func (o MemoryOptions) checkHas(m MemoryJournal) error {
	if (o.SizeBytes == 0 || o.SizeBytes == m.SizeBytes) && (o.Partitions == 0 || o.Partitions == m.Partitions) &&
		(o.Region == "" || sameFile(o.Region, region.Locate(m.Region, m.RegionID))) {
		return nil
	}
	return fmt.Errorf("%w: it is in memory already, in %s with %d bytes and %d partitions; to change that, move it to the disk first",
		ErrUnsupported, m.Region, m.SizeBytes, m.Partitions)
}

// sameFile reports whether two paths lead to one file.
func sameFile(one, other string) bool {
	if one == other {
		return true
	}
	a, err := os.Stat(one)
	if err != nil {
		return false
	}
	b, err := os.Stat(other)
	return err == nil && os.SameFile(a, b)
}

func (v *held) journalToMemory(ctx context.Context, to *MemoryOptions) error {
	if v.record.JournalDevice != "" {
		return fmt.Errorf("%w: its journal is on the device %s; only one inside the volume can move", ErrUnsupported, v.record.JournalDevice)
	}
	moving := v.record
	moving.JournalMemory = to.journal()
	moving.JournalMemory.Moving = records.ToMemory
	moving.SetFormat()
	node := v.blocks().Node()
	if err := checkCanBeInMemory(node, moving); err != nil {
		return err
	}
	if err := journal.Of(moving).CheckCreate(ctx); err != nil {
		return err
	}
	// The file system must not need its present journal.
	s, err := ext4.ReadSuperblock(node)
	if err == nil && s.NeedsRecovery {
		err = v.pool.step(ctx, "journal replayed", v.offline().ReplayJournal)
	}
	if err != nil {
		return err
	}
	return v.run().DoOrUndo(ctx,
		operation.Step{
			Name: "moving to memory",
			Intent: func() (bool, error) {
				v.record = moving
				return true, nil
			},
			Undo: v.undoMove,
		},
		operation.Step{Name: "slice reserved", Do: func(ctx context.Context) error { return v.pool.reserve(ctx, &v.record) }},
		enter("slice recorded", func() {}),
		operation.Step{Name: "slice formatted", Do: func(ctx context.Context) error { return journal.Of(v.record).Format(ctx, v.lock.File) }},
		enter("journal moved", func() { v.record.JournalMemory.Moving = "" }),
	)
}

// undoMove frees the slice of a volume whose journal moved to memory.
func (v *held) undoMove(ctx context.Context) error {
	if err := v.freeSlice(ctx); err != nil {
		return err
	}
	return v.writeWithoutMemory()
}

// freeSlice frees the slice of a volume whose journal is on the disk. Memory that is gone is not
// needed.
func (v *held) freeSlice(ctx context.Context) error {
	err := journal.Of(v.record).Delete(ctx)
	if errors.Is(err, region.ErrGone) {
		v.pool.log.Warn("the journal is on the disk; its slice of memory was not freed, or does not exist any more", "volume", v.record.Name, "why", err)
		return nil
	}
	return err
}

func (v *held) journalToDisk(ctx context.Context) error {
	if err := v.recoverMemory(ctx); err != nil {
		return err
	}
	// Memory that is gone is not needed: all is in the file system.
	if err := journal.Of(v.record).CheckDelete(); err != nil && !errors.Is(err, region.ErrGone) {
		return err
	}
	if err := v.run().Do(ctx, enter("moving to disk", func() { v.record.JournalMemory.Moving = records.ToDisk })); err != nil {
		return err
	}
	return v.finishMoveToDisk(ctx)
}

func (v *held) finishMoveToDisk(ctx context.Context) error {
	return v.run().Do(ctx,
		operation.Step{Name: "slice freed", Do: v.freeSlice},
		enter("journal moved", func() {
			v.record.JournalMemory = nil
			v.record.MountOptions = withoutMemoryOptions(v.record.MountOptions)
			v.record.SetFormat()
		}),
	)
}

// finishMoving undoes an interrupted move of a journal to memory, and finishes one to the
// disk.
func (v *held) finishMoving(ctx context.Context) error {
	if v.record.JournalMemory == nil {
		return nil
	}
	switch v.record.JournalMemory.Moving {
	case records.ToMemory:
		return v.undoMove(ctx)
	case records.ToDisk:
		return v.finishMoveToDisk(ctx)
	}
	return nil
}

// checkCanBeInMemory refuses a file system that cannot have its journal in memory.
func checkCanBeInMemory(node string, record Record) error {
	if record.JournalMemory == nil || record.FileSystem == records.JFS {
		return nil
	}
	s, err := ext4.ReadSuperblock(node)
	switch {
	case err != nil:
		return err
	case s.BlockSizeBytes != memoryBlockBytes:
		return fmt.Errorf("%w: its blocks have %d bytes; with a journal in memory they must have %d", ErrUnsupported, s.BlockSizeBytes, memoryBlockBytes)
	case !s.HasJournal:
		return fmt.Errorf("%w: its file system has no journal", ErrUnsupported)
	}
	return nil
}

// memoryMountOptions are the beginnings of mount options that only a file system with its
// journal in memory has.
var memoryMountOptions = []string{"journal_data=", "partitions=", "placement=", "records=", "lock=", "log="}

// withoutMemoryOptions removes such options.
func withoutMemoryOptions(options string) string {
	all := strings.Split(options, ",")
	return strings.Join(slices.DeleteFunc(all, func(option string) bool {
		return slices.ContainsFunc(memoryMountOptions, func(begin string) bool { return strings.HasPrefix(option, begin) })
	}), ",")
}
