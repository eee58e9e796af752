// Package imagefile makes image files, sparse or with all their blocks, and reads and
// copies them with direct I/O.
package imagefile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/volume/internal/cause"
	"github.com/daybook-project/daybook/volume/internal/chunk"
)

// Progress reports the progress of a long operation, in bytes; it may be nil.
type Progress func(doneBytes, totalBytes uint64)

// Report calls it; without a function it does nothing.
func (p Progress) Report(done, total uint64) {
	if p != nil {
		p(done, total)
	}
}

// MakeSparse makes an image without blocks.
func MakeSparse(path string, sizeBytes uint64) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return cause.NoSpace(err)
	}
	err = unix.Ftruncate(int(file.Fd()), int64(sizeBytes))
	if errors.Is(err, unix.EFBIG) {
		err = fmt.Errorf("the pool's file system has no files of %d bytes: %w", sizeBytes, cause.ErrUnsupported)
	}
	return errors.Join(cause.NoSpace(err), file.Close())
}

// pieceBytes is how much is written at once; a whole number of blocks.
const pieceBytes = 4 << 20

// WriteOut allocates all blocks of an image from that byte on, a whole number of
// blocks, and writes each of them once with its present content. The first write to a
// block that is only allocated converts its extent, which the pool's journal records.
func WriteOut(ctx context.Context, path string, from int64, progress Progress) error {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	size := info.Size()
	// Allocated first, so that it fails at once if the pool is too small.
	if err := Allocate(path, from); err != nil {
		return err
	}
	// With direct I/O if the file system supports it, so as not to evict the page
	// cache of other programs.
	out, err := os.OpenFile(path, os.O_WRONLY|unix.O_DIRECT, 0)
	if errors.Is(err, unix.EINVAL) {
		out, err = os.OpenFile(path, os.O_WRONLY, 0)
	}
	if err != nil {
		return err
	}
	defer func() { _ = out.Close() }()
	piece, err := unix.Mmap(-1, 0, pieceBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Munmap(piece) }()
	for at := from; at < size; {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := file.ReadAt(piece[:min(pieceBytes, size-at)], at)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if n == 0 {
			return io.ErrUnexpectedEOF
		}
		if _, err := out.WriteAt(piece[:n], at); err != nil {
			return cause.NoSpace(err)
		}
		at += int64(n)
		progress.Report(uint64(at-from), uint64(size-from))
	}
	return cause.NoSpace(out.Sync())
}

// Allocate allocates all blocks of an image from that byte on, and does not change its
// content.
func Allocate(path string, from int64) error {
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	err = unix.Fallocate(int(file.Fd()), 0, from, info.Size()-from)
	if err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("cannot allocate %d bytes: %w", info.Size()-from, cause.NoSpace(err))
	}
	return nil
}

// DirectSectorBytes is the smallest direct I/O on an image now, or
// least if that is more. In a file that shares blocks with a snapshot or clone, XFS
// accepts no less than a block.
func DirectSectorBytes(image string, least uint32) uint32 {
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, image, 0, unix.STATX_DIOALIGN, &st); err != nil {
		return least // an attach reports the error
	}
	return withinSector(st, least)
}

func withinSector(st unix.Statx_t, least uint32) uint32 {
	if st.Mask&unix.STATX_DIOALIGN == 0 || st.Dio_offset_align > chunk.UnitBytes {
		return least
	}
	return max(st.Dio_offset_align, least)
}

// SharedSectorBytes is the future DirectSectorBytes of the images in a directory when they
// share blocks, if it is at most most; else 0. A volume that has such sectors from the
// beginning keeps them after its first snapshot.
func SharedSectorBytes(dir string, most uint32) uint32 {
	var fds [2]int
	for i := range fds {
		fd, err := unix.Open(dir, unix.O_RDWR|unix.O_TMPFILE|unix.O_CLOEXEC, 0o600)
		if err != nil {
			return 0
		}
		defer func() { _ = unix.Close(fd) }()
		fds[i] = fd
	}
	if _, err := unix.Write(fds[0], make([]byte, 64<<10)); err != nil {
		return 0
	}
	if err := unix.IoctlFileClone(fds[1], fds[0]); err != nil {
		return 0 // no reflinks
	}
	var st unix.Statx_t
	if err := unix.Statx(fds[1], "", unix.AT_EMPTY_PATH, unix.STATX_DIOALIGN, &st); err != nil {
		return 0
	}
	if sector := withinSector(st, 0); sector <= most {
		return sector
	}
	return 0
}

// Sync writes a file or device to disk.
func Sync(path string) error {
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return errors.Join(cause.NoSpace(file.Sync()), file.Close())
}
