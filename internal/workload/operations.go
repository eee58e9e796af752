package workload

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// The operations. The names of the first group are those of package journal,
// which counts these calls; the first seven are Table 1's of paper 1.
const (
	Mkdir     = "mkdir"
	Creat     = "creat"
	Mknod     = "mknod"
	Truncate  = "truncate"
	Unlink    = "unlink"
	Write     = "write" // with its blocks allocated by the caller
	Rmdir     = "rmdir"
	Rename    = "rename"
	Link      = "link"
	Symlink   = "symlink"
	Setxattr  = "setxattr"
	Chmod     = "chmod"
	Fallocate = "fallocate"

	CreatUnlink   = "creat+unlink"   // the file is gone again after each call
	Append        = "append"         // 4 KiB to one file
	AppendFsync   = "append+fsync"   // 4 KiB to one file, then fsync
	BufferedWrite = "buffered write" // 4 KiB to a file each, left to writeback
	DirectWrite   = "direct write"   // 64 KiB past the page cache
	DirectRead    = "direct read"    // 64 KiB past the page cache
	LargeTruncate = "large truncate" // of one file with Count extents
	Untar         = "untar"          // of Count small files, by tar
)

var operations = map[string]operation{
	Mkdir:     each{call: makeDirectory},
	Creat:     each{call: makeFile},
	Mknod:     each{call: func(path string) error { return unix.Mknod(path, unix.S_IFIFO|0o600, 0) }},
	Truncate:  each{make: makeFile, call: func(path string) error { return unix.Truncate(path, FileBytes) }},
	Unlink:    each{make: makeFile, call: unix.Unlink},
	Write:     each{make: makeFile, call: writeFile, finish: []func(string) error{beginWriteback, awaitWriteback}},
	Rmdir:     each{make: makeDirectory, call: unix.Rmdir},
	Rename:    each{make: makeFile, call: func(path string) error { return unix.Rename(path, path+"b") }},
	Link:      each{make: makeFile, call: func(path string) error { return unix.Link(path, path+"b") }},
	Symlink:   each{call: func(path string) error { return unix.Symlink("somewhere", path) }},
	Setxattr:  each{make: makeFile, call: setAttribute},
	Chmod:     each{make: makeFile, call: func(path string) error { return unix.Chmod(path, 0o640) }},
	Fallocate: each{make: makeFile, call: allocate},

	CreatUnlink:   each{call: makeAndUnlink},
	BufferedWrite: each{make: makeFile, call: writeFile},
	Append:        appending{},
	AppendFsync:   appending{sync: true},
	DirectWrite:   direct{write: true},
	DirectRead:    direct{},
	LargeTruncate: largeTruncate{},
	Untar:         untar{},
}

// FileBytes is a block: what truncate, write and fallocate give a file.
const FileBytes = 4096

// each makes one call on each of Count paths.
//
// The calls give the figures of Table 1 on a file system like the paper's. 1000
// inodes of 256 bytes are 63 blocks, and a transaction has a descriptor and a
// commit block, so no row can be below 260 KiB. The excess shows what the paper's
// calls did: truncate (261.2) changed only the inode; write (268.0) also changed a
// block bitmap and a group descriptor, so it allocated the first block of 1000
// empty files.
type each struct {
	// make makes the files that the call needs; nil if none.
	make func(path string) error
	call func(path string) error
	// finish is done on all paths after the calls, one step after the
	// other, and is measured with them.
	finish []func(path string) error
}

func (e each) prepare(ctx context.Context, job Job) error {
	if e.make == nil {
		return nil
	}
	return onAll(ctx, paths(job), e.make)
}

func (e each) load(job Job) (func(context.Context) error, func() error, error) {
	all := paths(job)
	return func(ctx context.Context) error {
		err := onAll(ctx, all, e.call)
		for _, step := range e.finish {
			if err == nil {
				err = onAll(ctx, all, step)
			}
		}
		return err
	}, nil, nil
}

func paths(job Job) []string {
	all := make([]string, job.Count)
	for i := range all {
		all[i] = fmt.Sprintf("%s/%06d", job.In, i)
	}
	return all
}

func onAll(ctx context.Context, paths []string, call func(path string) error) error {
	for _, path := range paths {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := timed(ctx, func() error { return call(path) }); err != nil {
			return fmt.Errorf("on %s: %w", path, err)
		}
	}
	return nil
}

func makeDirectory(path string) error { return unix.Mkdir(path, 0o700) }

func makeFile(path string) error {
	return withFile(path, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY, func(int) error { return nil })
}

func makeAndUnlink(path string) error {
	if err := makeFile(path); err != nil {
		return err
	}
	return unix.Unlink(path)
}

var block = make([]byte, FileBytes)

func writeFile(path string) error {
	return withFile(path, unix.O_WRONLY, func(fd int) error {
		_, err := unix.Pwrite(fd, block, 0)
		return err
	})
}

// Data is written, and its blocks are allocated, before the sync that ends a
// measurement. Otherwise syncfs would start a commit during its writeback and end
// with another, so that a varying number of blocks would be logged twice.
func beginWriteback(path string) error { return syncRange(path, unix.SYNC_FILE_RANGE_WRITE) }

func awaitWriteback(path string) error { return syncRange(path, unix.SYNC_FILE_RANGE_WAIT_AFTER) }

func syncRange(path string, flags int) error {
	return withFile(path, unix.O_WRONLY, func(fd int) error { return unix.SyncFileRange(fd, 0, 0, flags) })
}

func setAttribute(path string) error {
	return unix.Setxattr(path, "trusted.daybook", []byte("calibration"), 0)
}

func allocate(path string) error {
	return withFile(path, unix.O_WRONLY, func(fd int) error { return unix.Fallocate(fd, 0, 0, FileBytes) })
}

// withFile opens without changing anything but what the flags say.
func withFile(path string, flags int, work func(fd int) error) error {
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(work(fd), unix.Close(fd))
}
