package cache

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// lock takes a file's lock. The kernel releases it when all processes that have
// the file open have ended or closed it. waiting is called once if another
// process holds the lock.
func lock(ctx context.Context, path string, waiting func()) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	const pause = 100 * time.Millisecond
	for told := false; ; {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return file, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			file.Close()
			return nil, &os.PathError{Op: "lock", Path: path, Err: err}
		}
		if !told {
			waiting()
			told = true
		}
		select {
		case <-ctx.Done():
			file.Close()
			return nil, context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}
