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

	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/volume/internal/cause"
	"github.com/daybook-project/daybook/volume/internal/imagefile"
	"github.com/daybook-project/daybook/volume/internal/store"
	"github.com/daybook-project/daybook/volume/records"
)

// SnapshotStatus is a snapshot as it is now.
type SnapshotStatus struct {
	SnapshotRecord
	// AllocatedBytes is what its image takes of the pool; blocks that it
	// shares are counted, too.
	AllocatedBytes uint64 `json:"allocated_bytes"`
	// Problem says what is damaged; "" if nothing is known to be.
	Problem string `json:"problem,omitempty"`
}

// SnapshotOptions are the choices of [Pool.Snapshot].
type SnapshotOptions struct {
	// MaxFreeze is how long the writers of an attached volume may wait, 1 ms
	// to 24 h; 0 is DefaultMaxFreeze.
	MaxFreeze time.Duration
	// Progress is told of each reading of the image: there are several of
	// an attached volume that has to be copied.
	Progress Progress
}

// Snapshot keeps what a volume holds now under a name. An attached volume stays
// at work: its file system is frozen, and so whole and clean, for as long as a
// reflink takes. Where the pool has no reflinks, it is copied while it works,
// and frozen for one more reading of it, in which only what has changed is
// written: about as long as reading all its data from the disk takes. What an
// application has fsynced before is in the snapshot. If it fails or ctx ends,
// nothing is left.
//
// A process of its own, the guardian, freezes and thaws: see [GuardIfAsked].
// After MaxFreeze it thaws in any case, and then Snapshot fails with
// ErrNotFrozen. So it does, without a freeze, if reading the data takes longer
// than MaxFreeze.
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
	record, l, err := p.holdReady(ctx, name)
	if err != nil {
		return SnapshotRecord{}, err
	}
	defer l.Release()
	if err := checkImaged(record); err != nil {
		return SnapshotRecord{}, err
	}
	place := p.files.SnapshotDir(name, snapshot)
	if _, err := os.Lstat(place); err == nil {
		return SnapshotRecord{}, ErrExists
	}
	w, err := p.newWork(ctx, record.SizeBytes, Thin)
	if err != nil {
		return SnapshotRecord{}, err
	}
	defer func() { err = errors.Join(err, w.discard()) }()
	s := SnapshotRecord{Format: records.SnapshotFormat, Name: snapshot, ID: records.NewID(), VolumeID: record.ID, SizeBytes: record.SizeBytes}
	if s.Method, s.FrozenSeconds, err = p.capture(ctx, &record, l, w.image(), longestFreeze(o.MaxFreeze), o.Progress); err != nil {
		return SnapshotRecord{}, err
	}
	s.Created = time.Now().UTC()
	if err := store.ReplaceFile(filepath.Join(w.path, store.SnapshotFile), s); err != nil {
		return SnapshotRecord{}, err
	}
	if err := os.Mkdir(filepath.Dir(place), 0o711); err != nil && !errors.Is(err, fs.ErrExist) {
		return SnapshotRecord{}, cause.NoSpace(err)
	}
	return s, p.finish(&w, place, fmt.Sprintf("snapshot %s of volume %s", snapshot, name))
}

// holdReady locks a volume that is whole, after what a killed process left of
// it is brought to an end.
func (p *Pool) holdReady(ctx context.Context, name string) (Record, *store.Lock, error) {
	record, l, err := p.files.Hold(ctx, name)
	if err != nil {
		return Record{}, nil, err
	}
	if record, err = p.settle(ctx, record); err == nil {
		_, err = p.mend(ctx, record, l)
	}
	if err == nil && record.Resize != 0 {
		record, err = p.finishResize(ctx, record, l)
	}
	if err == nil {
		err = p.checkImageThere(record)
	}
	if err == nil && record.Attachment == nil {
		err = p.checkNoLoop(record)
	}
	if err != nil {
		l.Release()
		return Record{}, nil, err
	}
	return record, l, nil
}

// Passes over a volume at work, before it is frozen: each costs a reading, and
// leaves less to be written in the next. The frozen one writes at most about
// fewBytes, if the volume's writers let it.
const (
	maxPasses = 3
	fewBytes  = 64 << 20
)

