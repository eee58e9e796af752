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
	"github.com/daybook-project/daybook/volume/internal/store"
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

func (p *Pool) moveJournal(ctx context.Context, name string, to *MemoryOptions) (record Record, err error) {
	asked := to
	if to, err = to.located(); err != nil {
		return Record{}, err
	}
	v, err := p.holdReady(ctx, name)
	if err != nil {
		return Record{}, err
	}
	defer v.release()
	record, l := v.record, v.lock
	switch {
	case record.Attachment != nil:
		return Record{}, fmt.Errorf("it is %w: attached at %s; detach it first", ErrBusy, record.Attachment.Target)
	case to != nil && record.JournalMemory != nil:
		return record, asked.checkHas(*record.JournalMemory)
	case to == nil && record.JournalMemory == nil:
		return record, nil
	case record.FileSystem == records.JFS:
		return Record{}, fmt.Errorf("%w: a volume with JFS has its journal in memory", ErrUnsupported)
	case to == nil:
		return p.journalToDisk(ctx, record, l)
	}
	return p.journalToMemory(ctx, record, l, to)
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

func (p *Pool) journalToMemory(ctx context.Context, record Record, l *store.Lock, to *MemoryOptions) (Record, error) {
	if record.JournalDevice != "" {
		return Record{}, fmt.Errorf("%w: its journal is on the device %s; only one inside the volume can move", ErrUnsupported, record.JournalDevice)
	}
	before := record
	moved := record
	moved.JournalMemory = to.journal()
	moved.JournalMemory.Moving = records.ToMemory
	moved.SetFormat()
	node := p.blocks(record).Node()
	if err := checkCanBeInMemory(node, moved); err != nil {
		return Record{}, err
	}
	if err := journal.Of(moved).CheckCreate(ctx); err != nil {
		return Record{}, err
	}
	// The file system must not need its present journal.
	s, err := ext4.ReadSuperblock(node)
	if err == nil && s.NeedsRecovery {
		err = p.step(ctx, "journal replayed", (&held{p, record, l}).offline().ReplayJournal)
	}
	if err != nil {
		return Record{}, err
	}
	err = p.run(&record).DoOrUndo(ctx,
		operation.Step{
			Name: "moving to memory",
			Intent: func() (bool, error) {
				record = moved
				return true, nil
			},
			Undo: func(ctx context.Context) (err error) {
				record, err = p.undoMove(ctx, record)
				return err
			},
		},
		operation.Step{Name: "slice reserved", Do: func(ctx context.Context) error { return p.reserve(ctx, &record) }},
		enter("slice recorded", func() {}),
		operation.Step{Name: "slice formatted", Do: func(ctx context.Context) error { return journal.Of(record).Format(ctx, l.File) }},
		enter("journal moved", func() { record.JournalMemory.Moving = "" }),
	)
	if err != nil {
		return before, err
	}
	return record, nil
}

// undoMove frees the slice of a volume whose journal moved to memory.
func (p *Pool) undoMove(ctx context.Context, record Record) (Record, error) {
	if err := journal.Of(record).Delete(ctx); err != nil {
		return record, err
	}
	record.JournalMemory = nil
	record.SetFormat()
	return record, p.files.Write(record)
}

func (p *Pool) journalToDisk(ctx context.Context, record Record, l *store.Lock) (Record, error) {
	if err := p.recoverMemory(ctx, record, l); err != nil {
		return Record{}, err
	}
	// Memory that is gone is not needed: all is in the file system.
	if err := journal.Of(record).CheckDelete(); err != nil && !errors.Is(err, region.ErrGone) {
		return Record{}, err
	}
	moving := enter("moving to disk", func() {
		memory := *record.JournalMemory
		memory.Moving = records.ToDisk
		record.JournalMemory = &memory
	})
	if err := p.run(&record).Do(ctx, moving); err != nil {
		return Record{}, err
	}
	return p.finishMoveToDisk(ctx, record)
}

func (p *Pool) finishMoveToDisk(ctx context.Context, record Record) (Record, error) {
	err := p.run(&record).Do(ctx,
		operation.Step{Name: "slice freed", Do: func(ctx context.Context) error {
			err := journal.Of(record).Delete(ctx)
			if errors.Is(err, region.ErrGone) {
				p.log.Warn("the journal is on the disk; its slice of memory was not freed, or does not exist any more", "volume", record.Name, "why", err)
				return nil
			}
			return err
		}},
		enter("journal moved", func() {
			record.JournalMemory = nil
			record.MountOptions = withoutMemoryOptions(record.MountOptions)
			record.SetFormat()
		}),
	)
	return record, err
}

// finishMoving undoes an interrupted move of a journal to memory, and finishes one to the
// disk.
func (p *Pool) finishMoving(ctx context.Context, record Record) (Record, error) {
	if record.JournalMemory == nil {
		return record, nil
	}
	switch record.JournalMemory.Moving {
	case records.ToMemory:
		return p.undoMove(ctx, record)
	case records.ToDisk:
		return p.finishMoveToDisk(ctx, record)
	}
	return record, nil
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
var memoryMountOptions = []string{"journal_data=", "partitions=", "placement=", "records=", "lock="}

// withoutMemoryOptions removes such options.
func withoutMemoryOptions(options string) string {
	all := strings.Split(options, ",")
	return strings.Join(slices.DeleteFunc(all, func(option string) bool {
		return slices.ContainsFunc(memoryMountOptions, func(begin string) bool { return strings.HasPrefix(option, begin) })
	}), ",")
}
