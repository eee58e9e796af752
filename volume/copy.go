package volume

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Images are copied, compared and sent chunk by chunk, around the page cache: a
// loop device with direct I/O writes around it, too, and a copy of all volumes
// must not push everybody's pages out.
const (
	chunkBytes = 1 << 20
	// copyWorkers read at the same time, to keep a disk busy.
	copyWorkers = 4
	// holeBytes is the least that is left out of a copy if it is zero.
	holeBytes = 64 << 10
)

// sum is a chunk's SHA-256; the zero value stands for a chunk of zeros, whether
// or not it has blocks.
type sum [sha256.Size]byte

func sumOf(chunk []byte) sum {
	if isZero(chunk) {
		return sum{}
	}
	return sha256.Sum256(chunk)
}

var zeros = aligned(chunkBytes)

// aligned gives memory that direct I/O takes: at a page's beginning.
func aligned(bytes int) []byte {
	const page = 4096
	b := make([]byte, bytes+page)
	off := int(-uintptr(unsafe.Pointer(unsafe.SliceData(b))) & (page - 1))
	return b[off : off+bytes : off+bytes]
}

func isZero(b []byte) bool {
	for len(b) > 0 {
		n := min(len(b), len(zeros))
		if !bytes.Equal(b[:n], zeros[:n]) {
			return false
		}
		b = b[n:]
	}
	return true
}

// imageSum is what an image of that size holds: the SHA-256 of its size in
// bytes (little endian) and of its chunks' sums.
func imageSum(sizeBytes uint64, sums []sum) sum {
	h := sha256.New()
	_, _ = h.Write(binary.LittleEndian.AppendUint64(nil, sizeBytes)) // never fails
	for i := range sums {
		_, _ = h.Write(sums[i][:])
	}
	return sum(h.Sum(nil))
}

func chunksOf(sizeBytes uint64) int { return int((sizeBytes + chunkBytes - 1) / chunkBytes) }

// openDirect opens an image around the page cache, where the file system can.
func openDirect(path string, flags int) (*os.File, error) {
	file, err := os.OpenFile(path, flags|unix.O_DIRECT, 0)
	if errors.Is(err, unix.EINVAL) {
		file, err = os.OpenFile(path, flags, 0)
	}
	return file, err
}

// reader reads an image's chunks, in ascending order. It is for one goroutine.
type reader struct {
	file      *os.File
	sizeBytes uint64
	piece     []byte
	// holeFrom to dataAt there are no blocks.
	holeFrom, dataAt uint64
}

