package ublk

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The interface of io_uring (include/uapi/linux/io_uring.h).
const (
	setupEntriesOf128 = 1 << 10 // IORING_SETUP_SQE128: entries have room for 80 bytes of a command
	featureSingleMap  = 1       // IORING_FEAT_SINGLE_MMAP
	enterGetEvents    = 1       // IORING_ENTER_GETEVENTS
	offsetEntries     = 0x10000000

	opFsync   = 3
	opRead    = 22
	opWrite   = 23
	opCommand = 46 // IORING_OP_URING_CMD

	fsyncDataOnly = 1 // IORING_FSYNC_DATASYNC

	parameterBytes  = 120
	completionBytes = 16
	commandAt       = 48 // where the command of opCommand begins in an entry
)

// ring is an io_uring, for one thread.
type ring struct {
	fd                         int
	queues, entries            []byte
	head, tail, mask, array    uint32 // of submissions, as offsets into queues
	doneHead, doneTail, doneAt uint32 // of completions
	doneMask                   uint32
	entryBytes                 uint32
	pending                    uint32 // filled in, not submitted yet
}

// newRing makes a ring with room for that many submissions. wide entries have room for
// commands of more than 16 bytes.
func newRing(depth uint32, wide bool) (r *ring, err error) {
	parameters := make([]byte, parameterBytes)
	r = &ring{entryBytes: 64}
	if wide {
		binary.NativeEndian.PutUint32(parameters[8:], setupEntriesOf128)
		r.entryBytes = 128
	}
	fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, uintptr(depth), uintptr(unsafe.Pointer(&parameters[0])), 0)
	if errno != 0 {
		return nil, fmt.Errorf("io_uring_setup: %w", errno)
	}
	r.fd = int(fd)
	defer func() {
		if err != nil {
			r.close()
		}
	}()
	field := func(at int) uint32 { return binary.NativeEndian.Uint32(parameters[at:]) }
	if field(20)&featureSingleMap == 0 {
		return nil, fmt.Errorf("io_uring of this kernel has two maps: %w", unix.EOPNOTSUPP)
	}
	// struct io_sqring_offsets is at 40, struct io_cqring_offsets at 80.
	submissions, completions := field(0), field(4)
	r.head, r.tail, r.array = field(40), field(44), field(64)
	r.doneHead, r.doneTail, r.doneAt = field(80), field(84), field(100)
	bytes := max(r.array+4*submissions, r.doneAt+completionBytes*completions)
	if r.queues, err = unix.Mmap(r.fd, 0, int(bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE); err != nil {
		return nil, fmt.Errorf("cannot map the queues of io_uring: %w", err)
	}
	if r.entries, err = unix.Mmap(r.fd, offsetEntries, int(submissions*r.entryBytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE); err != nil {
		return nil, fmt.Errorf("cannot map the entries of io_uring: %w", err)
	}
	r.mask, r.doneMask = *r.at(field(48)), *r.at(field(88))
	return r, nil
}

// at is a number in the queues, which the kernel changes.
func (r *ring) at(offset uint32) *uint32 { return (*uint32)(unsafe.Pointer(&r.queues[offset])) }

// entry returns the next free entry, cleared, with its operation, file and mark. It
// submits what is pending if there is none.
func (r *ring) entry(operation byte, fd int, mark uint64) ([]byte, error) {
	tail := *r.at(r.tail)
	if tail-atomic.LoadUint32(r.at(r.head)) > r.mask {
		if _, err := r.submit(0); err != nil {
			return nil, err
		}
	}
	index := tail & r.mask
	entry := r.entries[index*r.entryBytes:][:r.entryBytes]
	clear(entry)
	entry[0] = operation
	binary.NativeEndian.PutUint32(entry[4:], uint32(fd))
	binary.NativeEndian.PutUint64(entry[32:], mark)
	*r.at(r.array + 4*index) = index
	atomic.StoreUint32(r.at(r.tail), tail+1)
	r.pending++
	return entry, nil
}

// submit gives the kernel what is pending, and waits for this number of completions.
func (r *ring) submit(wait uint32) (submitted uint32, err error) {
	for {
		n, _, errno := unix.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(r.fd), uintptr(r.pending), uintptr(wait), enterGetEvents, 0, 0)
		switch errno {
		case 0:
			r.pending -= uint32(n)
			return uint32(n), nil
		case syscall.EINTR, syscall.EAGAIN:
			continue
		}
		return 0, fmt.Errorf("io_uring_enter: %w", errno)
	}
}

// completions calls a function with the mark and the result of each completion.
func (r *ring) completions(each func(mark uint64, result int32) error) error {
	for head := *r.at(r.doneHead); head != atomic.LoadUint32(r.at(r.doneTail)); {
		done := r.queues[r.doneAt+completionBytes*(head&r.doneMask):]
		mark, result := binary.NativeEndian.Uint64(done), int32(binary.NativeEndian.Uint32(done[8:]))
		head++
		atomic.StoreUint32(r.at(r.doneHead), head)
		if err := each(mark, result); err != nil {
			return err
		}
	}
	return nil
}

// do submits one entry, which fill completes, and returns its result.
func (r *ring) do(operation byte, fd int, fill func(entry []byte)) (result int32, err error) {
	entry, err := r.entry(operation, fd, 0)
	if err != nil {
		return 0, err
	}
	fill(entry)
	if _, err := r.submit(1); err != nil {
		return 0, err
	}
	return result, r.completions(func(_ uint64, n int32) error { result = n; return nil })
}

func (r *ring) close() {
	if r.entries != nil {
		_ = unix.Munmap(r.entries)
	}
	if r.queues != nil {
		_ = unix.Munmap(r.queues)
	}
	_ = unix.Close(r.fd)
}
