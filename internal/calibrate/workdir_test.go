package calibrate

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/fio"
	"github.com/daybook-project/daybook/internal/needs"
	"github.com/daybook-project/daybook/internal/workload"
)

// directory makes one that only this user may write, whatever the umask is.
func directory(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestLeftoversOfAKilledCalibrationAreRemoved(t *testing.T) {
	dir := directory(t)
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
	dir := directory(t)
	work, err := openWorkDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = work.close() }()
	if _, err := openWorkDir(dir); !errors.Is(err, ErrUnsuitable) {
		t.Errorf("got %v; want a refusal", err)
	}
	if _, err := os.Stat(work.path()); err != nil {
		t.Errorf("the one at work lost its directory: %v", err)
	}
}

func TestWhatOnlyHasTheNameOfALeftoverIsNotTouched(t *testing.T) {
	dir, elsewhere := directory(t), t.TempDir()
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
	dir := directory(t)
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

func TestADirectoryThatAnotherUserMayChangeIsRefused(t *testing.T) {
	needs.Root(t)
	for name, of := range map[string]struct {
		owner   int
		mode    os.FileMode
		refused bool
	}{
		"root's":                     {0, 0o755, false},
		"shared, with a sticky bit":  {0, 0o777 | os.ModeSticky, false},
		"shared, without one":        {0, 0o777, true},
		"another user's":             {65534, 0o755, true},
		"another user's, and sticky": {65534, 0o777 | os.ModeSticky, true},
	} {
		dir := t.TempDir()
		if err := errors.Join(os.Chmod(dir, of.mode), os.Chown(dir, of.owner, of.owner)); err != nil {
			t.Fatal(err)
		}
		work, err := openWorkDir(dir)
		if err == nil {
			err = work.close()
		} else if !errors.Is(err, ErrUnsuitable) || !strings.Contains(err.Error(), "make a directory of your own") {
			t.Errorf("%s: %v", name, err)
		}
		if (err != nil) != of.refused {
			t.Errorf("%s: %v; want a refusal: %v", name, err, of.refused)
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
			t.Errorf("%s: left behind: %v, %v", name, entries, err)
		}
	}
}

// replace renames a work directory and puts another one in its place, as who may write the
// directory above it can.
func replace(t *testing.T, work *workDir, put func(path string) error) {
	t.Helper()
	path := filepath.Join(work.parent.Name(), work.name)
	if err := errors.Join(os.Rename(path, path+"-aside"), put(path)); err != nil {
		t.Fatal(err)
	}
}

func TestALinkInPlaceOfTheWorkDirectoryIsNotFollowed(t *testing.T) {
	victim := t.TempDir()
	precious := filepath.Join(victim, "run", "precious")
	if err := errors.Join(os.Mkdir(filepath.Dir(precious), 0o755), os.WriteFile(precious, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	work, err := openWorkDir(directory(t))
	if err != nil {
		t.Fatal(err)
	}
	replace(t, work, func(path string) error { return os.Symlink(victim, path) })
	ended, end := context.WithCancel(t.Context())
	end() // before the journal is measured
	if _, err := (&session{work: work}).run(ended, workload.Unlink, 10); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that the context was cancelled", err)
	}
	if err := work.close(); err == nil || !strings.Contains(err.Error(), work.name) {
		t.Errorf("got %v, want that the directory %s cannot be removed", err, work.name)
	}
	if _, err := os.Stat(precious); err != nil {
		t.Errorf("the link was followed: %v", err)
	}
}

func TestThatTheWorkDirectoryIsGoneAlreadyIsNoError(t *testing.T) {
	work, err := openWorkDir(directory(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(work.parent.Name(), work.name)); err != nil {
		t.Fatal(err)
	}
	if err := work.close(); err != nil {
		t.Error(err)
	}
}

func TestALeftoverThatCannotBeRemovedDoesNotMakeTheDirectoryUnsuitable(t *testing.T) {
	needs.Root(t)
	dir := directory(t)
	run := filepath.Join(dir, workDirPrefix+"123", "run")
	if err := errors.Join(os.MkdirAll(run, 0o700), os.Chmod(filepath.Dir(run), 0o700), unix.Mount("none", run, "tmpfs", 0, "")); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Unmount(run, 0); err != nil {
			t.Error(err)
		}
	}()
	if _, err := openWorkDir(dir); !errors.Is(err, unix.EBUSY) || errors.Is(err, ErrUnsuitable) || !strings.Contains(err.Error(), dir) || strings.Contains(err.Error(), "/proc/") {
		t.Errorf("got %v, want that the files in %s are in use", err, dir)
	}
}

func TestErrorsOfCallsNameTheDirectory(t *testing.T) {
	dir := directory(t)
	work, err := openWorkDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = work.close() }()
	if err := os.WriteFile(filepath.Join(work.path(), "run"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = (&session{work: work}).row(t.Context(), workload.Unlink, Options{Runs: 1, Calls: 10}, func(int) {})
	if !errors.Is(err, unix.ENOTDIR) || !strings.Contains(err.Error(), dir) || strings.Contains(err.Error(), "/proc/") || strings.Count(err.Error(), "cannot") != 1 {
		t.Errorf("got %v, want the directory %s", err, dir)
	}
}

func TestTheTestsOfADiskWriteOnlyTheFileThatWasMadeForThem(t *testing.T) {
	needs.Tool(t, "fio")
	precious := filepath.Join(t.TempDir(), "precious")
	if err := os.WriteFile(precious, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := directory(t)
	file, closeFile, err := place{dir: dir, bytes: MinDiskFileBytes}.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = closeFile() }()
	made, err := filepath.Glob(filepath.Join(dir, workDirPrefix+"*"))
	if err != nil || len(made) != 1 {
		t.Fatal(made, err)
	}
	if err := errors.Join(os.Rename(made[0], made[0]+"-aside"), os.Mkdir(made[0], 0o755), os.Symlink(precious, filepath.Join(made[0], "file"))); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(filepath.Join(made[0]+"-aside", "file"))
	if err != nil {
		t.Fatal(err)
	}
	run, err := fio.Start(fio.Stream{Opened: file, Access: fio.Write, Depth: testDepth, BlockBytes: largeBlock, Time: time.Second}, "")
	if err != nil {
		t.Fatal(err)
	}
	if r, err := run.Wait(t.Context()); err != nil || r.WrittenBytes == 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	if now, err := os.ReadFile(precious); err != nil || !bytes.Equal(now, make([]byte, 1<<20)) {
		t.Errorf("the file that the link leads to was overwritten (%v)", err)
	}
	if now, err := os.ReadFile(filepath.Join(made[0]+"-aside", "file")); err != nil || bytes.Equal(now, before) {
		t.Errorf("the file of the tests was not overwritten (%v)", err)
	}
}
