package vm

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// tempFile makes a file without a name in dir. The kernel deletes it when the last
// process that has it open ends.
func tempFile(dir string) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err == nil {
		return os.NewFile(uintptr(fd), filepath.Join(dir, "(without a name)")), nil
	}
	if !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.EISDIR) {
		return nil, &os.PathError{Op: "make a temporary file in", Path: dir, Err: err}
	}
	// A file system without such files.
	file, err := os.CreateTemp(dir, ".vm-*")
	if err != nil {
		return nil, err
	}
	return file, os.Remove(file.Name())
}

// backing opens the file that keeps the content of a disk or of persistent
// memory. A kept one is locked, because two guests would destroy it.
func backing(dir, path string, size int64) (*os.File, error) {
	if path == "" {
		file, err := tempFile(dir)
		if err != nil {
			return nil, err
		}
		if err := file.Truncate(size); err != nil {
			file.Close()
			return nil, err
		}
		return file, nil
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NONBLOCK, 0o644)
	if err != nil {
		return nil, err
	}
	if err := fitBacking(file, size); err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}

func fitBacking(file *os.File, size int64) error {
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			return fmt.Errorf("%s is in use by another guest", file.Name())
		}
		return &fs.PathError{Op: "lock", Path: file.Name(), Err: err}
	}
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", file.Name())
	}
	if info.Size() == 0 {
		return file.Truncate(size)
	}
	if info.Size() != size {
		return fmt.Errorf("%s has %d bytes, not %d: name its size, or another file", file.Name(), info.Size(), size)
	}
	return nil
}

// socketPair makes two connected sockets.
func socketPair() (ours, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	// Not blocking, so that closing ours ends a read of it.
	if err := unix.SetNonblock(fds[0], true); err != nil {
		return nil, nil, err
	}
	return os.NewFile(uintptr(fds[0]), "guest"), os.NewFile(uintptr(fds[1]), "host"), nil
}
