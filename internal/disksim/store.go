package disksim

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/filelock"
)

// store contains the disk's bytes: a memory file, or a sparse file on the host.
// Both are files, so that unwritten ranges need neither memory nor blocks, and
// discarded ranges are freed.
type store struct {
	file *os.File
}

// openStore opens the backing file, or memory if path is empty. An existing
// file must have the disk's size: it is the disk of an earlier time.
func openStore(path string, sizeBytes uint64) (*store, error) {
	var file *os.File
	if path == "" {
		fd, err := unix.MemfdCreate("daybook-disk", unix.MFD_CLOEXEC)
		if err != nil {
			return nil, fmt.Errorf("cannot make a memory file: %w", err)
		}
		file = os.NewFile(uintptr(fd), "daybook-disk")
	} else {
		var err error
		file, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, fmt.Errorf("cannot open the disk's file: %w", err)
		}
	}
	s := &store{file: file}
	if err := s.size(sizeBytes); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return s, nil
}

func (s *store) size(sizeBytes uint64) error {
	info, err := s.file.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", s.file.Name())
	}
	// The kernel releases the lock of a server that was killed. Some network file systems have
	// no locks.
	var held *filelock.HeldError
	if errors.As(filelock.TryLock(s.file), &held) {
		return fmt.Errorf("another disk has its data in %s: name another file", s.file.Name())
	}
	if have := uint64(info.Size()); have != 0 && have != sizeBytes {
		return fmt.Errorf("%s has %d bytes and the disk %d: name the same size, or another file", s.file.Name(), have, sizeBytes)
	}
	if err := s.file.Truncate(int64(sizeBytes)); err != nil {
		return fmt.Errorf("cannot make %s %d bytes long: %w", s.file.Name(), sizeBytes, err)
	}
	return nil
}

// zero makes the range read as zeros and frees its space.
func (s *store) zero(offset, length uint64) error {
	return unix.Fallocate(int(s.file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(offset), int64(length))
}

// usedBytes is the memory or disk space that the data use.
func (s *store) usedBytes() uint64 {
	var st unix.Stat_t
	if err := unix.Fstat(int(s.file.Fd()), &st); err != nil {
		return 0
	}
	return uint64(st.Blocks) * 512
}
