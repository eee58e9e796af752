package volume

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/wholefile"
)

// readFile reads a small file; it refuses one that is too long, or none, or that
// others could have written.
func readFile(path string) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no file: %w", path, ErrCorrupt)
	}
	if err := checkTrusted(path, info); err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(file, maxRecordBytes+1))
	if err == nil && len(text) > maxRecordBytes {
		err = fmt.Errorf("%s is over %d bytes: %w", path, maxRecordBytes, ErrCorrupt)
	}
	return text, err
}

// replaceFile writes a file that is there whole or not at all, also after a
// crash of the host.
func replaceFile(path string, value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	return replaceText(path, append(text, '\n'))
}

func replaceText(path string, text []byte) error {
	if err := wholefile.Replace(path, text); err != nil {
		return fmt.Errorf("cannot write %s: %w", path, noSpace(err))
	}
	return nil
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func modificationTime(path string) (time.Time, error) {
	info, err := os.Stat(path)
	if err != nil {
		return time.Time{}, err
	}
	return info.ModTime(), nil
}
