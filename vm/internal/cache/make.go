// Package cache makes directories of a cache: each is made once, by one process,
// and is complete or absent, also after a kill.
package cache

import (
	"context"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// NewPrefix is the prefix of the names of incomplete directories.
const NewPrefix = ".new-"

// Make makes a directory unless it exists. build fills an empty directory next
// to it, which is then renamed. Processes that make directories in the same
// parent take turns; waiting is called once if another process holds the lock.
func Make(ctx context.Context, dir string, waiting func(), build func(t Tools, next string) error) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	parent := filepath.Dir(dir)
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return err
	}
	held, err := lock(ctx, filepath.Join(parent, ".lock"), waiting)
	if err != nil {
		return err
	}
	defer held.Close()
	if _, err := os.Stat(dir); err == nil {
		return nil // another process was faster
	}
	// This process holds the lock, so incomplete directories here are of
	// processes that have died.
	unfinished, err := filepath.Glob(filepath.Join(parent, NewPrefix+"*"))
	if err != nil {
		return err
	}
	for _, old := range unfinished {
		if err := os.RemoveAll(old); err != nil {
			return err
		}
	}
	next, err := os.MkdirTemp(parent, NewPrefix)
	if err != nil {
		return err
	}
	defer os.RemoveAll(next)
	if err := os.Chmod(next, 0o755); err != nil {
		return err
	}
	if err := build(Tools{held}, next); err != nil {
		return err
	}
	// The files are on disk before the rename: after a crash of the host the
	// directory is complete or absent.
	if fd, err := unix.Open(next, unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err == nil {
		_ = unix.Syncfs(fd)
		unix.Close(fd)
	}
	return os.Rename(next, dir)
}
