package mountpoint

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/volume/internal/cause"
)

// ErrUnprotected is wrapped, with the reason, if a mount point cannot have the flag.
var ErrUnprotected = errors.New("the mount point cannot be protected")

// immutableFlag is FS_IMMUTABLE_FL of include/uapi/linux/fs.h.
const immutableFlag = 0x10

// CheckEmpty refuses a directory that has entries. The error wraps cause.ErrInvalid.
func CheckEmpty(dir *os.File) error {
	names, err := dir.Readdirnames(1)
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err != nil {
		return err
	}
	return fmt.Errorf("%w mount point %s: it is not empty: it holds %q; move that elsewhere", cause.ErrInvalid, dir.Name(), names[0])
}

// SetImmutable sets or clears the flag; changed is false if that was the state before.
// The error wraps ErrUnprotected if the file system or the kernel refuses.
func SetImmutable(dir *os.File, on bool) (changed bool, err error) {
	if on {
		if err := checkLasting(dir); err != nil {
			return false, err
		}
	}
	flags, err := unix.IoctlGetUint32(int(dir.Fd()), unix.FS_IOC_GETFLAGS)
	if err != nil {
		return false, fmt.Errorf("%w: its file system has no immutable flag: %w", ErrUnprotected, err)
	}
	if flags&immutableFlag != 0 == on {
		return false, nil
	}
	if err := unix.IoctlSetPointerInt(int(dir.Fd()), unix.FS_IOC_SETFLAGS, int(int32(flags^immutableFlag))); err != nil {
		return false, fmt.Errorf("%w: cannot change the immutable flag of %s (needs CAP_LINUX_IMMUTABLE): %w", ErrUnprotected, dir.Name(), err)
	}
	return true, nil
}

// checkLasting refuses a directory in memory, which is missing after the next boot.
func checkLasting(dir *os.File) error {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(dir.Fd()), &st); err != nil {
		return err
	}
	switch int64(st.Type) {
	case unix.TMPFS_MAGIC, unix.RAMFS_MAGIC:
		return fmt.Errorf("%w: it is in memory, and missing after a reboot until the volume is attached", ErrUnprotected)
	}
	return nil
}

// IsImmutable says whether a directory has the flag.
func IsImmutable(dir *os.File) bool {
	flags, err := unix.IoctlGetUint32(int(dir.Fd()), unix.FS_IOC_GETFLAGS)
	return err == nil && flags&immutableFlag != 0
}

// Inode returns the inode number of a directory and the time of its creation, in
// nanoseconds since 1970; 0 if the file system does not have that. Together they identify
// a directory also after the numbers of disks have changed.
func Inode(file *os.File) (number uint64, birth int64, err error) {
	var st unix.Statx_t
	err = unix.Statx(int(file.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_INO|unix.STATX_BTIME, &st)
	if st.Mask&unix.STATX_BTIME != 0 {
		birth = st.Btime.Sec*1e9 + int64(st.Btime.Nsec)
	}
	return st.Ino, birth, err
}
