package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/volume/internal/backing"
	"github.com/daybook-project/daybook/volume/internal/cause"
	"github.com/daybook-project/daybook/volume/internal/freezeguard"
	"github.com/daybook-project/daybook/volume/internal/store"
	"github.com/daybook-project/daybook/volume/operation"
	"github.com/daybook-project/daybook/volume/records"
)

// SnapshotStatus is a snapshot as it is now.
type SnapshotStatus struct {
	SnapshotRecord
	// AllocatedBytes is the space that its image takes in the pool, or its logical volume
	// in the volume group or thin pool, with the blocks that it shares.
	AllocatedBytes uint64 `json:"allocated_bytes"`
	// Problem says what is damaged; "" if no damage is known.
	Problem string `json:"problem,omitempty"`
}

// SnapshotOptions are the choices of [Pool.Snapshot].
type SnapshotOptions struct {
	// MaxFreeze is how long the writers of an attached volume may wait, 1 ms
	// to 24 h; 0 is DefaultMaxFreeze.
	MaxFreeze time.Duration
	// Progress is called during each reading of the image. An attached volume that
	// must be copied is read several times.
	Progress Progress
}

// Snapshot keeps the present content of a volume under a name. An attached volume stays
// in use: its file system is frozen, and so consistent, while its blocks are shared by
// reflink. Where the pool has no reflinks, it is copied while in use. Then it is frozen
// for one more reading, in which only the changes are written: that takes about as long
// as reading all its data from the disk. Data that an application has fsynced before is
// in the snapshot. If it fails or ctx ends, it leaves nothing.
//
// A process of its own, the guardian, freezes and thaws: see [GuardIfAsked].
// After MaxFreeze it thaws in any case, and then Snapshot fails with
// ErrNotFrozen. If reading the data takes longer than MaxFreeze, Snapshot fails so
// without a freeze.
func (p *Pool) Snapshot(ctx context.Context, name, snapshot string, options SnapshotOptions) (SnapshotRecord, error) {
	record, err := p.snapshot(ctx, name, snapshot, options)
	if err != nil {
		return SnapshotRecord{}, cause.Failed("cannot make snapshot %s of volume %s: %w", snapshot, name, err)
	}
	return record, nil
}

func (p *Pool) snapshot(ctx context.Context, name, snapshot string, o SnapshotOptions) (_ SnapshotRecord, err error) {
	if err := errors.Join(CheckName(snapshot), CheckMaxFreeze(o.MaxFreeze)); err != nil {
		return SnapshotRecord{}, err
	}
	v, err := p.holdReady(ctx, name)
	if err != nil {
		return SnapshotRecord{}, err
	}
	defer v.release()
	if err := v.blocks().CheckCopy(); err != nil {
		return SnapshotRecord{}, err
	}
	if err := v.recoverMemory(ctx); err != nil {
		return SnapshotRecord{}, err
	}
	place := p.files.SnapshotDir(name, snapshot)
	if _, err := os.Lstat(place); err == nil {
		return SnapshotRecord{}, ErrExists
	}
	s := newSnapshot(v.record, snapshot)
	freeze, err := v.freezer(longestFreeze(o.MaxFreeze))
	if err != nil {
		return SnapshotRecord{}, err
	}
	var w work
	steps := []operation.Step{
		making(&w, func(ctx context.Context) (work, error) { return p.snapshotWork(ctx, v.record, s) }),
		{Name: "copied", Do: func(ctx context.Context) (err error) {
			to := backing.Copy{Directory: w.path, Held: w.lock.File, Snapshot: &s, LongestFreeze: longestFreeze(o.MaxFreeze), Mountpoint: mountpointOf(v.record), Progress: o.Progress}
			s.Method, s.FrozenSeconds, err = v.blocks().Snapshot(ctx, to, freeze)
			s.Created = time.Now().UTC()
			return err
		}},
		{Name: "complete", Do: func(context.Context) error {
			if err := store.ReplaceFile(filepath.Join(w.path, store.SnapshotFile), s); err != nil {
				return err
			}
			if err := os.Mkdir(filepath.Dir(place), 0o711); err != nil && !errors.Is(err, fs.ErrExist) {
				return cause.NoSpace(err)
			}
			return nil
		}},
	}
	err = p.steps().DoOrUndo(ctx, append(steps, w.publish(place, fmt.Sprintf("snapshot %s of volume %s", snapshot, name))...)...)
	return s, err
}

