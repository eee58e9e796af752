package disksim

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// home is a state directory. A disk NAME has in it
//
//	NAME.json  the record of what it consists of
//	NAME.lock  locked by the process that serves it, and by its creator until
//	           that process runs: while it is locked, the disk is alive
//	NAME.mnt/  the mount point of the FUSE file system; the file in it is NAME
//	NAME.log   what the serving process had to say
//
// The directory itself is locked while disks are created, deleted or
// recovered. The kernel drops the locks of a killed process, which no number
// of a process could tell as surely.
type home string

const (
	recordSuffix    = ".json"
	newRecordSuffix = ".json.new"
	lockSuffix      = ".lock"
	mountSuffix     = ".mnt"
	logSuffix       = ".log"
)

// makeHome makes the directory if it is missing and resolves its path, since
// the kernel prints resolved paths, by which loop devices are found.
func makeHome(dir string) (home, error) {
	if dir == "" {
		dir = DefaultStateDir
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("cannot make the state directory: %w", err)
	}
	return findHome(dir)
}

// findHome resolves the path of a state directory that should exist. The
// error wraps fs.ErrNotExist if it does not.
func findHome(dir string) (home, error) {
	if dir == "" {
		dir = DefaultStateDir
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	dir, err = filepath.EvalSymlinks(dir)
	if err != nil {
		return "", fmt.Errorf("state directory: %w", err)
	}
	return home(dir), nil
}

func (h home) path(name, suffix string) string { return filepath.Join(string(h), name+suffix) }
func (h home) mountPoint(name string) string   { return h.path(name, mountSuffix) }
func (h home) diskFile(name string) string     { return filepath.Join(h.mountPoint(name), name) }

// names lists the disks of which there is any trace.
func (h home) names() ([]string, error) {
	entries, err := os.ReadDir(string(h))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, entry := range entries {
		for _, suffix := range []string{newRecordSuffix, recordSuffix, lockSuffix, mountSuffix, logSuffix} {
			if name, found := strings.CutSuffix(entry.Name(), suffix); found && CheckName(name) == nil {
				names = append(names, name)
				break
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// removeTraces removes a disk's files, the record last but for the lock: as
// long as something is left, so is what says so.
func (h home) removeTraces(name string) error {
	var errs []error
	for _, suffix := range []string{mountSuffix, logSuffix, newRecordSuffix, recordSuffix, lockSuffix} {
		// Remove and not RemoveAll: a mount point that is not empty is
		// still mounted.
		if err := os.Remove(h.path(name, suffix)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
			break
		}
	}
	return errors.Join(errs...)
}

// lock is a held flock. Closing the file, by whatever death, releases it once
// no other process has the same open file.
type lock struct{ file *os.File }

func (l *lock) release() {
	if l != nil {
		_ = l.file.Close()
	}
}

// lockAll locks the directory, and waits for whoever has it.
func (h home) lockAll(ctx context.Context) (*lock, error) {
	file, err := os.Open(string(h))
	if err != nil {
		return nil, err
	}
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return &lock{file}, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			_ = file.Close()
			return nil, fmt.Errorf("cannot lock %s: %w", h, err)
		}
		select {
		case <-ctx.Done():
			_ = file.Close()
			return nil, fmt.Errorf("waiting for another daybook that works on %s: %w", h, ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// errAlive says that a living process has the disk's lock.
var errAlive = errors.New("the disk is served by a living process")

// lockDisk takes the disk's lock without waiting: errAlive if it is held.
func (h home) lockDisk(name string) (*lock, error) {
	for {
		file, err := os.OpenFile(h.path(name, lockSuffix), os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, fmt.Errorf("cannot lock disk %s: %w", name, err)
		}
		if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			_ = file.Close()
			if errors.Is(err, unix.EWOULDBLOCK) {
				return nil, errAlive
			}
			return nil, fmt.Errorf("cannot lock disk %s: %w", name, err)
		}
		// The holder before may have removed the file as its last act: a
		// lock on a file that has no name locks nobody out.
		opened, err1 := file.Stat()
		named, err2 := os.Stat(h.path(name, lockSuffix))
		if err1 == nil && err2 == nil && os.SameFile(opened, named) {
			return &lock{file}, nil
		}
		_ = file.Close()
	}
}

// awaitDeath waits until no process has the disk's lock, and then has it.
func (h home) awaitDeath(ctx context.Context, name string) (*lock, error) {
	for {
		lock, err := h.lockDisk(name)
		if !errors.Is(err, errAlive) {
			return lock, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("disk %s: %w", name, errors.Join(errAlive, ctx.Err()))
		case <-time.After(5 * time.Millisecond):
		}
	}
}
