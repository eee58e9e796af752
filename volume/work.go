package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/wholefile"
	"github.com/daybook-project/daybook/volume/internal/cause"
	"github.com/daybook-project/daybook/volume/internal/imagefile"
	"github.com/daybook-project/daybook/volume/internal/store"
	"github.com/daybook-project/daybook/volume/records"
)

// work is a directory in which something is made, locked as long as its maker
// lives: it becomes a part of the pool in one rename, or [Pool.Repair] removes
// it.
type work struct {
	path string
	lock *store.Lock
}

func (w work) image() string { return filepath.Join(w.path, store.ImageFile) }

// newWork makes a directory in which an image of size bytes is promised: the
// quota holds it from now on. A file of that size is in it, which reads as zeros:
// sparse, or with all its blocks, asked for at once so that they lie together. A
// file system that is made in a sparse file has its own first, here and there.
func (p *Pool) newWork(ctx context.Context, sizeBytes uint64, provision Provision) (w work, err error) {
	all, err := p.files.Lock(ctx)
	if err != nil {
		return work{}, err
	}
	defer all.Release()
	if err := p.checkQuota(sizeBytes); err != nil {
		return work{}, err
	}
	if w, err = p.emptyWork(); err != nil {
		return work{}, err
	}
	err = imagefile.MakeSparse(w.image(), sizeBytes)
	if err == nil && provision == Full {
		err = imagefile.Allocate(w.image(), 0)
	}
	if err != nil {
		return work{}, errors.Join(err, w.discard())
	}
	p.reached("work")
	return w, nil
}

// emptyWork makes a locked directory; the pool is locked, so that nobody clears
// it away before.
func (p *Pool) emptyWork() (w work, err error) {
	w.path = filepath.Join(p.dir, store.WorkDir, records.NewID())
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
	err := clear(w.path)
	w.lock.Release()
	w.lock = nil
	return err
}

// clear removes a work and wipes its device. The work of a newer Daybook stays:
// nobody knows what belongs to it.
func clear(path string) error {
	err := giveBack(path)
	if errors.Is(err, ErrUnsupported) {
		return err
	}
	return errors.Join(err, os.RemoveAll(path))
}

// finish gives the work its place, at which nothing may be.
func (p *Pool) finish(w *work, place, what string) error {
	if err := syncTree(w.path); err != nil {
		return err
	}
	p.reached("finishing")
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
	w.lock = nil
	p.reached("finished")
	return wholefile.SyncDirectory(filepath.Dir(place))
}

// finishVolume gives a new volume, whose image is made, what else it consists
// of, and its place.
func (p *Pool) finishVolume(ctx context.Context, w *work, record Record, progress Progress) error {
	if record.Provision == Full {
		if err := imagefile.WriteOut(ctx, w.image(), 0, progress); err != nil {
			return err
		}
	}
	if err := store.WriteVolume(w.path, record); err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(w.path, store.SnapshotsDir), 0o711); err != nil {
		return cause.NoSpace(err)
	}
	return p.finish(w, p.files.VolumeDir(record.Name), "volume "+record.Name)
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
	w := work{path: filepath.Join(p.dir, store.WorkDir, records.NewID())}
	if w.lock, err = store.LockDirectory(place); err != nil && !errors.Is(err, ErrBusy) {
		return err
	}
	defer w.lock.Release()
	p.reached("dropping")
	if err := os.Rename(place, w.path); err != nil {
		return err
	}
	p.reached("dropped")
	return errors.Join(wholefile.SyncDirectory(filepath.Dir(place)), clear(w.path))
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
			dead = append(dead, work{path: path, lock: l})
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