// newSnapshot returns the record of a snapshot before it is made.
func newSnapshot(record Record, name string) SnapshotRecord {
	s := SnapshotRecord{Format: records.SnapshotFormat, Name: name, ID: records.NewID(), VolumeID: record.ID, SizeBytes: record.SizeBytes}
	if record.LVM != nil {
		s.Format, s.Method = records.SnapshotFormatLVM, LVMSnapshot
		s.LVM = records.NewLogicalVolume(record.LVM.VolumeGroup, record.LVM.ThinPool, s.ID)
	}
	return s
}

// mountpointOf is where a volume is attached; "" if it is not.
func mountpointOf(record Record) string {
	if record.Attachment == nil {
		return ""
	}
	return record.Attachment.Target
}

// freezer returns what freezes the file system of an attached volume; nil if it is
// detached.
func (v *held) freezer(longest time.Duration) (backing.Freeze, error) {
	if v.record.Attachment == nil {
		return nil, nil
	}
	if v.record.InPool() {
		if err := freezeguard.CheckReady(); err != nil {
			return nil, err
		}
	}
	return func(ctx context.Context, do func(context.Context) error) (float64, error) {
		return v.whileFrozen(ctx, longest, do)
	}, nil
}

// Snapshots reports all of a volume's snapshots, oldest first. A damaged record is
// reported as the snapshot's problem.
func (p *Pool) Snapshots(ctx context.Context, name string) (_ []SnapshotStatus, err error) {
	defer func() { err = cause.Public(err) }()
	if _, err := p.files.Read(name); err != nil {
		return nil, err
	}
	all := []SnapshotStatus{}
	for _, snapshot := range p.files.SnapshotNames(name) {
		record, err := p.files.ReadSnapshot(name, snapshot)
		if errors.Is(err, ErrNotFound) {
			continue // deleted since
		}
		status := SnapshotStatus{SnapshotRecord: record}
		if err != nil {
			status = SnapshotStatus{SnapshotRecord: SnapshotRecord{Name: snapshot}, Problem: err.Error()}
		}
		if record.LVM != nil {
			all = append(all, status)
			continue
		}
		var st unix.Stat_t
		switch err := unix.Stat(p.files.SnapshotImage(name, snapshot), &st); {
		case err != nil && status.Problem == "":
			status.Problem = fmt.Sprintf("image: %v", err)
		case err == nil:
			status.AllocatedBytes = uint64(st.Blocks) * 512
			if status.Problem == "" && uint64(st.Size) < record.SizeBytes {
				status.Problem = fmt.Sprintf("image: %d bytes long, want %d", st.Size, record.SizeBytes)
			}
		}
		all = append(all, status)
	}
	slices.SortStableFunc(all, func(a, b SnapshotStatus) int { return a.Created.Compare(b.Created) })
	reportLogical(ctx, all)
	return all, ctx.Err()
}

// reportLogical enters what LVM reports of snapshots that are logical volumes.
func reportLogical(ctx context.Context, all []SnapshotStatus) {
	var logical []records.LogicalVolume
	for _, status := range all {
		if status.LVM != nil {
			logical = append(logical, *status.LVM)
		}
	}
	allocated, err := backing.AllocatedLogical(ctx, logical)
	for i := range all {
		status := &all[i]
		if status.LVM == nil {
			continue
		}
		bytes, there := allocated[*status.LVM]
		status.AllocatedBytes = bytes
		switch {
		case status.Problem != "" || there:
		case err != nil:
			status.Problem = err.Error()
		default:
			status.Problem = fmt.Sprintf("its logical volume %s is missing", status.LVM)
		}
	}
}
