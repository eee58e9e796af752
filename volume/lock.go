package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// lock is a held flock of a directory. The kernel drops it with the last
// descriptor, by whatever death.
type lock struct{ file *os.File }

func (l *lock) release() {
	if l != nil {
		_ = l.file.Close()
	}
}

// lockDirectory locks a directory without waiting; the error wraps ErrBusy if
// another has it, and fs.ErrNotExist if there is none.
func lockDirectory(path string) (*lock, error) {
	for {
		file, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			return nil, err
		}
		if err := tryFlock(file); err != nil {
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
			return &lock{file}, nil
		}
		_ = file.Close()
	}
}

// tryFlock locks an open file without waiting; the error wraps ErrBusy if another
// has it.
func tryFlock(file *os.File) error {
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, unix.EWOULDBLOCK):
			return ErrBusy
		case !errors.Is(err, unix.EINTR):
			return fmt.Errorf("cannot lock %s: %w", file.Name(), err)
		}
	}
}

// lockPatience is how long a command waits for another on the same volume.
const lockPatience = 10 * time.Second

// awaitLock waits a while for whoever has the lock.
func awaitLock(ctx context.Context, path string) (*lock, error) {
	return awaitLockUntil(ctx, path, time.Now().Add(lockPatience))
}

func awaitLockUntil(ctx context.Context, path string, deadline time.Time) (*lock, error) {
	for {
		l, err := lockDirectory(path)
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
