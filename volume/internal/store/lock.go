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
	"github.com/daybook-project/daybook/internal/trusted"
	"github.com/daybook-project/daybook/volume/internal/cause"
)

// Lock is a held flock of a directory that other users cannot open. The kernel releases it
// with the last descriptor, however the process ends.
type Lock struct {
	File *os.File
	// earlier is a directory that is locked, too; nil if there is none.
	earlier *os.File
}

// Release releases the lock; nil is no lock.
func (l *Lock) Release() {
	if l == nil {
		return
	}
	if l.earlier != nil {
		_ = l.earlier.Close()
	}
	_ = l.File.Close()
}

// LockDirectory locks a directory of Daybook's own without waiting. The error
// wraps cause.ErrBusy if another process has it, and fs.ErrNotExist if there is none. It refuses
// a symbolic link, and a directory that other users could have written into. Every user who may
// open a directory may lock it: so its mode forbids others to open it.
func LockDirectory(path string) (*Lock, error) {
	for {
		file, err := trusted.Directory.Open(path)
		if err != nil {
			return nil, refused(path, err)
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
		named, err2 := os.Lstat(path)
		if err1 == nil && err2 == nil && os.SameFile(opened, named) {
			return &Lock{File: file}, nil
		}
		_ = file.Close()
	}
}

// closeToOthers removes the permissions of other users to open a directory.
func closeToOthers(directory *os.File) error {
	info, err := directory.Stat()
	if err != nil || info.Mode().Perm()&0o066 == 0 {
		return err
	}
	mode := info.Mode() & (os.ModePerm | os.ModeSetgid | os.ModeSticky)
	if err := directory.Chmod(mode &^ 0o066); err != nil {
		return fmt.Errorf("cannot keep other users from locking %s: %w", directory.Name(), err)
	}
	return nil
}

// TryFlock locks an open file without waiting. The error wraps cause.ErrBusy if another
// process has the lock.
func TryFlock(file *os.File) error {
	err := filelock.TryLock(file)
	var held *filelock.HeldError
	if errors.As(err, &held) {
		return cause.ErrBusy
	}
	return err
}

// HeldByTaker says whether a living process took a directory's lock. Otherwise a child of
// a dead process holds it, which is about to close it or to end.
func HeldByTaker(path string) bool {
	directory, err := os.Open(path)
	if err != nil {
		return false // its maker has just finished it
	}
	defer func() { _ = directory.Close() }()
	return len(filelock.Takers(directory)) > 0
}

// LockPatience is how long a command waits for another on the same volume.
const LockPatience = 10 * time.Second

// AwaitLock locks a directory, and waits up to LockPatience for another process.
func AwaitLock(ctx context.Context, path string) (*Lock, error) {
	return AwaitLockUntil(ctx, path, time.Now().Add(LockPatience))
}

// AwaitLockUntil is AwaitLock with a deadline.
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

// Lock locks the whole pool: its quota, and the content of its work directory. It is the
// lock of that directory. Earlier versions locked the pool's own directory, which may be
// open to all users; so that is locked as well.
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
// The error wraps cause.ErrBusy if one of them has it. If another program has it, the lock
// is skipped, and stranger is called with the process ID.
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
