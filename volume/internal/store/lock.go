package store

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
	"github.com/daybook-project/daybook/volume/internal/cause"
)

// Lock is a held flock of a directory that other users cannot open. The kernel
// drops it with the last descriptor, by whatever death.
type Lock struct {
	File *os.File
	// earlier is a directory that is locked, too; nil if there is none.
	earlier *os.File
}

// Release lets others have it; nil is none.
func (l *Lock) Release() {
	if l == nil {
		return
	}
	if l.earlier != nil {
		_ = l.earlier.Close()
	}
	_ = l.File.Close()
}

// LockDirectory locks a directory of Daybook's own without waiting; the error
// wraps cause.ErrBusy if another has it, and fs.ErrNotExist if there is none. Who may
// open a directory may lock it: so others are kept from opening it.
func LockDirectory(path string) (*Lock, error) {
	for {
		file, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			return nil, err
		}
		if err := errors.Join(closeToOthers(file), TryFlock(file)); err != nil {
			_ = file.Close()
			if errors.Is(err, cause.ErrBusy) {
				return nil, fmt.Errorf("%s is %w: another daybook works on it", path, cause.ErrBusy)
			}
			return nil, err
		}
		// It may have been renamed or removed before we had the lock.
		opened, err1 := file.Stat()
		named, err2 := os.Stat(path)
		if err1 == nil && err2 == nil && os.SameFile(opened, named) {
			return &Lock{File: file}, nil
		}
		_ = file.Close()
	}
}

// closeToOthers takes away from others what they need to open a directory. One
// that they could have written into is refused.
func closeToOthers(directory *os.File) error {
	info, err := directory.Stat()
	if err == nil {
		err = CheckTrusted(directory.Name(), info)
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

// TryFlock locks an open file without waiting; the error wraps cause.ErrBusy if another
// has it.
func TryFlock(file *os.File) error {
	err := filelock.TryLock(file)
	var held *filelock.HeldError
	if errors.As(err, &held) {
		return cause.ErrBusy
	}
	return err
}

// HeldByTaker says whether a living process took a directory's lock. Otherwise it
// is held by what a dead one had started, which is about to close it or die.
func HeldByTaker(path string) bool {
	directory, err := os.Open(path)
	if err != nil {
		return false // its maker has just ended it
	}
	defer func() { _ = directory.Close() }()
	return len(filelock.Takers(directory)) > 0
}

// LockPatience is how long a command waits for another on the same volume.
const LockPatience = 10 * time.Second

// AwaitLock waits a while for whoever has the lock of a directory.
func AwaitLock(ctx context.Context, path string) (*Lock, error) {
	return AwaitLockUntil(ctx, path, time.Now().Add(LockPatience))
}

func AwaitLockUntil(ctx context.Context, path string, deadline time.Time) (*Lock, error) {
	return awaitUntil(ctx, deadline, func() (*Lock, error) { return LockDirectory(path) })
}

func awaitUntil(ctx context.Context, deadline time.Time, try func() (*Lock, error)) (*Lock, error) {
	for {
		l, err := try()
		if !errors.Is(err, cause.ErrBusy) || time.Now().After(deadline) {
			return l, err
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(err, ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Lock locks the whole pool: its quota, and what is in its work directory. The
// Lock is that directory's. The pool's own directory may be an administrator's,
// open to everybody; earlier versions locked that, so it is locked as well.
func (p Pool) Lock(ctx context.Context) (*Lock, error) {
	work := filepath.Join(p.Dir, WorkDir)
	return awaitUntil(ctx, time.Now().Add(LockPatience), func() (*Lock, error) {
		l, err := LockDirectory(work)
		if errors.Is(err, fs.ErrNotExist) {
			if err := os.Mkdir(work, 0o711); err != nil && !errors.Is(err, fs.ErrExist) {
				return nil, cause.NoSpace(err)
			}
			l, err = LockDirectory(work)
		}
		if err != nil {
			return nil, err
		}
		if err := l.lockEarlier(p.Dir, p.Stranger); err != nil {
			l.Release()
			return nil, err
		}
		return l, nil
	})
}

// lockEarlier locks a directory that others can open, as earlier versions did.
// The error wraps cause.ErrBusy if one of them has it. Anybody else who has it is
// passed over; stranger is called with the number of the process.
func (l *Lock) lockEarlier(path string, stranger func(pid int)) error {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	pid, err := filelock.TryEarlier(file)
	var held *filelock.HeldError
	switch {
	case errors.As(err, &held):
		err = fmt.Errorf("%s is %w: process %d, an earlier Daybook, works on it", path, cause.ErrBusy, held.PID)
	case pid != 0:
		stranger(pid)
	}
	if err != nil {
		return errors.Join(err, file.Close())
	}
	l.earlier = file
	return nil
}
