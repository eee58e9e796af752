package ublk

import (
	"encoding/binary"
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The commands of the driver (include/uapi/linux/ublk_cmd.h).
const (
	addDevice     = 0x04
	deleteDevice  = 0x05
	startDevice   = 0x06
	stopDevice    = 0x07
	setParameters = 0x08

	fetchRequest          = 0x20
	commitAndFetchRequest = 0x21

	controlBytes   = 32  // struct ublksrv_ctrl_cmd
	infoBytes      = 64  // struct ublksrv_ctrl_dev_info
	settingsBytes  = 112 // struct ublk_params
	ioCommandBytes = 16  // struct ublksrv_io_cmd
	requestBytes   = 24  // struct ublksrv_io_desc

	basicSettings = 1 // UBLK_PARAM_TYPE_BASIC
	volatileCache = 4 // UBLK_ATTR_VOLATILE_CACHE: the device needs flushes
	forcedWrites  = 8 // UBLK_ATTR_FUA

	anyDevice = 1<<32 - 1
	noQueue   = 1<<16 - 1
)

// code is a command's number as an ioctl that reads and writes an argument of that size.
func code(command byte, bytes uint32) uint32 { return 3<<30 | bytes<<16 | 'u'<<8 | uint32(command) }

// A device has one queue: one thread then does all its I/O.
const (
	depth       = 64
	bufferBytes = 512 << 10
	sectorShift = 9
	pageShift   = 12
)

// control sends commands to the driver. It is for one thread.
type control struct {
	file *os.File
	ring *ring
	// argument is memory outside of Go's heap, whose address the kernel gets.
	argument []byte
	device   uint32
}

func openControl() (*control, error) {
	file, err := os.OpenFile("/dev/ublk-control", os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("want Linux with the module ublk_drv: %w", err)
	}
	r, err := newRing(4, true)
	if err != nil {
		return nil, err
	}
	memory, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	return &control{file, r, memory, anyDevice}, err
}

// command sends one command, with the argument's first bytes and a number.
func (c *control) command(command byte, bytes uint16, data uint64) error {
	result, err := c.ring.do(opCommand, int(c.file.Fd()), func(entry []byte) {
		binary.NativeEndian.PutUint32(entry[8:], code(command, controlBytes))
		body := entry[commandAt:]
		binary.NativeEndian.PutUint32(body, c.device)
		binary.NativeEndian.PutUint16(body[4:], noQueue)
		binary.NativeEndian.PutUint16(body[6:], bytes)
		if bytes > 0 {
			binary.NativeEndian.PutUint64(body[8:], uint64(uintptr(unsafe.Pointer(&c.argument[0]))))
		}
		binary.NativeEndian.PutUint64(body[16:], data)
	})
	if err == nil && result < 0 {
		err = syscall.Errno(-result)
	}
	if err != nil {
		return fmt.Errorf("command %#x of ublk: %w", command, err)
	}
	return nil
}

// add makes a device without a disk yet.
func (c *control) add() error {
	clear(c.argument)
	binary.NativeEndian.PutUint16(c.argument, 1) // one queue
	binary.NativeEndian.PutUint16(c.argument[2:], depth)
	binary.NativeEndian.PutUint32(c.argument[8:], bufferBytes)
	binary.NativeEndian.PutUint32(c.argument[12:], anyDevice)
	if err := c.command(addDevice, infoBytes, 0); err != nil {
		return err
	}
	c.device = binary.NativeEndian.Uint32(c.argument[12:])
	return nil
}

// set describes the disk.
func (c *control) set(bytes uint64) error {
	clear(c.argument)
	binary.NativeEndian.PutUint32(c.argument, settingsBytes)
	binary.NativeEndian.PutUint32(c.argument[4:], basicSettings)
	binary.NativeEndian.PutUint32(c.argument[8:], volatileCache|forcedWrites)
	copy(c.argument[12:], []byte{sectorShift, pageShift, pageShift, pageShift}) // logical and physical block, optimal and least I/O
	binary.NativeEndian.PutUint32(c.argument[16:], bufferBytes>>sectorShift)
	binary.NativeEndian.PutUint64(c.argument[24:], bytes>>sectorShift)
	return c.command(setParameters, settingsBytes, 0)
}

// start makes the disk appear. The queue must be served meanwhile.
func (c *control) start() error { return c.command(startDevice, 0, uint64(os.Getpid())) }

// node is the path of the disk.
func (c *control) node() string { return fmt.Sprintf("/dev/ublkb%d", c.device) }