// capture brings into the sparse image target what a volume, whose lock is l,
// holds, in a state in which its file system is whole. Writers of an attached one
// wait for at most longest.
func (p *Pool) capture(ctx context.Context, record *Record, l *store.Lock, target string, longest time.Duration, progress Progress) (how Method, frozenSeconds float64, err error) {
	source, size := p.files.Image(record.Name), record.SizeBytes
	if record.Attachment == nil {
		if err := checkJournalInside(source); err != nil {
			return "", 0, err
		}
		reflinked, err := imagefile.CopyStill(ctx, source, target, size, progress)
		how = Copied
		if reflinked {
			how = Reflink
		}
		return how, 0, err
	}
	if err := checkCanGuard(); err != nil {
		return "", 0, err
	}
	// Of a live image it is no snapshot, but tells whether it can be.
	can, err := imagefile.Reflink(source, target, size)
	if err != nil {
		return "", 0, err
	}
	how = Reflink
	var before *imagefile.Copied
	if !can {
		how = Copied
		if before, err = p.copyLive(ctx, source, target, size, longest, progress); err != nil {
			return "", 0, err
		}
	}
	// What is written now need not be while it is frozen.
	if err := syncFileSystem(record.Attachment.Target); err != nil {
		return "", 0, err
	}
	if err := ctx.Err(); err != nil {
		return "", 0, err
	}
	frozenSeconds, err = p.whileFrozen(ctx, record, l, longest, func(ctx context.Context) error {
		if can {
			_, err := imagefile.Reflink(source, target, size)
			return err
		}
		_, err := imagefile.Copy(ctx, source, target, size, before, progress)
		return err
	})
	return how, frozenSeconds, err
}

// copyLive copies an image at work, so that little is left to be copied from the
// frozen one, which is only read then. It refuses one that cannot be read in the
// time that its writers may wait.
func (p *Pool) copyLive(ctx context.Context, source, target string, size uint64, longest time.Duration, progress Progress) (before *imagefile.Copied, err error) {
	if err := checkReadable(ctx, source, size, longest); err != nil {
		return nil, err
	}
	for pass := 0; pass < maxPasses && (before == nil || before.ChangedBytes > fewBytes); pass++ {
		if before, err = imagefile.Copy(ctx, source, target, size, before, progress); err != nil {
			return nil, err
		}
	}
	p.reached("copied")
	return before, nil
}

// checkReadable reads an image as the copying of a frozen one does, and refuses it
// if that takes longer than a freeze may.
func checkReadable(ctx context.Context, image string, size uint64, longest time.Duration) error {
	var read uint64
	reading, stop := context.WithTimeoutCause(ctx, longest, ErrNotFrozen)
	defer stop()
	_, err := imagefile.Sums(reading, image, size, func(done, _ uint64) { read = done })
	if !errors.Is(err, ErrNotFrozen) {
		return err
	}
	return fmt.Errorf("%w: the pool's file system has no reflinks, so the image must be read while its writers wait, and in the %v that they may wait (--max-freeze) %d of %d bytes were read; "+
		"detach the volume first, put the pool on XFS, or let them wait longer, such as --max-freeze 10m", ErrNotFrozen, longest, read, size)
}

// checkJournalInside refuses an image a part of which is on another device.
func checkJournalInside(image string) error {
	s, err := ext4.ReadSuperblock(image)
	if err != nil {
		return fmt.Errorf("its image is %w: %w", ErrCorrupt, err)
	}
	if s.External() && s.NeedsRecovery {
		return fmt.Errorf("%w: its journal is on another device and must be replayed first: attach and detach it", ErrUnsupported)
	}
	return nil
}

func syncFileSystem(directory string) error {
	fd, err := unix.Open(directory, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(fd), unix.Close(fd))
}

// Snapshots tells all of a volume's snapshots, oldest first. A damaged record is
// told as the snapshot's problem.
func (p *Pool) Snapshots(name string) (_ []SnapshotStatus, err error) {
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
	return all, nil
}