func newReader(path string, sizeBytes uint64) (*reader, error) {
	file, err := openDirect(path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && uint64(info.Size()) < sizeBytes {
		err = fmt.Errorf("%s is %w: %d bytes long, want %d", path, ErrCorrupt, info.Size(), sizeBytes)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &reader{file: file, sizeBytes: sizeBytes, piece: aligned(chunkBytes)}, nil
}

func (r *reader) close() error { return r.file.Close() }

// chunk gives the chunk of that index; nil if it has no blocks. It is valid
// until the next call.
func (r *reader) chunk(index int) ([]byte, error) {
	at := uint64(index) * chunkBytes
	piece := r.piece[:min(chunkBytes, r.sizeBytes-at)]
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

func (r *reader) seekData(at uint64) error {
	data, err := unix.Seek(int(r.file.Fd()), int64(at), unix.SEEK_DATA)
	switch {
	case errors.Is(err, unix.ENXIO):
		data = math.MaxInt64 // nothing more
	case errors.Is(err, unix.EINVAL):
		data = int64(at) // the file system does not know
	case err != nil:
		return fmt.Errorf("%s: %w", r.file.Name(), err)
	}
	r.holeFrom, r.dataAt = at, uint64(data)
	return nil
}

// put makes a chunk of an image be what piece holds; fresh says that nothing is
// there yet. What is zero gets no blocks, or loses them.
func put(file *os.File, index int, piece []byte, fresh bool) error {
	base := int64(index) * chunkBytes
	for from := 0; from < len(piece); {
		zero := isZero(piece[from:min(from+holeBytes, len(piece))])
		to := min(from+holeBytes, len(piece))
		for to < len(piece) && isZero(piece[to:min(to+holeBytes, len(piece))]) == zero {
			to = min(to+holeBytes, len(piece))
		}
		var err error
		switch at := base + int64(from); {
		case !zero:
			_, err = file.WriteAt(piece[from:to], at)
		case !fresh:
			err = clearRange(file, at, int64(to-from))
		}
		if err != nil {
			return noSpace(err)
		}
		from = to
	}
	return nil
}

// clearRange makes a range of an image zero, without blocks where the file
// system can.
func clearRange(file *os.File, at, length int64) error {
	err := unix.Fallocate(int(file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, at, length)
	if !errors.Is(err, unix.EOPNOTSUPP) {
		return err
	}
	for end := at + length; at < end; {
		n, err := file.WriteAt(zeros[:min(end-at, chunkBytes)], at)
		if err != nil {
			return err
		}
		at += int64(n)
	}
	return nil
}

// copied is what an image holds by the last copy from it.
type copied struct {
	sums []sum
	// changedBytes were different in the last copy, or new.
	changedBytes uint64
}

// copyImage brings the image target to what source holds. before is what the
// last copy found; without one target must read as zeros. Only chunks that
// differ are written.
func copyImage(ctx context.Context, source, target string, sizeBytes uint64, before *copied, progress Progress) (*copied, error) {
	out, err := openDirect(target, os.O_WRONLY)
	if err != nil {
		return nil, err
	}
	defer func() { _ = out.Close() }()
	now := &copied{sums: make([]sum, chunksOf(sizeBytes))}
	var changed atomic.Uint64
	err = eachChunk(ctx, source, sizeBytes, progress, func(index int, chunk []byte) error {
		length := min(chunkBytes, sizeBytes-uint64(index)*chunkBytes)
		if chunk != nil {
			now.sums[index] = sumOf(chunk)
		}
		var was sum
		if before != nil {
			was = before.sums[index]
		}
		if now.sums[index] == was {
			return nil
		}
		changed.Add(length)
		if chunk == nil {
			chunk = zeros[:length]
		}
		return put(out, index, chunk, was == sum{})
	})
	now.changedBytes = changed.Load()
	return now, err
}

// sumImage finds out what an image holds.
func sumImage(ctx context.Context, path string, sizeBytes uint64, progress Progress) ([]sum, error) {
	sums := make([]sum, chunksOf(sizeBytes))
	err := eachChunk(ctx, path, sizeBytes, progress, func(index int, chunk []byte) error {
		if chunk != nil {
			sums[index] = sumOf(chunk)
		}
		return nil
	})
	return sums, err
}

// eachChunk reads an image with several workers and gives each chunk once, nil
// if it has no blocks, in no certain order.
func eachChunk(ctx context.Context, path string, sizeBytes uint64, progress Progress, do func(index int, chunk []byte) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var (
		next  atomic.Int64
		group sync.WaitGroup
		mu    sync.Mutex // of done and progress
		done  uint64
	)
	chunks := chunksOf(sizeBytes)
	work := func() (err error) {
		r, err := newReader(path, sizeBytes)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, r.close()) }()
		for {
			index := int(next.Add(1)) - 1
			if index >= chunks {
				return nil
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			chunk, err := r.chunk(index)
			if err == nil {
				err = do(index, chunk)
			}
			if err != nil {
				return err
			}
			mu.Lock()
			done += min(chunkBytes, sizeBytes-uint64(index)*chunkBytes)
			progress.tell(done, sizeBytes)
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

// reflink makes target share source's blocks; it says false if the file system
// cannot, and then nothing has changed.
func reflink(source, target string, sizeBytes uint64) (can bool, err error) {
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
		return false, fmt.Errorf("cannot reflink %s: %w", source, noSpace(err))
	}
	return true, noSpace(unix.Ftruncate(int(out.Fd()), int64(sizeBytes)))
}
