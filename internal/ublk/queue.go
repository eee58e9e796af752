package ublk

import (
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The operations of a request (UBLK_IO_OP_) and its flags.
const (
	requestRead  = 0
	requestWrite = 1
	requestFlush = 2

	requestForced = 1 << 13 // UBLK_IO_F_FUA
)

// queue serves the requests of a device from an image.
type queue struct {
	device, image *os.File
	ring          *ring
	requests      []byte // filled in by the driver, one for each tag
	buffers       []byte // one for each tag
	left          int    // tags that the driver has not ended
}

// A completion is that of the driver's command or of the image's I/O, by this bit of its
// mark. The rest is the tag.
const ofImage = 1 << 16

// serve answers requests until the device is removed. fetched is closed once the driver
// has all tags. It is for a goroutine of its own: the driver accepts commands only from
// the thread that sent the first ones.
func (q *queue) serve(fetched chan<- struct{}) (err error) {
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	// A write of this thread must not wait for memory that only a write frees.
	_ = unix.Prctl(unix.PR_SET_IO_FLUSHER, 1, 0, 0, 0)
	if q.ring, err = newRing(2*depth, false); err != nil {
		return err
	}
	defer q.ring.close()
	page := os.Getpagesize()
	if q.requests, err = unix.Mmap(int(q.device.Fd()), 0, (depth*requestBytes+page-1)/page*page, unix.PROT_READ, unix.MAP_SHARED|unix.MAP_POPULATE); err != nil {
		return fmt.Errorf("cannot map the requests of %s: %w", q.device.Name(), err)
	}
	defer func() { _ = unix.Munmap(q.requests) }()
	if q.buffers, err = unix.Mmap(-1, 0, depth*bufferBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE); err != nil {
		return err
	}
	defer func() { _ = unix.Munmap(q.buffers) }()
	for tag := range depth {
		if err := q.fetch(fetchRequest, tag, 0); err != nil {
			return err
		}
	}
	if _, err := q.ring.submit(0); err != nil {
		return err
	}
	close(fetched)
	for q.left = depth; q.left > 0; {
		if _, err := q.ring.submit(1); err != nil {
			return err
		}
		if err := q.ring.completions(q.complete); err != nil {
			return err
		}
	}
	return nil
}

// fetch gives a tag to the driver, with the result of its last request.
func (q *queue) fetch(command byte, tag int, result int32) error {
	entry, err := q.ring.entry(opCommand, int(q.device.Fd()), uint64(tag))
	if err != nil {
		return err
	}
	binary.NativeEndian.PutUint32(entry[8:], code(command, ioCommandBytes))
	body := entry[commandAt:]
	binary.NativeEndian.PutUint16(body[2:], uint16(tag))
	binary.NativeEndian.PutUint32(body[4:], uint32(result))
	binary.NativeEndian.PutUint64(body[8:], uint64(uintptr(unsafe.Pointer(&q.buffers[tag*bufferBytes]))))
	return nil
}

// complete handles one completion.
func (q *queue) complete(mark uint64, result int32) error {
	tag := int(mark &^ ofImage)
	if mark&ofImage != 0 {
		return q.fetch(commitAndFetchRequest, tag, result)
	}
	switch {
	case result == 0:
		return q.request(tag)
	case result == -int32(unix.ENODEV): // the device is being removed
		q.left--
		return nil
	}
	return fmt.Errorf("the driver refuses tag %d of %s: %w", tag, q.device.Name(), unix.Errno(-result))
}

// request starts the image's I/O for the request of a tag.
func (q *queue) request(tag int) error {
	request := q.requests[tag*requestBytes:][:requestBytes]
	what, sectors, start := binary.NativeEndian.Uint32(request), binary.NativeEndian.Uint32(request[4:]), binary.NativeEndian.Uint64(request[8:])
	operation := byte(opWrite)
	switch what & 0xff {
	case requestRead:
		operation = opRead
	case requestWrite:
	case requestFlush:
		operation = opFsync
	default:
		return q.fetch(commitAndFetchRequest, tag, -int32(unix.EOPNOTSUPP))
	}
	entry, err := q.ring.entry(operation, int(q.image.Fd()), uint64(tag)|ofImage)
	if err != nil {
		return err
	}
	if operation == opFsync {
		binary.NativeEndian.PutUint32(entry[28:], fsyncDataOnly)
		return nil
	}
	binary.NativeEndian.PutUint64(entry[8:], start<<sectorShift)
	binary.NativeEndian.PutUint64(entry[16:], uint64(uintptr(unsafe.Pointer(&q.buffers[tag*bufferBytes]))))
	binary.NativeEndian.PutUint32(entry[24:], sectors<<sectorShift)
	if operation == opWrite && what&requestForced != 0 {
		binary.NativeEndian.PutUint32(entry[28:], unix.RWF_DSYNC)
	}
	return nil
}
