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
	"github.com/daybook-project/daybook/internal/versioned"
)

// Method is how an image was copied.
type Method string

// The methods.
const (
	// Reflink: the copy shares its blocks until one of the two is written.
	// XFS and btrfs can.
	Reflink Method = "reflink"
	// Copied: read and written, but for what is zero.
	Copied Method = "copy"
)

// SnapshotRecord is what is written down of a snapshot.
type SnapshotRecord struct {
	Format int    `json:"format"`
	Name   string `json:"name"`
	// ID is the snapshot's own, VolumeID the volume's.
	ID        string    `json:"id"`
	VolumeID  string    `json:"volume_id"`
	Created   time.Time `json:"created"`
	SizeBytes uint64    `json:"size_bytes"`
	Method    Method    `json:"method"`
	// FrozenSeconds is how long writers had to wait at most; 0 if the
	// volume was not attached.
	FrozenSeconds float64 `json:"frozen_seconds"`
}

const snapshotFormat = 1

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
		return SnapshotRecord{}, failed("cannot make snapshot %s of volume %s: %w", snapshot, name, err)
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
	defer l.release()
	if err := checkImaged(record); err != nil {
		return SnapshotRecord{}, err
	}
	place := p.snapshotDir(name, snapshot)
	if _, err := os.Lstat(place); err == nil {
		return SnapshotRecord{}, ErrExists
	}
	w, err := p.newWork(ctx, record.SizeBytes, Thin)
	if err != nil {
		return SnapshotRecord{}, err
	}
	defer func() { err = errors.Join(err, w.discard()) }()
	s := SnapshotRecord{Format: snapshotFormat, Name: snapshot, ID: newID(), VolumeID: record.ID, SizeBytes: record.SizeBytes}
	if s.Method, s.FrozenSeconds, err = p.capture(ctx, &record, l, w.image(), longestFreeze(o.MaxFreeze), o.Progress); err != nil {
		return SnapshotRecord{}, err
	}
	s.Created = time.Now().UTC()
	if err := replaceFile(filepath.Join(w.path, snapshotRecord), s); err != nil {
		return SnapshotRecord{}, err
	}
	if err := os.Mkdir(filepath.Dir(place), 0o711); err != nil && !errors.Is(err, fs.ErrExist) {
		return SnapshotRecord{}, noSpace(err)
	}
	return s, p.finish(&w, place, fmt.Sprintf("snapshot %s of volume %s", snapshot, name))
}

// holdReady locks a volume that is whole, after what a killed process left of
// it is brought to an end.
func (p *Pool) holdReady(ctx context.Context, name string) (Record, *lock, error) {
	record, l, err := p.hold(ctx, name)
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
		l.release()
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
func (p *Pool) capture(ctx context.Context, record *Record, l *lock, target string, longest time.Duration, progress Progress) (how Method, frozenSeconds float64, err error) {
	source, size := p.image(record.Name), record.SizeBytes
	if record.Attachment == nil {
		if err := checkJournalInside(source); err != nil {
			return "", 0, err
		}
		how, err = copyStill(ctx, source, target, size, progress)
		return how, 0, err
	}
	if err := checkCanGuard(); err != nil {
		return "", 0, err
	}
	// Of a live image it is no snapshot, but tells whether it can be.
	can, err := reflink(source, target, size)
	if err != nil {
		return "", 0, err
	}
	how = Reflink
	var before *copied
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
			_, err := reflink(source, target, size)
			return err
		}
		_, err := copyImage(ctx, source, target, size, before, progress)
		return err
	})
	return how, frozenSeconds, err
}

