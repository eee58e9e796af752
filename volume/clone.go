package volume

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"time"

	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/volume/internal/cause"
	"github.com/daybook-project/daybook/volume/internal/imagefile"
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
	// Progress is told of the copying, where it is not by reflink, and of
	// the writing of a full image.
	Progress Progress
}

// Clone makes a new volume, not attached, of a snapshot, or with "" of what the
// source holds now, which may be attached (see [Pool.Snapshot]). The clone has
// an identity of its own, its file system, too, and its journal inside. If the
// source is full, so is the clone, which then shares no blocks. If it fails or
// ctx ends, nothing is left.
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
	if _, err := os.Lstat(p.files.VolumeDir(name)); err == nil {
		return Record{}, fmt.Errorf("volume %s %w", name, ErrExists)
	}
	w, record, err := p.copyToWork(ctx, source, snapshot, longestFreeze(o.MaxFreeze), o.Progress)
	if err != nil {
		return Record{}, err
	}
	defer func() { err = errors.Join(err, w.discard()) }()
	p.reached("cloned")
	record = Record{
		Format: records.Format, Name: name, ID: records.NewID(), Created: time.Now().UTC(), SizeBytes: record.SizeBytes, Provision: record.Provision,
		SectorBytes: record.SectorBytes, Weight: record.Weight, Labels: maps.Clone(record.Labels), MountOptions: record.MountOptions,
		NoAtime: record.NoAtime, Origin: records.Origin(source, snapshot),
	}
	if o.Weight != 0 {
		record.Weight = o.Weight
	}
	if o.Labels != nil {
		record.Labels = maps.Clone(o.Labels)
	}
	if err := renew(ctx, ext4.Offline{Device: w.image()}, record.ID); err != nil {
		return Record{}, cause.NoSpace(err)
	}
	return record, p.finishVolume(ctx, &w, record, o.Progress)
}

// copyToWork copies a snapshot, or what a volume holds now, to a new work and
// gives the volume's record, with the size of the copy. The source is locked
// only as long.
func (p *Pool) copyToWork(ctx context.Context, source, snapshot string, longest time.Duration, progress Progress) (w work, record Record, err error) {
	record, l, err := p.holdReady(ctx, source)
	if err != nil {
		return work{}, Record{}, err
	}
	defer l.Release()
	if err := checkImaged(record); err != nil {
		return work{}, Record{}, err
	}
	var s SnapshotRecord
	if snapshot != "" {
		if s, err = p.files.ReadSnapshot(source, snapshot); err != nil {
			return work{}, Record{}, err
		}
		record.SizeBytes = s.SizeBytes
	}
	if w, err = p.newWork(ctx, record.SizeBytes, record.Provision); err != nil {
		return work{}, Record{}, err
	}
	if snapshot == "" {
		_, _, err = p.capture(ctx, &record, l, w.image(), longest, progress)
	} else {
		_, err = imagefile.CopyStill(ctx, p.files.SnapshotImage(source, snapshot), w.image(), record.SizeBytes, progress)
	}
	if err != nil {
		return work{}, Record{}, errors.Join(err, w.discard())
	}
	return w, record, nil
}

// renew replays the journal of a copy and gives it an identity of its own.
func renew(ctx context.Context, fs ext4.Offline, id string) error {
	if err := fs.TakeJournalInside(ctx); err != nil {
		return err
	}
	if _, _, err := fs.Check(ctx, true); err != nil {
		return cause.Damaged(err)
	}
	return fs.SetUUID(ctx, id)
}
