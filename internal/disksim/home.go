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

	"github.com/daybook-project/daybook/internal/filelock"
	"github.com/daybook-project/daybook/internal/safetext"
	"github.com/daybook-project/daybook/internal/trusted"
)

// home is a state directory. A disk NAME has in it
//
//	NAME.json  the record of what it consists of
//	NAME.lock  locked by the process that serves it, and by its creator until
//	           that process runs: while it is locked, the disk is alive
//	NAME.mnt/  the mount point of the FUSE file system; the file in it is NAME
//	NAME.log   what the serving process had to say
//
// The file .lock is locked while disks are created, deleted or recovered. The
// kernel drops the locks of a killed process, which no number of a process could
// tell as surely.
type home string

const (
	recordSuffix    = ".json"
	newRecordSuffix = ".json.new"
	lockSuffix      = ".lock"
	mountSuffix     = ".mnt"
	logSuffix       = ".log"
)

// makeHome makes a missing directory and resolves its path: loop devices are
// found by path, and the kernel prints resolved paths.
func makeHome(dir string) (home, error) {
	if dir == "" {
		dir = DefaultStateDir
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("cannot make the state directory: %w", err)
	}
	return findHome(dir)
}

// findHome resolves the path of a state directory that should exist. The error
// wraps fs.ErrNotExist if it does not. One that another user can write is refused:
// links in it would lead to other files, and records name processes that are ended.
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
	if err := trusted.Directory.CheckPath(dir); err != nil {
		return "", fmt.Errorf("cannot use the state directory %s: %w; choose one that nobody else can write", safetext.Line(dir), err)
	}
	return home(dir), nil
}

func (h home) path(name, suffix string) string { return filepath.Join(string(h), name+suffix) }
func (h home) mountPoint(name string) string   { return h.path(name, mountSuffix) }
func (h home) diskFile(name string) string     { return filepath.Join(h.mountPoint(name), name) }

// names lists the disks that have any file.
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

// removeTraces removes a disk's files. The record is the last but for the lock:
// it stays as long as any other file.
func (h home) removeTraces(name string) error {
	var errs []error
	for _, suffix := range []string{mountSuffix, logSuffix, newRecordSuffix, recordSuffix, lockSuffix} {
		// Use Remove, not RemoveAll: a mount point that is not empty is still
		// mounted.
		if err := os.Remove(h.path(name, suffix)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
			break
		}
	}
	return errors.Join(errs...)
}

// homeLock cannot be a disk's: no name starts with a dot.
const homeLock = ".lock"

// lockAll locks the directory, and waits for its holder. Earlier versions
// locked the directory itself, which others may be able to open.
func (h home) lockAll(ctx context.Context) (*filelock.Lock, error) {
	all, err := filelock.Await(ctx, func() (*filelock.Lock, error) {
		return filelock.TakeBoth(filepath.Join(string(h), homeLock), string(h))
	})
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("waiting for another daybook that uses %s: %w", h, err)
	}
	return all, err
}

// lock is a held flock. Closing the file, or the death of the process, releases
// it unless another process has the same open file.
type lock struct{ file *os.File }

func (l *lock) release() {
	if l != nil {
		_ = l.file.Close()
	}
}

// errAlive means that a living process has the disk's lock.
var errAlive = errors.New("the disk is served by a living process")

// lockDisk takes the disk's lock without waiting: errAlive if it is held.
func (h home) lockDisk(name string) (*lock, error) {
	for {
		file, err := os.OpenFile(h.path(name, lockSuffix), os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, fmt.Errorf("cannot lock disk %s: %w", name, err)
		}
		locked, err := tryLock(file)
		if errors.Is(err, errAlive) {
			return nil, err
		}
		if err != nil {
			return nil, fmt.Errorf("cannot lock disk %s: %w", name, err)
		}
		// The former holder may have removed the file last: a lock on a file
		// without a name excludes no process.
		opened, err1 := file.Stat()
		named, err2 := os.Stat(h.path(name, lockSuffix))
		if err1 == nil && err2 == nil && os.SameFile(opened, named) {
			return locked, nil
		}
		locked.release()
	}
}

// lockUnlessAlive takes the disk's lock: errAlive if a living process has it. It
// ends a server that was killed and cannot end by itself.
func (h home) lockUnlessAlive(ctx context.Context, name string) (*lock, error) {
	l, err := h.lockDisk(name)
	if !errors.Is(err, errAlive) {
		return l, err
	}
	killed, endErr := h.endKilled(name)
	if !killed {
		return nil, err
	}
	if endErr != nil {
		return nil, fmt.Errorf("disk %s: its server was killed and cannot end: %w", name, endErr)
	}
	ctx, cancel := context.WithTimeout(ctx, dismantlePatience)
	defer cancel()
	return h.awaitDeath(ctx, name)
}

// awaitDeath waits until no process has the disk's lock, and takes it.
func (h home) awaitDeath(ctx context.Context, name string) (*lock, error) {
	l, err := await(ctx, func() (*lock, error) {
		l, err := h.lockDisk(name)
		if errors.Is(err, errAlive) {
			_, _ = h.endKilled(name) // if it fails, the wait has an end
		}
		return l, err
	})
	if errors.Is(err, errAlive) {
		err = fmt.Errorf("disk %s: %w", name, err)
	}
	return l, err
}

// await takes a lock as soon as take does not say errAlive any more. If ctx ends
// first, the error has errAlive and the context's.
func await(ctx context.Context, take func() (*lock, error)) (*lock, error) {
	for {
		l, err := take()
		if !errors.Is(err, errAlive) {
			return l, err
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(err, ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// tryLock locks an open file without waiting: errAlive if another process has. The
// file is closed if it is not locked.
func tryLock(file *os.File) (*lock, error) {
	err := filelock.TryLock(file)
	if err == nil {
		return &lock{file}, nil
	}
	_ = file.Close()
	var held *filelock.HeldError
	if errors.As(err, &held) {
		return nil, errAlive
	}
	return nil, err
}
