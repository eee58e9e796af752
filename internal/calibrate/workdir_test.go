package calibrate

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/daybook-project/daybook/internal/needs"
)

func TestLeftoversOfAKilledCalibrationAreRemoved(t *testing.T) {
	dir := t.TempDir()
	left := filepath.Join(dir, workDirPrefix+"123")
	if err := os.MkdirAll(filepath.Join(left, "run"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(left, "run", "000000"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	work, err := openWorkDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there: %v", left, err)
	}
	if err := work.close(); err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

func TestOnlyOneCalibrationWorksInADirectory(t *testing.T) {
	dir := t.TempDir()
	work, err := openWorkDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = work.close() }()
	if _, err := openWorkDir(dir); !errors.Is(err, ErrUnsuitable) {
		t.Errorf("got %v; want a refusal", err)
	}
	if _, err := os.Stat(work.path); err != nil {
		t.Errorf("the one at work lost its directory: %v", err)
	}
}

func TestWhatOnlyHasTheNameOfALeftoverIsNotTouched(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	precious := filepath.Join(elsewhere, "precious")
	if err := os.WriteFile(precious, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, workDirPrefix+"link")
	file := filepath.Join(dir, workDirPrefix+"file")
	open := filepath.Join(dir, workDirPrefix+"open")
	if err := errors.Join(
		os.Symlink(elsewhere, link), os.WriteFile(file, nil, 0o600), os.Mkdir(open, 0o755),
	); err != nil {
		t.Fatal(err)
	}
	work, err := openWorkDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := work.close(); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{precious, link, file, open} {
		if _, err := os.Lstat(path); err != nil {
			t.Errorf("removed: %v", err)
		}
	}
}

func TestAnotherUsersDirectoryIsNoLeftover(t *testing.T) {
	needs.Root(t)
	dir := t.TempDir()
	theirs := filepath.Join(dir, workDirPrefix+"theirs")
	if err := errors.Join(os.Mkdir(theirs, 0o700), os.Chown(theirs, 65534, 65534)); err != nil {
		t.Fatal(err)
	}
	work, err := openWorkDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := work.close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(theirs); err != nil {
		t.Errorf("removed: %v", err)
	}
}
