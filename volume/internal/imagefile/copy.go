package imagefile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/volume/internal/cause"
	"github.com/daybook-project/daybook/volume/internal/chunk"
)

// Images are copied chunk by chunk with direct I/O, because loop devices use it, too, and
// because a copy must not evict the page cache of other programs.
const (
	// copyWorkers read at the same time, to keep the disk busy.
	copyWorkers = 4
	// holeBytes is the least that is left out of a copy if it is zero.
	holeBytes = 64 << 10
)

// OpenDirect opens an image for direct I/O, if the file system supports it.
func OpenDirect(path string, flags int) (*os.File, error) {
	file, err := os.OpenFile(path, flags|unix.O_DIRECT, 0)
	if errors.Is(err, unix.EINVAL) {
		file, err = os.OpenFile(path, flags, 0)
	}
	return file, err
}

// Reader reads an image's chunks, in ascending order. It is for one goroutine.
type Reader struct {
	file      *os.File
	SizeBytes uint64
	piece     []byte
	// holeFrom to dataAt there are no blocks.
	holeFrom, dataAt uint64
}

func NewReader(path string, sizeBytes uint64) (*Reader, error) {
	file, err := OpenDirect(path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	// Also of a block device.
	length, err := file.Seek(0, io.SeekEnd)
	if err == nil && uint64(length) < sizeBytes {
		err = fmt.Errorf("%s is %w: %d bytes long, want %d", path, cause.ErrCorrupt, length, sizeBytes)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &Reader{file: file, SizeBytes: sizeBytes, piece: chunk.Aligned(chunk.Bytes)}, nil
}

func (r *Reader) Close() error { return r.file.Close() }

// Part returns the chunk of that index; nil if it has no blocks. It is valid
// until the next call.
func (r *Reader) Part(index int) ([]byte, error) {
	at := uint64(index) * chunk.Bytes
	piece := r.piece[:min(chunk.Bytes, r.SizeBytes-at)]
	if at < r.holeFrom || at >= r.dataAt {
		if err := r.seekData(at); err != nil {
			return nil, err
		}
	}
	if at+uint64(len(piece)) <= r.dataAt {
		return nil, nil
	}
	n, err := r.file.ReadAt(piece, int64(at))
	if n < len(piece) {
		if err == nil || errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, fmt.Errorf("%s at byte %d: %w", r.file.Name(), at, err)
	}
	return piece, nil
}

func (r *Reader) seekData(at uint64) error {
	data, err := unix.Seek(int(r.file.Fd()), int64(at), unix.SEEK_DATA)
	switch {
	case errors.Is(err, unix.ENXIO):
		data = math.MaxInt64 // nothing more
	case errors.Is(err, unix.EINVAL):
		data = int64(at) // the file system does not report holes
	case err != nil:
		return fmt.Errorf("%s: %w", r.file.Name(), err)
	}
	r.holeFrom, r.dataAt = at, uint64(data)
	return nil
}

// put writes piece to a chunk of an image; fresh says that the chunk reads as zeros.
// Zeros get no blocks, or lose them.
func put(file *os.File, index int, piece []byte, fresh bool) error {
	base := int64(index) * chunk.Bytes
	for from := 0; from < len(piece); {
		zero := chunk.IsZero(piece[from:min(from+holeBytes, len(piece))])
		to := min(from+holeBytes, len(piece))
		for to < len(piece) && chunk.IsZero(piece[to:min(to+holeBytes, len(piece))]) == zero {
			to = min(to+holeBytes, len(piece))
		}
		var err error
		switch at := base + int64(from); {
		case !zero:
			_, err = file.WriteAt(piece[from:to], at)
		case !fresh:
			err = ClearRange(file, at, int64(to-from))
		}
		if err != nil {
			return cause.NoSpace(err)
		}
		from = to
	}
	return nil
}

// ClearRange makes a range of an image zero, without blocks if the file
// system supports holes.
func ClearRange(file *os.File, at, length int64) error {
	err := unix.Fallocate(int(file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, at, length)
	if !errors.Is(err, unix.EOPNOTSUPP) {
		return err
	}
	for end := at + length; at < end; {
		n, err := file.WriteAt(chunk.Zeros[:min(end-at, chunk.Bytes)], at)
		if err != nil {
			return err
		}
		at += int64(n)
	}
	return nil
}

// Copied describes the content of an image at its last copy.
type Copied struct {
	Sums []chunk.Sum
	// ChangedBytes were different in the last copy, or new.
	ChangedBytes uint64
}

// Copy copies source to the image target. before is the result of the last copy; without
// one, target must read as zeros. Only chunks that differ are written.
func Copy(ctx context.Context, source, target string, sizeBytes uint64, before *Copied, progress Progress) (*Copied, error) {
	out, err := OpenDirect(target, os.O_WRONLY)
	if err != nil {
		return nil, err
	}
	defer func() { _ = out.Close() }()
	now := &Copied{Sums: make([]chunk.Sum, chunk.Count(sizeBytes))}
	var changed atomic.Uint64
	err = eachChunk(ctx, source, sizeBytes, progress, func(index int, part []byte) error {
		length := min(chunk.Bytes, sizeBytes-uint64(index)*chunk.Bytes)
		if part != nil {
			now.Sums[index] = chunk.SumOf(part)
		}
		var was chunk.Sum
		if before != nil {
			was = before.Sums[index]
		}
		if now.Sums[index] == was {
			return nil
		}
		changed.Add(length)
		if part == nil {
			part = chunk.Zeros[:length]
		}
		return put(out, index, part, was == chunk.Sum{})
	})
	now.ChangedBytes = changed.Load()
	return now, err
}

// CopyOver copies source over a file or block device with any content. It writes all
// chunks, and clears those of zeros.
func CopyOver(ctx context.Context, source, target string, sizeBytes uint64, progress Progress) error {
	out, err := OpenDirect(target, os.O_WRONLY)
	if err != nil {
		return err
	}
	err = eachChunk(ctx, source, sizeBytes, progress, func(index int, part []byte) error {
		if part == nil {
			part = chunk.Zeros[:min(chunk.Bytes, sizeBytes-uint64(index)*chunk.Bytes)]
		}
		return put(out, index, part, false)
	})
	if err == nil {
		err = cause.NoSpace(out.Sync())
	}
	return errors.Join(err, out.Close())
}

// Sums returns the checksums of an image.
func Sums(ctx context.Context, path string, sizeBytes uint64, progress Progress) ([]chunk.Sum, error) {
	sums := make([]chunk.Sum, chunk.Count(sizeBytes))
	err := eachChunk(ctx, path, sizeBytes, progress, func(index int, part []byte) error {
		if part != nil {
			sums[index] = chunk.SumOf(part)
		}
		return nil
	})
	return sums, err
}

// eachChunk reads an image with several workers and calls do once for each chunk, in any
// order. A chunk without blocks is nil.
func eachChunk(ctx context.Context, path string, sizeBytes uint64, progress Progress, do func(index int, part []byte) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var (
		next  atomic.Int64
		group sync.WaitGroup
		mu    sync.Mutex // of done and progress
		done  uint64
	)
	chunks := chunk.Count(sizeBytes)
	work := func() (err error) {
		r, err := NewReader(path, sizeBytes)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, r.Close()) }()
		for {
			index := int(next.Add(1)) - 1
			if index >= chunks {
				return nil
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			part, err := r.Part(index)
			if err == nil {
				err = do(index, part)
			}
			if err != nil {
				return err
			}
			mu.Lock()
			done += min(chunk.Bytes, sizeBytes-uint64(index)*chunk.Bytes)
			progress.Report(done, sizeBytes)
			mu.Unlock()
		}
	}
	for range min(copyWorkers, chunks) {
		group.Go(func() {
			if err := work(); err != nil {
				cancel(err)
			}
		})
	}
	group.Wait()
	return context.Cause(ctx)
}

// Reflink makes target share source's blocks. It returns false if the file system does not
// support that; then nothing has changed.
func Reflink(source, target string, sizeBytes uint64) (can bool, err error) {
	in, err := os.Open(source)
	if err != nil {
		return false, err
	}
	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(target, os.O_WRONLY, 0)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	err = unix.IoctlFileClone(int(out.Fd()), int(in.Fd()))
	switch {
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOTTY), errors.Is(err, unix.EXDEV), errors.Is(err, unix.EINVAL):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("cannot reflink %s: %w", source, cause.NoSpace(err))
	}
	return true, cause.NoSpace(unix.Ftruncate(int(out.Fd()), int64(sizeBytes)))
}

// CopyStill copies an image that is not written meanwhile, by reflink if the file
// system has that.
func CopyStill(ctx context.Context, source, target string, sizeBytes uint64, progress Progress) (reflinked bool, err error) {
	can, err := Reflink(source, target, sizeBytes)
	if err != nil {
		return false, err
	}
	if can {
		progress.Report(sizeBytes, sizeBytes)
		return true, nil
	}
	_, err = Copy(ctx, source, target, sizeBytes, nil, progress)
	return false, err
}
