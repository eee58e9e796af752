// Package cache makes directories of a cache: each is made once, by one process,
// and is complete or absent, also after a kill.
package cache

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// NewPrefix is the prefix of the names of incomplete directories.
const NewPrefix = ".new-"

// Find returns the paths of the files in a directory that match a pattern, in the syntax of
// [filepath.Match]. Unlike for [filepath.Glob], the directory's own name is no pattern: that of a
// cache may have any characters.
func Find(dir, pattern string) ([]string, error) {
	found, err := fs.Glob(os.DirFS(dir), pattern)
	for i, name := range found {
		found[i] = filepath.Join(dir, name)
	}
	return found, err
}

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
	unfinished, err := Find(parent, NewPrefix+"*")
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
