package disksim

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// discard calls BLKDISCARD on a range of {offset, length}.
func discard(device *os.File, span [2]uint64) error {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, device.Fd(), unix.BLKDISCARD, uintptr(unsafe.Pointer(&span)))
	if errno != 0 {
		return errno
	}
	return nil
}
