package blockdev

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// ErrNoDirectIO means that a backing file does not support direct I/O.
var ErrNoDirectIO = errors.New("no direct I/O")

// AttachOptions configure [Attach]. The zero value is a writable, buffered
// device with 512-byte blocks.
type AttachOptions struct {
	// DirectIO bypasses the page cache of the backing file, so that data is
	// cached once and I/O reaches the backing file as it was issued. Attach
	// fails with ErrNoDirectIO if the file does not support it.
	DirectIO bool
	// ReadOnly makes a read-only device.
	ReadOnly bool
	// BlockSizeBytes is the logical block size, 512 to 4096; 0 is 512.
	BlockSizeBytes uint32
	// Label is returned by [Loop.Status], so that a program recognizes its own
	// devices; at most 63 bytes. "" means the path of the file.
	Label string
	// Before is called with the free device before the file is attached to it, which
	// changes attributes of its queue ("rotational"). It is called again with the next
	// device if another program uses the first one meanwhile.
	Before func(free Disk)

	// without LOOP_CONFIGURE, as kernels before 5.8; for tests.
	stepwise bool
}

const (
	loopControl = "/dev/loop-control"
	// attachAttempts limits the race with other programs that use the same free
	// number; each lost race costs one attempt.
	attachAttempts = 100
	loopNameBytes  = 64
)

// Attach attaches a file to a free loop device.
func Attach(file string, options AttachOptions) (Loop, error) {
	loop, err := attach(file, options)
	if err != nil {
		return Loop{}, fmt.Errorf("cannot attach %s to a loop device: %w", file, err)
	}
	return loop, nil
}

func attach(file string, options AttachOptions) (Loop, error) {
	switch options.BlockSizeBytes {
	case 0, 512, 1024, 2048, 4096:
	default:
		return Loop{}, fmt.Errorf("block size %d: want 512, 1024, 2048 or 4096", options.BlockSizeBytes)
	}
	if len(options.Label) >= loopNameBytes {
		return Loop{}, fmt.Errorf("label %q: want at most %d bytes", options.Label, loopNameBytes-1)
	}
	file, err := filepath.Abs(file)
	if err != nil {
		return Loop{}, err
	}
	backing, err := openBacking(file, options.ReadOnly)
	if err != nil {
		return Loop{}, err
	}
	defer func() { _ = backing.Close() }()
	var st unix.Stat_t
	if err := unix.Fstat(int(backing.Fd()), &st); err != nil {
		return Loop{}, err
	}
	control, err := os.OpenFile(loopControl, os.O_RDWR, 0)
	if err != nil {
		return Loop{}, err
	}
	defer func() { _ = control.Close() }()

	for range attachAttempts {
		number, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return Loop{}, fmt.Errorf("no free loop device: %w", err)
		}
		loop := Loop{
			Disk: Disk{Name: fmt.Sprintf("loop%d", number), tree: Host},
			File: file, inode: st.Ino, fileSystem: st.Dev,
		}
		if options.Before != nil {
			options.Before(loop.Disk)
		}
		err = loop.configure(int(backing.Fd()), options)
		if errors.Is(err, unix.EBUSY) || errors.Is(err, unix.ENOENT) {
			// Another program was faster, or the device node does not exist
			// yet.
			time.Sleep(time.Millisecond)
			continue
		}
		if err != nil {
			return Loop{}, err
		}
		if err := loop.verify(options); err != nil {
			return Loop{}, errors.Join(err, loop.DetachLazily())
		}
		disk, err := Host.lookupName(loop.Name)
		if err != nil {
			return Loop{}, errors.Join(err, loop.DetachLazily())
		}
		loop.Disk = disk
		if err := loop.forgetPartitions(); err != nil {
			return Loop{}, errors.Join(err, loop.DetachLazily())
		}
		return loop, nil
	}
	return Loop{}, fmt.Errorf("lost the race for a free number %d times", attachAttempts)
}

func (l Loop) configure(backing int, options AttachOptions) error {
	mode := unix.O_RDWR
	if options.ReadOnly {
		mode = unix.O_RDONLY
	}
	fd, err := unix.Open(l.Node(), mode|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("%s: %w", l.Node(), err)
	}
	defer func() { _ = unix.Close(fd) }()

	info := unix.LoopInfo64{}
	label := options.Label
	if label == "" {
		label = l.File
	}
	copy(info.File_name[:loopNameBytes-1], label)
	if options.ReadOnly {
		info.Flags |= unix.LO_FLAGS_READ_ONLY
	}
	if !options.stepwise {
		config := unix.LoopConfig{Fd: uint32(backing), Size: max(options.BlockSizeBytes, 512), Info: info}
		if options.DirectIO {
			config.Info.Flags |= unix.LO_FLAGS_DIRECT_IO
		}
		err := unix.IoctlLoopConfigure(fd, &config)
		// Kernels before 5.8 do not know LOOP_CONFIGURE.
		if !errors.Is(err, unix.ENOTTY) && !errors.Is(err, unix.EINVAL) {
			return wrapIoctl("LOOP_CONFIGURE", err)
		}
	}
	if err := unix.IoctlSetInt(fd, unix.LOOP_SET_FD, backing); err != nil {
		return wrapIoctl("LOOP_SET_FD", err)
	}
	err = wrapIoctl("LOOP_SET_STATUS64", unix.IoctlLoopSetStatus64(fd, &info))
	if err == nil && options.BlockSizeBytes > 512 {
		err = wrapIoctl("LOOP_SET_BLOCK_SIZE", unix.IoctlSetInt(fd, unix.LOOP_SET_BLOCK_SIZE, int(options.BlockSizeBytes)))
	}
	if err == nil && options.DirectIO {
		err = wrapIoctl("LOOP_SET_DIRECT_IO", unix.IoctlSetInt(fd, unix.LOOP_SET_DIRECT_IO, 1))
		if errors.Is(err, unix.EINVAL) {
			err = fmt.Errorf("%w: %w", ErrNoDirectIO, err)
		}
	}
	if err != nil {
		_ = unix.IoctlSetInt(fd, unix.LOOP_CLR_FD, 0)
	}
	return err
}

// verify is needed because LOOP_CONFIGURE falls back to buffered I/O without an
// error.
func (l Loop) verify(options AttachOptions) error {
	if !options.DirectIO {
		return nil
	}
	direct, err := l.DirectIO()
	if err != nil {
		return err
	}
	if !direct {
		return fmt.Errorf("%w: the kernel fell back to buffered I/O on %s; is the file on a file system with O_DIRECT, and its block size at most %d bytes?",
			ErrNoDirectIO, l.Name, max(options.BlockSizeBytes, 512))
	}
	// Kernels before 5.8 use the block size of the backing disk.
	blocks, err := l.Queue("logical_block_size")
	if err != nil {
		return err
	}
	if options.BlockSizeBytes != 0 && blocks != strconv.FormatUint(uint64(options.BlockSizeBytes), 10) {
		return fmt.Errorf("%w with blocks of %d bytes on %s: the underlying disk has %s", ErrNoDirectIO, options.BlockSizeBytes, l.Name, blocks)
	}
	return nil
}

func wrapIoctl(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", name, err)
}
