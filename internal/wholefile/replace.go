// Package wholefile writes files that are there whole or not at all: after a
// crash of the process or of the host, a file holds what it held before, or all
// of what was to be written.
package wholefile

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// TemporarySuffix is that of the file which a killed process may leave beside
// the one it was to replace; the next Replace takes it over.
const TemporarySuffix = ".new"

// Replace makes text the content of the file at path, readable by its owner
// alone. One writer at a time: the caller has a lock.
func Replace(path string, text []byte) error {
	next := path + TemporarySuffix
	file, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
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

// SyncDirectory makes the directory's names last: what was made, renamed or
// removed in it.
func SyncDirectory(path string) error {
	directory, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(directory.Sync(), directory.Close())
}
