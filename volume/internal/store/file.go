package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/atomicfile"
	"github.com/daybook-project/daybook/internal/trusted"
	"github.com/daybook-project/daybook/volume/internal/cause"
	"github.com/daybook-project/daybook/volume/records"
)

// ReadFile reads a small file. It refuses a file that is too long, is not regular, or that
// other users could have written.
func ReadFile(path string) ([]byte, error) {
	text, err := trusted.Read(path, records.MaxBytes)
	return text, refused(path, err)
}

// ReplaceFile writes a file that is complete or absent, also after a crash of the host.
func ReplaceFile(path string, value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	return ReplaceText(path, append(text, '\n'))
}

// ReplaceText is ReplaceFile for a text.
func ReplaceText(path string, text []byte) error {
	if err := atomicfile.Replace(path, text); err != nil {
		return fmt.Errorf("cannot write %s: %w", path, cause.NoSpace(err))
	}
	return nil
}

// RemoveIfThere removes a file. If it does not exist, that is no error, also on a read-only
// file system, whose error the kernel gives without looking for the file.
func RemoveIfThere(path string) error {
	err := os.Remove(path)
	if errors.Is(err, unix.EROFS) {
		if _, statErr := os.Lstat(path); errors.Is(statErr, fs.ErrNotExist) {
			return nil
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// ModificationTime is the time of the last write to a file.
func ModificationTime(path string) (time.Time, error) {
	info, err := os.Stat(path)
	if err != nil {
		return time.Time{}, err
	}
	return info.ModTime(), nil
}
