package filelock

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/trusted"
)

// Holder says whether a process holds the lock at path, and which one; pid is 0 if that is
// unknown. It makes, writes and removes no file. If no process holds the lock, it takes a shared
// lock for a moment; [Take] waits for that. The error is that of a file which cannot be read, or
// which Take would reject.
func Holder(path string) (pid int, held bool, err error) {
	for {
		file, err := trusted.PrivateFile.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			return 0, false, nil
		}
		if err != nil {
			return 0, false, fmt.Errorf("cannot ask for the holder of a lock: %w", unusable(path, err))
		}
		pid, held, err := holder(file)
		named := isNamed(file, path)
		_ = file.Close()
		if err != nil || named {
			return pid, held, err
		}
	}
}

func holder(file *os.File) (pid int, held bool, err error) {
	shared, err := tryShared(file)
	if shared || err != nil {
		return 0, false, err
	}
	return writtenPID(file), true, nil
}

// tryShared takes a shared lock of an open file, as others that only ask do. It is false if a
// process holds the exclusive lock.
func tryShared(file *os.File) (bool, error) {
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_SH|unix.LOCK_NB)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, unix.EWOULDBLOCK):
			return false, nil
		case !errors.Is(err, unix.EINTR):
			return false, fmt.Errorf("cannot ask for the holder of %s: %w", file.Name(), err)
		}
	}
}

// isNamed says that path still names an open file. A holder removes its file: a lock on a
// removed file excludes no process.
func isNamed(file *os.File, path string) bool {
	opened, err1 := file.Stat()
	named, err2 := os.Lstat(path)
	return err1 == nil && err2 == nil && os.SameFile(opened, named)
}
