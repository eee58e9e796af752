package blockdev

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// openBacking opens the backing file of a loop device. On XFS, where the kernel
// permits it to root, writes through it do not change the times of the file.
// Otherwise each flush of the device, an fsync of the file, would commit the
// new modification time to the journal of the underlying file system.
func openBacking(path string, readOnly bool) (*os.File, error) {
	mode := os.O_RDWR
	if readOnly {
		mode = os.O_RDONLY
	}
	file, err := os.OpenFile(path, mode, 0)
	if err != nil || readOnly {
		return file, err
	}
	timeless, err := openTimeless(file)
	if err != nil {
		return file, nil // another file system, or not permitted: slower, but correct
	}
	return timeless, file.Close()
}

// handleRequest is struct xfs_fsop_handlereq (fs/xfs/libxfs/xfs_fs.h).
type handleRequest struct {
	fd              uint32
	path            unsafe.Pointer
	flags           uint32
	inHandle        unsafe.Pointer
	inHandleBytes   uint32
	outHandle       unsafe.Pointer
	outHandleLength unsafe.Pointer
}

// XFS_IOC_FD_TO_HANDLE and XFS_IOC_OPEN_BY_HANDLE, _IOWR('X', 106 and 107,
// struct xfs_fsop_handlereq).
const (
	fdToHandle   = 3<<30 | unsafe.Sizeof(handleRequest{})<<16 | 'X'<<8 | 106
	openByHandle = 3<<30 | unsafe.Sizeof(handleRequest{})<<16 | 'X'<<8 | 107
	// maxHandleBytes: struct xfs_handle has 24.
	maxHandleBytes = 64
)

// openTimeless reopens a file of an XFS by its handle: the kernel then sets
// FMODE_NOCMTIME (xfs_open_by_handle, fs/xfs/xfs_handle.c), for programs that
// move files without their users' knowledge.
func openTimeless(file *os.File) (*os.File, error) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(file.Fd()), &st); err != nil {
		return nil, err
	}
	if int64(st.Type) != unix.XFS_SUPER_MAGIC {
		return nil, errors.ErrUnsupported
	}
	handle, length := new([maxHandleBytes]byte), new(uint32)
	of := &handleRequest{fd: uint32(file.Fd()), outHandle: unsafe.Pointer(handle), outHandleLength: unsafe.Pointer(length)}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, file.Fd(), fdToHandle, uintptr(unsafe.Pointer(of))); errno != 0 {
		return nil, fmt.Errorf("XFS_IOC_FD_TO_HANDLE: %w", errno)
	}
	directory, err := os.Open(filepath.Dir(file.Name()))
	if err != nil {
		return nil, err
	}
	defer func() { _ = directory.Close() }()
	by := &handleRequest{flags: unix.O_RDWR | unix.O_LARGEFILE, inHandle: unsafe.Pointer(handle), inHandleBytes: *length}
	// The kernel has no O_CLOEXEC for this call.
	syscall.ForkLock.RLock()
	fd, _, errno := unix.Syscall(unix.SYS_IOCTL, directory.Fd(), openByHandle, uintptr(unsafe.Pointer(by)))
	if errno == 0 {
		unix.CloseOnExec(int(fd))
	}
	syscall.ForkLock.RUnlock()
	runtime.KeepAlive(handle)
	if errno != 0 {
		return nil, fmt.Errorf("XFS_IOC_OPEN_BY_HANDLE: %w", errno)
	}
	return os.NewFile(fd, file.Name()), nil
}
