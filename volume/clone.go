package volume

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"time"

	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/volume/internal/backing"
	"github.com/daybook-project/daybook/volume/internal/cause"
	"github.com/daybook-project/daybook/volume/internal/filesystem"
	"github.com/daybook-project/daybook/volume/internal/journal"
	"github.com/daybook-project/daybook/volume/operation"
	"github.com/daybook-project/daybook/volume/records"
)

// CloneOptions are the choices of [Pool.Clone].
type CloneOptions struct {
	// MaxFreeze is how long the writers of an attached volume may wait: see
	// [SnapshotOptions].
	MaxFreeze time.Duration
	// Weight is the clone's, 0 to 1000; 0 takes the source's.
	Weight uint64
	// Labels are the clone's; nil takes the source's.
	Labels map[string]string
	// JournalMemory puts the clone's journal into a slice of persistent memory; nil: it
	// is in the clone, wherever that of the source is.
	JournalMemory *MemoryOptions
	// Progress is called during the copying, where it is not by reflink, and of
	// the writing of a full image.
	Progress Progress
}

// Clone makes a new volume, not attached, of a snapshot, or with "" of the present
// content of the source, which may be attached (see [Pool.Snapshot]). The clone and its
// file system have a UUID of their own, and the journal is inside. If the source is full,
// so is the clone, which then shares no blocks. If it fails or ctx ends, it leaves
// nothing.
func (p *Pool) Clone(ctx context.Context, source, snapshot, name string, options CloneOptions) (Record, error) {
	record, err := p.clone(ctx, source, snapshot, name, options)
	if err != nil {
		return Record{}, cause.Failed("cannot clone volume %s: %w", records.Origin(source, snapshot), err)
	}
	return record, nil
}

func (p *Pool) clone(ctx context.Context, source, snapshot, name string, o CloneOptions) (record Record, err error) {
	if err := errors.Join(CheckName(name), CheckWeight(o.Weight), records.CheckLabels(o.Labels), CheckMaxFreeze(o.MaxFreeze)); err != nil {
		return Record{}, err
	}
	if o.JournalMemory, err = o.JournalMemory.located(); err != nil {
		return Record{}, err
	}
	if _, err := os.Lstat(p.files.VolumeDir(name)); err == nil {
		return Record{}, fmt.Errorf("volume %s %w", name, ErrExists)
	}
	var w work
	steps := []operation.Step{
		{
			Name: "cloned",
			Do: func(ctx context.Context) (err error) {
				record, err = p.cloneToWork(ctx, &w, source, snapshot, name, o)
				return err
			},
			Undo: w.undo,
		},
		{Name: "renewed", Do: func(ctx context.Context) error {
			blocks := backing.Of(w.path, record, p.log)
			fileSystem := ext4.Offline{Device: blocks.Node()}
			if !record.InPool() {
				// Not removed with the work: the tool holds the lock until it has ended.
				fileSystem.Lock = w.lock.File
			}
			return cause.NoSpace(filesystem.Renew(ctx, record, fileSystem, record.ID))
		}},
		{Name: "finished", Do: func(ctx context.Context) error {
			return p.steps().Do(ctx, p.publishVolume(&w, &record, o.Progress)...)
		}},
	}
	err = p.steps().DoOrUndo(ctx, steps...)
	return record, err
}

// cloneToWork copies a snapshot, or the present content of a volume, to a new work, and
// returns the record of the clone. It locks the source only meanwhile.
func (p *Pool) cloneToWork(ctx context.Context, w *work, source, snapshot, name string, o CloneOptions) (clone Record, err error) {
	v, err := p.holdReady(ctx, source)
	if err != nil {
		return Record{}, err
	}
	defer v.release()
	if err := v.blocks().CheckCopy(); err != nil {
		return Record{}, err
	}
	if v.record.FileSystem == records.JFS && o.JournalMemory == nil {
		return Record{}, fmt.Errorf("%w: a volume with JFS has its journal in memory: --journal memory", ErrInvalid)
	}
	if err := v.recoverMemory(ctx); err != nil {
		return Record{}, err
	}
	var of *SnapshotRecord
	if snapshot != "" {
		s, err := p.files.ReadSnapshot(source, snapshot)
		if err != nil {
			return Record{}, err
		}
		of = &s
	}
	clone = cloneRecord(v.record, of, name, o)
	if err := checkCanBeInMemory(v.blocks().Node(), clone); err != nil {
		return Record{}, err
	}
	if err := journal.Of(clone).CheckCreate(ctx); err != nil {
		return Record{}, err
	}
	// The clone shares all blocks, until it writes its own UUID and journal.
	if err := p.checkThinSpace(ctx, clone, clone.SizeBytes, 0); err != nil {
		return Record{}, err
	}
	freeze, err := v.freezer(longestFreeze(o.MaxFreeze))
	if err != nil {
		return Record{}, err
	}
	steps := []operation.Step{making(w, func(ctx context.Context) (work, error) { return p.newWork(ctx, clone) })}
	steps = append(steps, p.memorySteps(w, &clone)...)
	err = p.steps().Do(ctx, append(steps, operation.Step{Name: "copied", Do: func(ctx context.Context) error {
		to := backing.Copy{Directory: w.path, Held: w.lock.File, Volume: &clone, LongestFreeze: longestFreeze(o.MaxFreeze), Mountpoint: mountpointOf(v.record), Progress: o.Progress}
		return v.blocks().Clone(ctx, of, to, freeze)
	}})...)
	return clone, err
}

// cloneRecord returns the record of a clone of a volume, or of its snapshot.
func cloneRecord(source Record, of *SnapshotRecord, name string, o CloneOptions) Record {
	clone := Record{
		Name: name, ID: records.NewID(), Created: time.Now().UTC(), SizeBytes: source.SizeBytes, Provision: source.Provision,
		SectorBytes: source.SectorBytes, Weight: source.Weight, Labels: maps.Clone(source.Labels), MountOptions: source.MountOptions,
		NoAtime: source.NoAtime, Origin: source.Name, FileSystem: source.FileSystem,
	}
	if of != nil {
		clone.SizeBytes, clone.Origin = of.SizeBytes, records.Origin(source.Name, of.Name)
	}
	if lv := source.LVM; lv != nil {
		clone.LVM = records.NewLogicalVolume(lv.VolumeGroup, lv.ThinPool, clone.ID)
	}
	if clone.JournalMemory = o.JournalMemory.journal(); clone.JournalMemory == nil {
		clone.MountOptions = withoutMemoryOptions(clone.MountOptions)
	}
	clone.SetFormat()
	if o.Weight != 0 {
		clone.Weight = o.Weight
	}
	if o.Labels != nil {
		clone.Labels = maps.Clone(o.Labels)
	}
	return clone
}
