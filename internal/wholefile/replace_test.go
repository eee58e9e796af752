package wholefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestAFileIsReplacedAndNothingIsLeftBeside(t *testing.T) {
	path := filepath.Join(t.TempDir(), "record")
	// What a killed process left is no hindrance.
	if err := os.WriteFile(path+TemporarySuffix, []byte("half of a much longer te"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"first", "2nd"} {
		if err := Replace(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != text {
			t.Errorf("%q, %v; want %q", got, err, text)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if _, err := os.Lstat(path + TemporarySuffix); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v; want nothing beside it", err)
	}
}

func TestWhatCannotBeReplacedStays(t *testing.T) {
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
	// A link is not followed to somebody else's file.
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
