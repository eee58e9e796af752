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

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/wholefile"
	"github.com/daybook-project/daybook/volume/internal/backing"
	"github.com/daybook-project/daybook/volume/internal/cause"
	"github.com/daybook-project/daybook/volume/internal/store"
	"github.com/daybook-project/daybook/volume/operation"
	"github.com/daybook-project/daybook/volume/records"
)

// work is a directory in which something is made, locked as long as its maker
// lives: it becomes a part of the pool in one rename, or [Pool.Repair] removes
// it.
type work struct {
	path string
	lock *store.Lock
	log  *slog.Logger
}

func (w work) image() string { return filepath.Join(w.path, store.ImageFile) }

// newWork makes a directory in which a volume is made. Blocks of the pool are
// promised: the quota holds them from now on, and they are made. Other blocks have
// the record first, which says whose they are.
func (p *Pool) newWork(ctx context.Context, record Record) (w work, err error) {
	all, err := p.files.Lock(ctx)
	if err != nil {
		return work{}, err
	}
	defer all.Release()
	inPool := hasImage(record)
	if inPool {
		if err := p.checkQuota(record.SizeBytes); err != nil {
			return work{}, err
		}
	}
	if w, err = p.emptyWork(); err != nil {
		return work{}, err
	}
	if inPool {
		err = backing.Of(w.path, record, p.log).Create(ctx, w.lock.File)
	} else {
		err = store.WriteVolume(w.path, record)
	}
	if err != nil {
		return work{}, errors.Join(err, w.discard())
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
		return work{}, errors.Join(err, w.discard())
	}
	return w, nil
}

// emptyWork makes a locked directory; the pool is locked, so that nobody clears
// it away before.
func (p *Pool) emptyWork() (w work, err error) {
	w.log, w.path = p.log, filepath.Join(p.dir, store.WorkDir, records.NewID())
	if err := os.Mkdir(w.path, 0o711); err != nil {
		return work{}, cause.NoSpace(err)
	}
	if w.lock, err = store.LockDirectory(w.path); err != nil {
		return work{}, errors.Join(err, os.Remove(w.path))
	}
	return w, nil
}

// discard removes the work and lets go of it; it does nothing after finish.
func (w *work) discard() error {
	if w.lock == nil {
		return nil
	}
	err := clear(w.path, w.log)
	w.lock.Release()
	w.lock = nil
	return err
}

// clear removes a work, and its blocks outside of the pool. The work of a newer
// Daybook stays: nobody knows what belongs to it. So does one with a logical volume
// that cannot be removed now: it is the only record of it, and a repair tries again.
func clear(path string, log *slog.Logger) error {
	// Not with the caller's context, which may be why it is removed.
	err := backing.Clear(context.Background(), path, log)
	if errors.Is(err, backing.ErrLeft) {
		return fmt.Errorf("%w; it is recorded in %s, and daybook volume repair tries again", err, path)
	}
	if errors.Is(err, ErrUnsupported) {
		return err
	}
	return errors.Join(err, os.RemoveAll(path))
}

// making is the step in which the work is made. Undone, nothing is left of it.
func making(w *work, make func(context.Context) (work, error)) operation.Step {
	return operation.Step{
		Name: "work",
		Do: func(ctx context.Context) (err error) {
			*w, err = make(ctx)
			return err
		},
		Undo: func(context.Context) error { return w.discard() },
	}
}

// publish are the steps that give a work its place, at which nothing may be.
func (p *Pool) publish(w *work, place, what string) []operation.Step {
	return []operation.Step{
		{Name: "synced", Do: func(context.Context) error { return syncTree(w.path) }},
		{Name: "published", Do: func(context.Context) error { return moveToPlace(w, place, what) }},
	}
}

func moveToPlace(w *work, place, what string) error {
	err := unix.Renameat2(unix.AT_FDCWD, w.path, unix.AT_FDCWD, place, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) {
		// Not every file system knows it (NFS); none replaces a directory
		// with something in it.
		err = unix.Rename(w.path, place)
	}
	if errors.Is(err, unix.EEXIST) || errors.Is(err, unix.ENOTEMPTY) {
		return fmt.Errorf("%s %w", what, ErrExists)
	}
	if err != nil {
		return fmt.Errorf("cannot move %s to its place: %w", what, err)
	}
	w.lock.Release()
	w.lock = nil // from now on it is not the work's
	return wholefile.SyncDirectory(filepath.Dir(place))
}

// publishVolume are the steps that give a new volume, whose blocks hold its file
// system, what else it consists of, and its place.
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
	return append([]operation.Step{complete}, p.publish(w, p.files.VolumeDir(record.Name), "volume "+record.Name)...)
}

// drop takes something out of the pool in one rename, and then removes it. It
// needs no space, of which there may be none. The volume is locked, and so is a
// volume that is dropped: its lock goes with it.
func (p *Pool) drop(ctx context.Context, place string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	// It would go with all that is mounted in it.
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
		operation.Step{Name: "cleared", Do: func(context.Context) error {
			return errors.Join(wholefile.SyncDirectory(filepath.Dir(place)), clear(w.path, w.log))
		}},
	)
}

// clearWork removes what dead makers left, and says how many there were. Until
// the deadline it waits for a dead maker's tool or child, which has its lock for a
// moment longer.
func (p *Pool) clearWork(ctx context.Context, deadline time.Time) (cleared int, err error) {
	var errs []error
	for {
		dead, dying, err := p.deadWork(ctx)
		errs = append(errs, err)
		for _, w := range dead {
			err := w.discard()
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

// deadWork locks what nobody has; the pool is locked only meanwhile, for
// removing a large image takes its time. Dying: somebody has one with a record,
// as a volume on a device has from the beginning, or has the lock of a dead one.
func (p *Pool) deadWork(ctx context.Context) (dead []work, dying bool, err error) {
	all, err := p.files.Lock(ctx)
	if err != nil {
		return nil, false, err
	}
	defer all.Release()
	if err := store.RemoveIfThere(filepath.Join(p.dir, store.PoolFile+wholefile.TemporarySuffix)); err != nil {
		return nil, false, err
	}
	entries, err := os.ReadDir(filepath.Join(p.dir, store.WorkDir))
	if err != nil {
		return nil, false, err
	}
	var errs []error
	for _, entry := range entries {
		path := filepath.Join(p.dir, store.WorkDir, entry.Name())
		l, err := store.LockDirectory(path)
		switch {
		case err == nil:
			dead = append(dead, work{path: path, lock: l, log: p.log})
		case errors.Is(err, ErrBusy):
			_, err := os.Lstat(filepath.Join(path, store.RecordFile))
			dying = dying || err == nil || !store.HeldByTaker(path)
		case errors.Is(err, fs.ErrNotExist):
			// Its maker has just ended it.
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
	return wholefile.SyncDirectory(path)
}
