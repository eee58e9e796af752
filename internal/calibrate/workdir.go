package calibrate

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/trusted"
)

// workDirPrefix identifies the directory of a killed calibration.
const workDirPrefix = ".daybook-calibrate-"

// workDir is the private directory of a calibration. It is locked, so that
// another calibration can distinguish it from that of a killed one. It is used by
// its descriptor: who may write a directory above it can put a link at its path.
type workDir struct {
	parent *os.File
	name   string // in parent
	file   *os.File
}

// openWorkDir makes a directory in dir, after removing those of killed
// calibrations.
func openWorkDir(dir string) (*workDir, error) {
	parent, err := openParent(dir)
	if err != nil {
		return nil, err
	}
	w, err := makeWorkDir(parent)
	if err != nil {
		return nil, errors.Join(err, parent.Close())
	}
	return w, nil
}

// openParent refuses a directory in which another user can replace what this one makes.
func openParent(dir string) (*os.File, error) {
	parent, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, unsuitable(dir, "%w", err)
	}
	if err := trusted.StickyDirectory.Check(parent); err != nil {
		_ = parent.Close()
		return nil, unsuitable(dir, "%w: another user could replace the files of the calibration; "+
			"make a directory of your own on the same file system, and name that one", err)
	}
	return parent, nil
}

func makeWorkDir(parent *os.File) (*workDir, error) {
	if err := removeLeftovers(parent); err != nil {
		return nil, err
	}
	path, err := os.MkdirTemp(descriptorPath(parent), workDirPrefix)
	if err != nil {
		return nil, unsuitable(parent.Name(), "%w", withoutPath(err))
	}
	w, err := lockWorkDir(parent, filepath.Base(path))
	if err != nil {
		return nil, errors.Join(err, unix.Rmdir(path))
	}
	return w, nil
}

// path leads to the directory, whatever its name leads to by now.
func (w *workDir) path() string { return descriptorPath(w.file) }

func descriptorPath(file *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", file.Fd()) }

// withoutPath is the cause of an error of package os, whose path would be that of a descriptor.
func withoutPath(err error) error {
	var at *fs.PathError
	var both *os.LinkError
	switch {
	case errors.As(err, &at):
		return at.Err
	case errors.As(err, &both):
		return both.Err
	}
	return err
}

// close removes the directory and its content.
func (w *workDir) close() error {
	return errors.Join(w.remove(), w.parent.Close())
}

// remove removes the directory, and releases its lock. At the name, it removes
// nothing but an empty directory. That somebody has removed it already is no error.
func (w *workDir) remove() error {
	entries, err := os.ReadDir(w.path())
	err = unlessGone(withoutPath(err))
	for _, entry := range entries {
		err = errors.Join(err, withoutPath(os.RemoveAll(filepath.Join(w.path(), entry.Name()))))
	}
	err = errors.Join(err, unlessGone(unix.Unlinkat(int(w.parent.Fd()), w.name, unix.AT_REMOVEDIR)))
	if err != nil {
		err = fmt.Errorf("cannot remove the files of the calibration in %s: %w", filepath.Join(w.parent.Name(), w.name), err)
	}
	return errors.Join(err, w.file.Close())
}

func unlessGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// errLocked means that the owner of a directory is still running.
var errLocked = errors.New("another calibration works in it")

func lockWorkDir(parent *os.File, name string) (*workDir, error) {
	fail := func(err error) (*workDir, error) {
		return nil, fmt.Errorf("cannot lock %s: %w", filepath.Join(parent.Name(), name), err)
	}
	file, err := trusted.PrivateDirectory.Open(filepath.Join(descriptorPath(parent), name))
	if err != nil {
		return fail(withoutPath(err))
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = file.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = errLocked
		}
		return fail(err)
	}
	return &workDir{parent, name, file}, nil
}

// removeLeftovers removes the directories of killed calibrations. The name
// alone is not enough: only private directories of this user are ours, so that
// in a directory where all may write (/tmp) no other user can redirect the
// removal.
func removeLeftovers(parent *os.File) error {
	entries, err := os.ReadDir(descriptorPath(parent))
	if err != nil {
		return unsuitable(parent.Name(), "%w", withoutPath(err))
	}
	for _, entry := range entries {
		if !strings.HasPrefix(entry.Name(), workDirPrefix) {
			continue
		}
		left, err := lockWorkDir(parent, entry.Name())
		var notOurs *trusted.Error
		if errors.As(err, &notOurs) || errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) {
			continue // another user's, or removed since the listing
		}
		if errors.Is(err, errLocked) {
			return unsuitable(parent.Name(), "another calibration runs there (%s); they would disturb each other", entry.Name())
		}
		if err != nil {
			return err
		}
		if err := left.remove(); err != nil {
			return err
		}
	}
	return nil
}
