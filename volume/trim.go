package volume

import (
	"context"
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/volume/internal/cause"
)

// Trim returns to the pool the blocks that an attached volume's file system no
// longer uses, and reports their bytes. Blocks that were trimmed before in
// the same mount are not counted again. Errors wrap ErrDetached, ErrBusy if
// something else is mounted over it, and ErrUnsupported for full volumes, which
// keep their blocks, and for pools without holes.
func (p *Pool) Trim(ctx context.Context, name string) (trimmedBytes uint64, err error) {
	if trimmedBytes, err = p.trim(ctx, name); err != nil {
		return trimmedBytes, cause.Failed("cannot trim volume %s: %w", name, err)
	}
	return trimmedBytes, nil
}

func (p *Pool) trim(ctx context.Context, name string) (trimmed uint64, err error) {
	v, err := p.holdReady(ctx, name)
	if err != nil {
		return 0, err
	}
	defer v.release()
	if v.record.Provision == Full {
		return 0, fmt.Errorf("%w: it is full, and a trim would remove the blocks that were allocated at its creation", ErrUnsupported)
	}
	if v.record.Attachment == nil {
		return 0, fmt.Errorf("it is %w: only a mounted file system knows what it does not use; attach it first", ErrDetached)
	}
	if err := v.checkWritable(); err != nil {
		return 0, err
	}
	directory, err := v.openMounted()
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, directory.Close()) }()
	for at := uint64(0); at < v.record.SizeBytes; at += trimBytes {
		if err := ctx.Err(); err != nil {
			return trimmed, err
		}
		bytes, err := trimRange(int(directory.Fd()), at, min(trimBytes, v.record.SizeBytes-at))
		if err != nil {
			return trimmed, err
		}
		trimmed += bytes
	}
	return trimmed, nil
}

// trimBytes is how much is trimmed between two checks of the context. It is whole
// block groups, because ext4 marks only whole ones as trimmed.
const trimBytes = 8 << 30

// fiTrim is FITRIM, include/uapi/linux/fs.h: _IOWR('X', 121, struct
// fstrim_range).
const fiTrim = 0xc0185879

type trimArgument struct{ start, length, least uint64 }

func trimRange(directory int, start, length uint64) (uint64, error) {
	argument := trimArgument{start: start, length: length}
	for {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(directory), fiTrim, uintptr(unsafe.Pointer(&argument)))
		switch errno {
		case 0:
			return argument.length, nil
		case unix.EINTR:
			argument = trimArgument{start: start, length: length}
		case unix.EOPNOTSUPP:
			return 0, fmt.Errorf("%w: its disk takes no discards: the pool's file system makes no holes, or its device cannot", ErrUnsupported)
		default:
			return 0, fmt.Errorf("FITRIM: %w", errno)
		}
	}
}
