package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/atomicfile"
	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/volume/internal/backing"
	"github.com/daybook-project/daybook/volume/internal/cause"
	"github.com/daybook-project/daybook/volume/internal/store"
	"github.com/daybook-project/daybook/volume/operation"
	"github.com/daybook-project/daybook/volume/records"
)

// work is a directory in which something is made, locked as long as its maker
// lives. It becomes a part of the pool by one rename, or [Pool.Repair] removes it.
type work struct {
	path string
	lock *store.Lock
	log  *slog.Logger
}

func (w work) image() string { return filepath.Join(w.path, store.ImageFile) }

// newWork makes a directory in which a volume is made. Blocks in the pool are made at
// once, and count in the quota from now on. Other blocks are only recorded.
func (p *Pool) newWork(ctx context.Context, record Record) (w work, err error) {
	if _, err := record.Encode(); err != nil {
		return work{}, err // before the image is written
	}
	all, err := p.files.Lock(ctx)
	if err != nil {
		return work{}, err
	}
	defer all.Release()
	inPool := record.InPool()
	if inPool {
		if err := p.checkQuota(record.SizeBytes); err != nil {
			return work{}, err
		}
	}
	id := records.NewID()
	if record.JournalDevice != "" {
		id = record.ID // see backing.Clear; a received volume has the ID of others
	}
	if w, err = p.emptyWork(id); err != nil {
		return work{}, err
	}
	// What is outside of the pool is recorded before it is made.
	if !inPool || record.JournalMemory != nil || record.JournalDevice != "" {
		err = store.WriteVolume(w.path, record)
	}
	if err == nil && inPool {
		err = backing.Of(w.path, record, p.log).Create(ctx, w.lock.File)
	}
	if err != nil {
		return work{}, errors.Join(err, w.undo(context.WithoutCancel(ctx)))
	}
	return w, nil
}

// imageWork makes a directory with a sparse image that a volume is copied to.
func (p *Pool) imageWork(ctx context.Context, sizeBytes uint64) (work, error) {
	return p.newWork(ctx, Record{SizeBytes: sizeBytes, Provision: Thin})
}

// snapshotWork makes a directory in which a snapshot of a volume is made.
func (p *Pool) snapshotWork(ctx context.Context, record Record, s SnapshotRecord) (w work, err error) {
	if s.LVM == nil {
		return p.imageWork(ctx, record.SizeBytes)
	}
	if w, err = p.changeWork(ctx, 0, 0); err != nil {
		return work{}, err
	}
	if err := store.ReplaceFile(filepath.Join(w.path, store.SnapshotFile), s); err != nil {
		return work{}, errors.Join(err, w.undo(context.WithoutCancel(ctx)))
	}
	return w, nil
}

// emptyWork makes a locked directory. The pool is locked, so that no repair removes it
// before. id is a new one, or that of the volume that is made in it: see backing.Clear.
func (p *Pool) emptyWork(id string) (w work, err error) {
	w.log, w.path = p.log, filepath.Join(p.dir, store.WorkDir, id)
	if err := os.Mkdir(w.path, 0o711); err != nil {
		return work{}, cause.NoSpace(err)
	}
	if w.lock, err = store.LockDirectory(w.path); err != nil {
		return work{}, errors.Join(err, os.Remove(w.path))
	}
	return w, nil
}

// discard removes the work and releases its lock. It does nothing with a work that was
// published.
func (w *work) discard(ctx context.Context) error {
	if w.lock == nil {
		return nil
	}
	err := removeWork(ctx, w.path, w.log)
	w.lock.Release()
	w.lock = nil
	return err
}

