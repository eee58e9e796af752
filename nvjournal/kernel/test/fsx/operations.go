package fsx

import (
	"fmt"
	"io"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

func (x *exerciser) read() (string, error) {
	offset, length := x.extent(x.size())
	what := fmt.Sprintf("read %d bytes at %d", length, offset)
	got := make([]byte, length)
	if n, err := x.file.ReadAt(got, offset); n != len(got) {
		return what, fmt.Errorf("%d of %d bytes at %d: %w", n, length, offset, err)
	}
	return what, x.compare(got, offset)
}

func (x *exerciser) write() (string, error) {
	offset, length := x.extent(x.Bytes)
	return x.writeAt("write", offset, length)
}

func (x *exerciser) append() (string, error) {
	length := min(1+x.random.Int64N(20<<10), x.Bytes-x.size())
	return x.writeAt("append", x.size(), length)
}

func (x *exerciser) writeAt(how string, offset, length int64) (string, error) {
	what := fmt.Sprintf("%s %d bytes at %d", how, length, offset)
	b := x.fill(length)
	if n, err := x.file.WriteAt(b, offset); err != nil {
		return what, fmt.Errorf("%d of %d bytes: %w", n, length, err)
	}
	x.grow(offset + length)
	copy(x.model[offset:], b)
	return what, nil
}

// mapped maps the pages around an extent, and returns the extent in them.
func (x *exerciser) mapped(offset, length int64, protection int) (pages, extent []byte, err error) {
	start := offset - offset%int64(os.Getpagesize())
	pages, err = unix.Mmap(int(x.file.Fd()), start, int(offset-start+length), protection, unix.MAP_SHARED)
	if err != nil {
		return nil, nil, fmt.Errorf("mmap: %w", err)
	}
	return pages, pages[offset-start:], nil
}

func (x *exerciser) readMapped() (string, error) {
	offset, length := x.extent(x.size())
	if length == 0 {
		return "", nil
	}
	what := fmt.Sprintf("mapped read of %d bytes at %d", length, offset)
	pages, extent, err := x.mapped(offset, length, unix.PROT_READ)
	if err != nil {
		return what, err
	}
	err = x.compare(extent, offset)
	if unmap := unix.Munmap(pages); err == nil {
		err = unmap
	}
	return what, err
}

func (x *exerciser) writeMapped() (string, error) {
	offset, length := x.extent(x.size())
	if length == 0 {
		return "", nil
	}
	what := fmt.Sprintf("mapped write of %d bytes at %d", length, offset)
	pages, extent, err := x.mapped(offset, length, unix.PROT_READ|unix.PROT_WRITE)
	if err != nil {
		return what, err
	}
	copy(extent, x.fill(length))
	copy(x.model[offset:], extent)
	if x.random.IntN(3) == 0 {
		err = unix.Msync(pages, unix.MS_SYNC)
	}
	if unmap := unix.Munmap(pages); err == nil {
		err = unmap
	}
	return what, err
}

// aligned returns memory for O_DIRECT.
func aligned(length int64) []byte {
	const alignment = 4096
	b := make([]byte, length+alignment)
	skip := (alignment - int(uintptr(unsafe.Pointer(&b[0]))%alignment)) % alignment
	return b[skip : int64(skip)+length]
}

// blocks picks whole blocks below a size; length 0: there are none.
func (x *exerciser) blocks(below int64) (offset, length int64) {
	count := below / x.BlockBytes
	if count == 0 {
		return 0, 0
	}
	first := x.random.Int64N(count)
	return first * x.BlockBytes, (1 + x.random.Int64N(min(count-first, 12))) * x.BlockBytes
}

func (x *exerciser) writeDirect() (string, error) {
	offset, length := x.blocks(x.Bytes)
	if x.direct == nil || length == 0 {
		return "", nil
	}
	what := fmt.Sprintf("direct write of %d bytes at %d", length, offset)
	b := aligned(length)
	copy(b, x.fill(length))
	if n, err := x.direct.WriteAt(b, offset); err != nil {
		return what, fmt.Errorf("%d of %d bytes: %w", n, length, err)
	}
	x.grow(offset + length)
	copy(x.model[offset:], b)
	return what, nil
}

func (x *exerciser) readDirect() (string, error) {
	offset, length := x.blocks(x.size())
	if x.direct == nil || length == 0 {
		return "", nil
	}
	what := fmt.Sprintf("direct read of %d bytes at %d", length, offset)
	b := aligned(length)
	if n, err := x.direct.ReadAt(b, offset); int64(n) != length && err != io.EOF {
		return what, fmt.Errorf("%d of %d bytes: %w", n, length, err)
	}
	return what, x.compare(b, offset)
}

func (x *exerciser) truncate() (string, error) {
	size := x.random.Int64N(x.Bytes)
	if x.random.IntN(8) == 0 {
		size = 0
	}
	what := fmt.Sprintf("truncate from %d to %d", x.size(), size)
	if err := x.file.Truncate(size); err != nil {
		return what, err
	}
	x.grow(size)
	x.model = x.model[:size:size]
	return what, nil
}

// fallocate calls it on an extent; false if the file system does not support it.
func (x *exerciser) fallocate(mode uint32, offset, length int64) (bool, error) {
	err := unix.Fallocate(int(x.file.Fd()), mode, offset, length)
	if unsupported(err) {
		return false, nil
	}
	return err == nil, err
}

func (x *exerciser) punch() (string, error) {
	offset, length := x.extent(x.size())
	if length == 0 {
		return "", nil
	}
	what := fmt.Sprintf("punch %d bytes at %d", length, offset)
	done, err := x.fallocate(unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, offset, length)
	if done {
		clear(x.model[offset : offset+length])
	}
	return what, err
}

func (x *exerciser) zero() (string, error) {
	offset, length := x.extent(x.Bytes)
	mode, keep := uint32(unix.FALLOC_FL_ZERO_RANGE), x.random.IntN(2) == 0
	if keep {
		mode |= unix.FALLOC_FL_KEEP_SIZE
	}
	what := fmt.Sprintf("zero %d bytes at %d, keep the size: %t", length, offset, keep)
	done, err := x.fallocate(mode, offset, length)
	if done {
		if !keep {
			x.grow(offset + length)
		}
		if offset < x.size() {
			clear(x.model[offset:min(offset+length, x.size())])
		}
	}
	return what, err
}

func (x *exerciser) allocate() (string, error) {
	offset, length := x.extent(x.Bytes)
	mode, keep := uint32(0), x.random.IntN(2) == 0
	if keep {
		mode = unix.FALLOC_FL_KEEP_SIZE
	}
	what := fmt.Sprintf("allocate %d bytes at %d, keep the size: %t", length, offset, keep)
	done, err := x.fallocate(mode, offset, length)
	if done && !keep {
		x.grow(offset + length)
	}
	return what, err
}

func (x *exerciser) collapse() (string, error) {
	offset, length := x.blocks(x.size())
	// It must end before the end of the file.
	if x.NoShift || length == 0 || offset+length >= x.size() {
		return "", nil
	}
	what := fmt.Sprintf("collapse %d bytes at %d", length, offset)
	done, err := x.fallocate(unix.FALLOC_FL_COLLAPSE_RANGE, offset, length)
	if done {
		x.model = append(x.model[:offset:offset], x.model[offset+length:]...)
	}
	return what, err
}

func (x *exerciser) insert() (string, error) {
	offset, length := x.blocks(x.size())
	if x.NoShift || length == 0 || x.size()+length > x.Bytes {
		return "", nil
	}
	what := fmt.Sprintf("insert %d bytes at %d", length, offset)
	done, err := x.fallocate(unix.FALLOC_FL_INSERT_RANGE, offset, length)
	if done {
		rest := append(make([]byte, length), x.model[offset:]...)
		x.model = append(x.model[:offset:offset], rest...)
	}
	return what, err
}

func (x *exerciser) sync() (string, error) { return "fsync", x.file.Sync() }

// dropCache writes the pages and drops them, so that the next read is from the
// disk.
func (x *exerciser) dropCache() (string, error) {
	if err := x.file.Sync(); err != nil {
		return "drop the cache", err
	}
	return "drop the cache", unix.Fadvise(int(x.file.Fd()), 0, 0, unix.FADV_DONTNEED)
}

// reopen opens and closes the file a second time: closing frees what was allocated
// in advance.
func (x *exerciser) reopen() (string, error) {
	file, err := os.OpenFile(x.path, os.O_RDWR, 0)
	if err != nil {
		return "open and close", err
	}
	return "open and close", file.Close()
}