// copyLive copies an image at work, so that little is left to be copied from the
// frozen one, which is only read then. It refuses one that cannot be read in the
// time that its writers may wait.
func (p *Pool) copyLive(ctx context.Context, source, target string, size uint64, longest time.Duration, progress Progress) (before *copied, err error) {
	if err := checkReadable(ctx, source, size, longest); err != nil {
		return nil, err
	}
	for pass := 0; pass < maxPasses && (before == nil || before.changedBytes > fewBytes); pass++ {
		if before, err = copyImage(ctx, source, target, size, before, progress); err != nil {
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
	_, err := sumImage(reading, image, size, func(done, _ uint64) { read = done })
	if !errors.Is(err, ErrNotFrozen) {
		return err
	}
	return fmt.Errorf("%w: the pool's file system has no reflinks, so the image must be read while its writers wait, and in the %v that they may wait (--max-freeze) %d of %d bytes were read; "+
		"detach the volume first, put the pool on XFS, or let them wait longer, such as --max-freeze 10m", ErrNotFrozen, longest, read, size)
}

// copyStill copies an image that nobody writes.
func copyStill(ctx context.Context, source, target string, size uint64, progress Progress) (Method, error) {
	can, err := reflink(source, target, size)
	if err != nil {
		return "", err
	}
	if can {
		progress.tell(size, size)
		return Reflink, nil
	}
	_, err = copyImage(ctx, source, target, size, nil, progress)
	return Copied, err
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
	defer func() { err = public(err) }()
	if _, err := p.read(name); err != nil {
		return nil, err
	}
	all := []SnapshotStatus{}
	for _, snapshot := range p.snapshotNames(name) {
		record, err := p.readSnapshot(name, snapshot)
		if errors.Is(err, ErrNotFound) {
			continue // deleted since
		}
		status := SnapshotStatus{SnapshotRecord: record}
		if err != nil {
			status = SnapshotStatus{SnapshotRecord: SnapshotRecord{Name: snapshot}, Problem: err.Error()}
		}
		var st unix.Stat_t
		switch err := unix.Stat(p.snapshotImage(name, snapshot), &st); {
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

func (p *Pool) snapshotImage(name, snapshot string) string {
	return filepath.Join(p.snapshotDir(name, snapshot), imageFile)
}

func (p *Pool) readSnapshot(name, snapshot string) (SnapshotRecord, error) {
	if err := CheckName(snapshot); err != nil {
		return SnapshotRecord{}, err
	}
	text, err := readFile(filepath.Join(p.snapshotDir(name, snapshot), snapshotRecord))
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(p.snapshotDir(name, snapshot)); err != nil {
			return SnapshotRecord{}, fmt.Errorf("snapshot %s of volume %s %w", snapshot, name, ErrNotFound)
		}
		return SnapshotRecord{}, fmt.Errorf("snapshot %s of volume %s is %w: %s is missing", snapshot, name, ErrCorrupt, snapshotRecord)
	}
	if err == nil {
		err = checkDirectories(p.volumeDir(name), filepath.Dir(p.snapshotDir(name, snapshot)), p.snapshotDir(name, snapshot))
	}
	if err != nil {
		return SnapshotRecord{}, err
	}
	record, err := parseSnapshot(snapshot, text)
	if err != nil {
		return SnapshotRecord{}, unreadable(fmt.Sprintf("the record of snapshot %s of volume %s", snapshot, name), err)
	}
	return record, nil
}

// parseSnapshot reads the record of a snapshot, which may have been cut off or
// written by anybody.
func parseSnapshot(name string, text []byte) (record SnapshotRecord, err error) {
	if err := versioned.CheckFormat(text, "format", snapshotFormat); err != nil {
		return record, err
	}
	if _, err := versioned.Decode(text, &record); err != nil { // never written again
		return record, err
	}
	switch {
	case record.Format != snapshotFormat:
		return record, fmt.Errorf("format %d, this Daybook knows %d", record.Format, snapshotFormat)
	case record.Name != name:
		return record, fmt.Errorf("it is of %q", record.Name)
	case record.Method != Reflink && record.Method != Copied:
		return record, fmt.Errorf("method %q", record.Method)
	}
	return record, CheckSize(record.SizeBytes)
}
