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
// another calibration can distinguish it from that of a killed one.
type workDir struct {
	path string
	file *os.File
}

// openWorkDir makes a directory in dir, after removing those of killed
// calibrations.
func openWorkDir(dir string) (*workDir, error) {
	if err := removeLeftovers(dir); err != nil {
		return nil, err
	}
	path, err := os.MkdirTemp(dir, workDirPrefix)
	if err != nil {
		return nil, unsuitable(dir, "%w", err)
	}
	file, err := lockDir(path)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(path))
	}
	return &workDir{path, file}, nil
}

// close removes the directory and its content.
func (w *workDir) close() error {
	err := os.RemoveAll(w.path)
	if err != nil {
		err = fmt.Errorf("cannot remove the files of the calibration: %w", err)
	}
	return errors.Join(err, w.file.Close())
}

// errLocked means that the owner of a directory is still running.
var errLocked = errors.New("another calibration works in it")

func lockDir(path string) (*os.File, error) {
	file, err := trusted.PrivateDirectory.Open(path)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = file.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = errLocked
		}
		return nil, fmt.Errorf("cannot lock %s: %w", path, err)
	}
	return file, nil
}

// removeLeftovers removes the directories of killed calibrations. The name
// alone is not enough: only private directories of this user are ours, so that
// in a directory where all may write (/tmp) no other user can redirect the
// removal.
func removeLeftovers(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return unsuitable(dir, "%w", err)
	}
	for _, entry := range entries {
		path := filepath.Join(dir, entry.Name())
		if !strings.HasPrefix(entry.Name(), workDirPrefix) {
			continue
		}
		file, err := lockDir(path)
		var notOurs *trusted.Error
		if errors.As(err, &notOurs) || errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) {
			continue // another user's, or removed since the listing
		}
		if errors.Is(err, errLocked) {
			return unsuitable(dir, "another calibration runs there (%s); they would disturb each other", path)
		}
		if err != nil {
			return err
		}
		if err := errors.Join(os.RemoveAll(path), file.Close()); err != nil {
			return fmt.Errorf("cannot remove the files of a killed calibration: %w", err)
		}
	}
	return nil
}
