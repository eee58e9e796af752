package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestAFileIsReplacedAndNoTemporaryFileRemains(t *testing.T) {
	path := filepath.Join(t.TempDir(), "record")
	// A temporary file of a killed process does no harm.
	left := path + TemporarySuffix
	if err := errors.Join(os.WriteFile(left, []byte("half of a much longer te"), 0o600), os.Chmod(left, 0o666)); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"first", "2nd"} {
		if err := Replace(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != text {
			t.Errorf("%q, %v; want %q", got, err, text)
		}
		if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
			t.Errorf("%q: %v, %v; want mode 0600", text, info.Mode(), err)
		}
	}
	if _, err := os.Lstat(path + TemporarySuffix); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v; want nothing beside it", err)
	}
}

func TestAReadableFileIsReadableByAll(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page")
	if err := os.WriteFile(path, []byte("first"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := ReplaceReadable(path, []byte("2nd")); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "2nd" {
		t.Errorf("%q, %v", got, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o644 {
		t.Errorf("%v, %v; want mode 0644", info.Mode(), err)
	}
}

func TestAFileThatCannotBeReplacedStays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "record")
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Replace(path, []byte("text")); err == nil {
		t.Error("a directory was replaced")
	}
	if _, err := os.Lstat(path + TemporarySuffix); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v; want nothing beside it", err)
	}
	// Replace does not follow a link to another file.
	other, linked := filepath.Join(t.TempDir(), "other"), filepath.Join(t.TempDir(), "linked")
	if err := os.WriteFile(other, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(other, linked+TemporarySuffix); err != nil {
		t.Fatal(err)
	}
	if err := Replace(linked, []byte("text")); err == nil {
		t.Error("a link was followed")
	}
	if got, err := os.ReadFile(other); err != nil || string(got) != "kept" {
		t.Errorf("%q, %v", got, err)
	}
}
