package workload

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"

	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/program"
)

// oneFile is the name of the file of jobs that use a single one.
const oneFile = "file"

func openOne(job Job, flags int) (int, error) {
	path := filepath.Join(job.In, oneFile)
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return -1, fmt.Errorf("cannot open %s: %w", path, err)
	}
	return fd, nil
}

// again makes the same call count times.
func again(count int, call func(i int) error) func(context.Context) error {
	return func(ctx context.Context) error {
		for i := range count {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := timed(ctx, func() error { return call(i) }); err != nil {
				return err
			}
		}
		return nil
	}
}

// appending appends blocks to one file.
type appending struct{ sync bool }

func (appending) prepare(_ context.Context, job Job) error {
	return makeFile(filepath.Join(job.In, oneFile))
}

func (a appending) load(job Job) (func(context.Context) error, func() error, error) {
	fd, err := openOne(job, unix.O_WRONLY|unix.O_APPEND)
	if err != nil {
		return nil, nil, err
	}
	return again(job.Count, func(int) error {
		if _, err := unix.Write(fd, block); err != nil {
			return err
		}
		if !a.sync {
			return nil
		}
		return unix.Fsync(fd)
	}), func() error { return unix.Close(fd) }, nil
}

// direct reads or writes one file from start to end with direct I/O.
type direct struct{ write bool }

const directBytes = 64 << 10

func (direct) prepare(ctx context.Context, job Job) error {
	if err := makeFile(filepath.Join(job.In, oneFile)); err != nil {
		return err
	}
	fd, err := openOne(job, unix.O_WRONLY)
	if err != nil {
		return err
	}
	content := make([]byte, directBytes)
	err = again(job.Count, func(int) error { _, err := unix.Write(fd, content); return err })(ctx)
	return errors.Join(err, unix.Fsync(fd), unix.Close(fd))
}

func (d direct) load(job Job) (func(context.Context) error, func() error, error) {
	// Direct I/O needs an aligned buffer; a mapping is aligned.
	buffer, err := unix.Mmap(-1, 0, directBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot map a buffer of %d bytes: %w", directBytes, err)
	}
	fd, err := openOne(job, unix.O_RDWR|unix.O_DIRECT)
	if err != nil {
		return nil, nil, errors.Join(err, unix.Munmap(buffer))
	}
	transfer := unix.Pread
	if d.write {
		transfer = unix.Pwrite
	}
	return again(job.Count, func(i int) error {
		n, err := transfer(fd, buffer, int64(i)*directBytes)
		if err == nil && n != directBytes {
			err = fmt.Errorf("%d bytes at once, want %d", n, directBytes)
		}
		return err
	}), func() error { return errors.Join(unix.Close(fd), unix.Munmap(buffer)) }, nil
}

// largeTruncate removes all blocks of one file with Count extents. It is a
// single call, but jbd2 restarts its handle when the transaction is full.
type largeTruncate struct{}

// extentPitch leaves a hole after every extent, so that no two join.
const extentPitch = 2 * FileBytes

func (largeTruncate) prepare(ctx context.Context, job Job) error {
	file := filepath.Join(job.In, oneFile)
	if err := makeFile(file); err != nil {
		return err
	}
	return withFile(file, unix.O_WRONLY, func(fd int) error {
		return again(job.Count, func(i int) error { return unix.Fallocate(fd, 0, int64(i)*extentPitch, FileBytes) })(ctx)
	})
}

func (largeTruncate) load(job Job) (func(context.Context) error, func() error, error) {
	fd, err := openOne(job, unix.O_WRONLY)
	if err != nil {
		return nil, nil, err
	}
	return again(1, func(int) error { return unix.Ftruncate(fd, 0) }), func() error { return unix.Close(fd) }, nil
}

// untar extracts an archive that is made in memory with the program tar, which
// also sets owners, modes and times.
type untar struct{}

const filesPerDirectory = 50

func (untar) prepare(context.Context, Job) error { return nil }

func (untar) load(job Job) (func(context.Context) error, func() error, error) {
	archive, err := makeArchive(job.Count)
	if err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context) error {
		_, err := program.Run(ctx, program.Command{Path: "tar", Args: []string{"--extract", "--directory", job.In}, Input: bytes.NewReader(archive)})
		return err
	}, nil, nil
}

// makeArchive packs files of 100 bytes to 12 KiB into directories.
func makeArchive(files int) ([]byte, error) {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	content := make([]byte, 3*FileBytes)
	for i := range files {
		directory := fmt.Sprintf("d%04d", i/filesPerDirectory)
		if i%filesPerDirectory == 0 {
			if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: directory + "/", Mode: 0o755}); err != nil {
				return nil, err
			}
		}
		size := 100 + i*7919%(len(content)-100)
		header := tar.Header{Typeflag: tar.TypeReg, Name: fmt.Sprintf("%s/f%04d", directory, i), Mode: 0o644, Size: int64(size)}
		if err := w.WriteHeader(&header); err != nil {
			return nil, err
		}
		if _, err := w.Write(content[:size]); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return archive.Bytes(), err
}