// removeWork removes a work, and its blocks outside of the pool. It does not remove the work
// of a newer Daybook, because its parts are unknown. Nor does it remove one with a
// logical volume that cannot be removed now, or with a device that cannot be wiped: the work is
// their only record, and a repair tries again.
func removeWork(ctx context.Context, path string, log *slog.Logger) error {
	if err := clearMemory(ctx, path); err != nil {
		return fmt.Errorf("%w; it is recorded in %s, and daybook volume repair tries again; if the memory is gone for ever: daybook volume repair --forget %s", err, path, filepath.Base(path))
	}
	err := backing.Clear(ctx, path, log)
	switch {
	case errors.Is(err, backing.ErrLeft) && errors.Is(err, backing.ErrGroupGone):
		return fmt.Errorf("%w; it is recorded in %s, and daybook volume repair tries again; if the volume group is gone for ever: daybook volume repair --forget %s", err, path, filepath.Base(path))
	case errors.Is(err, backing.ErrNotWiped):
		return fmt.Errorf("%w; it is recorded in %s, and daybook volume repair tries again; to leave the device as it is: daybook volume repair --forget %s", err, path, filepath.Base(path))
	case errors.Is(err, backing.ErrLeft):
		return fmt.Errorf("%w; it is recorded in %s, and daybook volume repair tries again", err, path)
	}
	if errors.Is(err, ErrUnsupported) {
		return err
	}
	return errors.Join(err, os.RemoveAll(path))
}

// making returns the step that makes the work. Undo removes it.
func making(w *work, make func(context.Context) (work, error)) operation.Step {
	return operation.Step{
		Name: "work",
		Do: func(ctx context.Context) (err error) {
			*w, err = make(ctx)
			return err
		},
		Undo: w.undo,
	}
}

// clearPatience is how long a cancelled operation waits for reports of LVM, which may
// wait for another command. What is left then is recorded, and a repair removes it.
const clearPatience = 10 * time.Second

// undo discards the work after an error, which may be that the caller's context ended.
func (w *work) undo(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, clearPatience)
	defer cancel()
	return w.discard(ctx)
}

// withPatience returns a context that ends clearPatience after ctx.
func withPatience(ctx context.Context) (context.Context, context.CancelFunc) {
	patient, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(clearPatience, cancel) })
	return patient, func() { stop(); cancel() }
}

// publish returns the steps that move a work to its place, which must not exist.
func (w *work) publish(place, what string) []operation.Step {
	return []operation.Step{
		{Name: "synced", Do: func(context.Context) error { return syncTree(w.path) }},
		{Name: "published", Do: func(context.Context) error { return w.moveToPlace(place, what) }},
		{Name: "durable", Do: func(context.Context) error { return atomicfile.SyncDirectory(filepath.Dir(place)) }},
	}
}

// moveToPlace ends the work: a later step that fails leaves what was made in its place.
func (w *work) moveToPlace(place, what string) error {
	err := unix.Renameat2(unix.AT_FDCWD, w.path, unix.AT_FDCWD, place, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) {
		// Not every file system has this flag (NFS); none replaces a directory
		// that has entries.
		err = unix.Rename(w.path, place)
	}
	if errors.Is(err, unix.EEXIST) || errors.Is(err, unix.ENOTEMPTY) {
		return fmt.Errorf("%s %w", what, ErrExists)
	}
	if err != nil {
		return fmt.Errorf("cannot move %s to its place: %w", what, err)
	}
	w.lock.Release()
	w.lock = nil // it is no longer a work
	return nil
}

// publishVolume returns the steps that complete a new volume, which has its file system
// already, and move it to its place.
func (p *Pool) publishVolume(w *work, record *Record, progress Progress) []operation.Step {
	complete := operation.Step{Name: "complete", Do: func(ctx context.Context) error {
		if err := backing.Of(w.path, *record, p.log).Fill(ctx, 0, progress); err != nil {
			return err
		}
		if err := store.WriteVolume(w.path, *record); err != nil {
			return err
		}
		return cause.NoSpace(os.Mkdir(filepath.Join(w.path, store.SnapshotsDir), 0o711))
	}}
	return append([]operation.Step{complete}, w.publish(p.files.VolumeDir(record.Name), "volume "+record.Name)...)
}

