package calibrate

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/journal"
)

// workload is how one operation is measured.
type workload struct {
	// prepare makes what the call needs; nil if nothing. It is not measured.
	prepare func(path string) error
	// call is measured.
	call func(path string) error
	// settle is done on all files after the calls, one step after the
	// other, and belongs to what is measured.
	settle []func(path string) error
}

// workloads that give the figures of Table 1 on a file system such as the
// paper's. 1000 inodes of 256 bytes are 63 blocks, and a transaction has a
// descriptor and a commit block, so no row can be under 260 KiB; what is
// above tells what the paper's calls did: truncate (261.2) changed nothing but
// the inode; write (268.0) also a block bitmap and a group descriptor, so it
// gave each of 1000 empty files its first block.
var workloads = map[string]workload{
	journal.OperationMkdir:     {call: makeDirectory},
	journal.OperationCreat:     {call: makeFile},
	journal.OperationMknod:     {call: func(path string) error { return unix.Mknod(path, unix.S_IFIFO|0o600, 0) }},
	journal.OperationTruncate:  {prepare: makeFile, call: func(path string) error { return unix.Truncate(path, fileBytes) }},
	journal.OperationUnlink:    {prepare: makeFile, call: unix.Unlink},
	journal.OperationWrite:     {prepare: makeFile, call: writeFile, settle: []func(string) error{beginWriteback, awaitWriteback}},
	journal.OperationRmdir:     {prepare: makeDirectory, call: unix.Rmdir},
	journal.OperationRename:    {prepare: makeFile, call: func(path string) error { return unix.Rename(path, path+"b") }},
	journal.OperationLink:      {prepare: makeFile, call: func(path string) error { return unix.Link(path, path+"b") }},
	journal.OperationSymlink:   {call: func(path string) error { return unix.Symlink("somewhere", path) }},
	journal.OperationSetxattr:  {prepare: makeFile, call: func(path string) error { return unix.Setxattr(path, "trusted.daybook", []byte("calibration"), 0) }},
	journal.OperationChmod:     {prepare: makeFile, call: func(path string) error { return unix.Chmod(path, 0o640) }},
	journal.OperationFallocate: {prepare: makeFile, call: allocate},
}

const fileBytes = 4096

func makeDirectory(path string) error { return unix.Mkdir(path, 0o700) }

func makeFile(path string) error {
	return withFile(path, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY, func(int) error { return nil })
}

func writeFile(path string) error {
	return withFile(path, unix.O_WRONLY, func(fd int) error {
		_, err := unix.Pwrite(fd, make([]byte, fileBytes), 0)
		return err
	})
}

// Data is written, and its blocks are allocated, before the sync that ends a
// run: syncfs begins a commit amid its own writeback and ends with another, so
// that some blocks would be logged twice, now more of them and now fewer.
func beginWriteback(path string) error { return syncRange(path, unix.SYNC_FILE_RANGE_WRITE) }

func awaitWriteback(path string) error { return syncRange(path, unix.SYNC_FILE_RANGE_WAIT_AFTER) }

func syncRange(path string, flags int) error {
	return withFile(path, unix.O_WRONLY, func(fd int) error { return unix.SyncFileRange(fd, 0, 0, flags) })
}

func allocate(path string) error {
	return withFile(path, unix.O_WRONLY, func(fd int) error { return unix.Fallocate(fd, 0, 0, fileBytes) })
}

// withFile opens without changing anything but what the flags say.
func withFile(path string, flags int, work func(fd int) error) error {
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(work(fd), unix.Close(fd))
}

// repeat makes the call on each of the files in dir.
func repeat(ctx context.Context, dir string, calls int, call func(path string) error) error {
	for i := range calls {
		if err := ctx.Err(); err != nil {
			return err
		}
		path := fmt.Sprintf("%s/%06d", dir, i)
		if err := call(path); err != nil {
			return fmt.Errorf("on %s: %w", path, err)
		}
	}
	return nil
}
