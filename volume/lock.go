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

	"github.com/daybook-project/daybook/internal/filelock"
)

// lock is a held flock of a directory that other users cannot open. The kernel
// drops it with the last descriptor, by whatever death.
type lock struct {
	file *os.File
	// earlier is a directory that is locked, too; nil if there is none.
	earlier *os.File
}

func (l *lock) release() {
	if l == nil {
		return
	}
	if l.earlier != nil {
		_ = l.earlier.Close()
	}
	_ = l.file.Close()
}

// lockDirectory locks a directory of Daybook's own without waiting; the error
// wraps ErrBusy if another has it, and fs.ErrNotExist if there is none. Who may
// open a directory may lock it: so others are kept from opening it.
func lockDirectory(path string) (*lock, error) {
	for {
		file, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			return nil, err
		}
		if err := errors.Join(closeToOthers(file), tryFlock(file)); err != nil {
			_ = file.Close()
			if errors.Is(err, ErrBusy) {
				return nil, fmt.Errorf("%s is %w: another daybook works on it", path, ErrBusy)
			}
			return nil, err
		}
		// It may have been renamed or removed before we had the lock.
		opened, err1 := file.Stat()
		named, err2 := os.Stat(path)
		if err1 == nil && err2 == nil && os.SameFile(opened, named) {
			return &lock{file: file}, nil
		}
		_ = file.Close()
	}
}

// closeToOthers takes away from others what they need to open a directory. One
// that they could have written into is refused.
func closeToOthers(directory *os.File) error {
	info, err := directory.Stat()
	if err == nil {
		err = checkTrusted(directory.Name(), info)
	}
	if err != nil || info.Mode().Perm()&0o066 == 0 {
		return err
	}
	mode := info.Mode() & (os.ModePerm | os.ModeSetgid | os.ModeSticky)
	if err := directory.Chmod(mode &^ 0o066); err != nil {
		return fmt.Errorf("cannot keep other users from locking %s: %w", directory.Name(), err)
	}
	return nil
}

// tryFlock locks an open file without waiting; the error wraps ErrBusy if another
// has it.
func tryFlock(file *os.File) error {
	err := filelock.TryLock(file)
	var held *filelock.HeldError
	if errors.As(err, &held) {
		return ErrBusy
	}
	return err
}

// heldByTaker says whether a living process took a directory's lock. Otherwise it
// is held by what a dead one had started, which is about to close it or die.
func heldByTaker(path string) bool {
	directory, err := os.Open(path)
	if err != nil {
		return false // its maker has just ended it
	}
	defer func() { _ = directory.Close() }()
	return len(filelock.Takers(directory)) > 0
}

// lockPatience is how long a command waits for another on the same volume.
const lockPatience = 10 * time.Second

// awaitLock waits a while for whoever has the lock of a directory.
func awaitLock(ctx context.Context, path string) (*lock, error) {
	return awaitLockUntil(ctx, path, time.Now().Add(lockPatience))
}

func awaitLockUntil(ctx context.Context, path string, deadline time.Time) (*lock, error) {
	return awaitUntil(ctx, deadline, func() (*lock, error) { return lockDirectory(path) })
}

func awaitUntil(ctx context.Context, deadline time.Time, try func() (*lock, error)) (*lock, error) {
	for {
		l, err := try()
		if !errors.Is(err, ErrBusy) || time.Now().After(deadline) {
			return l, err
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(err, ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// lock locks the whole pool: its quota, and what is in its work directory. The
// lock is that directory's. The pool's own directory may be an administrator's,
// open to everybody; earlier versions locked that, so it is locked as well.
func (p *Pool) lock(ctx context.Context) (*lock, error) {
	work := filepath.Join(p.dir, workDir)
	return awaitUntil(ctx, time.Now().Add(lockPatience), func() (*lock, error) {
		l, err := lockDirectory(work)
		if errors.Is(err, fs.ErrNotExist) {
			if err := os.Mkdir(work, 0o711); err != nil && !errors.Is(err, fs.ErrExist) {
				return nil, noSpace(err)
			}
			l, err = lockDirectory(work)
		}
		if err != nil {
			return nil, err
		}
		if err := l.lockEarlier(p.dir, p.stranger); err != nil {
			l.release()
			return nil, err
		}
		return l, nil
	})
}

// lockEarlier locks a directory that others can open, as earlier versions did.
// The error wraps ErrBusy if one of them has it. Anybody else who has it is
// passed over; stranger is called with the number of the process.
func (l *lock) lockEarlier(path string, stranger func(pid int)) error {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	pid, err := filelock.TryEarlier(file)
	var held *filelock.HeldError
	switch {
	case errors.As(err, &held):
		err = fmt.Errorf("%s is %w: process %d, an earlier Daybook, works on it", path, ErrBusy, held.PID)
	case pid != 0:
		stranger(pid)
	}
	if err != nil {
		return errors.Join(err, file.Close())
	}
	l.earlier = file
	return nil
}

// lock locks the registry, by a file that only its owner can open. Earlier
// versions locked the directory.
func (r Registry) lock(ctx context.Context) (*filelock.Lock, error) {
	patient, cancel := context.WithTimeout(ctx, lockPatience)
	defer cancel()
	l, err := filelock.Await(patient, func() (*filelock.Lock, error) { return filelock.TakeBoth(r.file()+".lock", r.dir()) })
	if patient.Err() != nil && l == nil {
		err = fmt.Errorf("%s is %w: another daybook works on it: %w", r.file(), ErrBusy, err)
	}
	return l, noSpace(err)
}