// drop moves something out of the pool by one rename, and then removes it. It needs no
// space, because the pool may be full. The caller has locked the volume. A dropped
// volume keeps its lock.
func (p *Pool) drop(ctx context.Context, place string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	// A mount below it would be moved, too.
	mounts, err := blockdev.Mounts()
	if err != nil {
		return err
	}
	for _, mount := range mounts {
		if records.Within(mount.Point, place) {
			return fmt.Errorf("it is %w: %s is mounted on %s", ErrBusy, mount.Source, mount.Point)
		}
	}
	w := work{log: p.log, path: filepath.Join(p.dir, store.WorkDir, records.NewID())}
	if w.lock, err = store.LockDirectory(place); err != nil && !errors.Is(err, ErrBusy) {
		return err
	}
	defer w.lock.Release()
	return p.steps().Do(ctx,
		operation.Step{Name: "dropped", Do: func(context.Context) error { return os.Rename(place, w.path) }},
		operation.Step{Name: "cleared", Do: func(ctx context.Context) error {
			// It is gone from the pool already, so a cancelled deletion is completed.
			ctx, end := withPatience(ctx)
			defer end()
			return errors.Join(atomicfile.SyncDirectory(filepath.Dir(place)), removeWork(ctx, w.path, w.log))
		}},
	)
}

// clearWork removes the works of dead makers, and returns their number. Until
// the deadline it waits for a dead maker's tool or child, which has the lock for a
// moment longer.
func (p *Pool) clearWork(ctx context.Context, deadline time.Time) (cleared int, err error) {
	var errs []error
	for {
		dead, dying, err := p.deadWork(ctx)
		errs = append(errs, err)
		for _, w := range dead {
			err := w.discard(ctx)
			if err == nil {
				cleared++
			}
			errs = append(errs, err)
		}
		if !dying || ctx.Err() != nil || time.Now().After(deadline) {
			return cleared, errors.Join(errs...)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// deadWork locks the works that no process has. It locks the pool only meanwhile,
// because removing a large image takes long. dying says that a process has a work with a
// record, as that of a volume on a device has, or holds the lock of a dead maker.
func (p *Pool) deadWork(ctx context.Context) (dead []work, dying bool, err error) {
	all, err := p.files.Lock(ctx)
	if err != nil {
		return nil, false, err
	}
	defer all.Release()
	if err := store.RemoveIfThere(filepath.Join(p.dir, store.PoolFile+atomicfile.TemporarySuffix)); err != nil {
		return nil, false, err
	}
	entries, err := os.ReadDir(filepath.Join(p.dir, store.WorkDir))
	if err != nil {
		return nil, false, err
	}
	var errs []error
	for _, entry := range entries {
		path := filepath.Join(p.dir, store.WorkDir, entry.Name())
		if entry.Type() == fs.ModeSymlink {
			errs = append(errs, os.Remove(path)) // no maker makes one; what it leads to stays
			continue
		}
		l, err := store.LockDirectory(path)
		switch {
		case err == nil:
			dead = append(dead, work{path: path, lock: l, log: p.log})
		case errors.Is(err, ErrBusy):
			_, err := os.Lstat(filepath.Join(path, store.RecordFile))
			dying = dying || err == nil || !store.HeldByTaker(path)
		case errors.Is(err, fs.ErrNotExist):
			// Its maker has just finished it.
		default:
			errs = append(errs, err)
		}
	}
	return dead, dying, errors.Join(errs...)
}

func syncTree(path string) error {
	entries, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.Type().IsRegular() {
			file, err := os.Open(filepath.Join(path, entry.Name()))
			if err != nil {
				return err
			}
			err = errors.Join(file.Sync(), file.Close())
			if err != nil {
				return cause.NoSpace(err)
			}
		}
	}
	return atomicfile.SyncDirectory(path)
}
