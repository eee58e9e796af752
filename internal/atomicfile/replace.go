// Package atomicfile replaces files atomically: after a crash of the process or
// of the host, a file has its old content or all of its new content.
package atomicfile

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// TemporarySuffix is the suffix of the temporary file that a killed process may
// leave beside the file; the next Replace overwrites it.
const TemporarySuffix = ".new"

// Replace makes text the content of the file at path, readable only by its
// owner. The caller must hold a lock, so that there is one writer at a time.
func Replace(path string, text []byte) error { return replace(path, text, 0o600) }

// ReplaceReadable is Replace for a file that everybody may read.
func ReplaceReadable(path string, text []byte) error { return replace(path, text, 0o644) }

func replace(path string, text []byte, mode os.FileMode) error {
	next := path + TemporarySuffix
	file, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, mode)
	if err != nil {
		return err
	}
	_ = file.Chmod(mode) // one that a killed process left may have been made open to others
	_, err = file.Write(text)
	if err == nil {
		err = file.Sync() // the content before the name
	}
	err = errors.Join(err, file.Close())
	if err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		_ = os.Remove(next)
		return err
	}
	return SyncDirectory(filepath.Dir(path))
}

// SyncFileSystem makes all earlier changes of a directory's file system durable.
func SyncFileSystem(directory string) error {
	root, err := os.Open(directory)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(root.Fd())), root.Close())
}

// SyncDirectory makes changes of the directory durable: files that were made,
// renamed or removed in it.
func SyncDirectory(path string) error {
	directory, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(directory.Sync(), directory.Close())
}
