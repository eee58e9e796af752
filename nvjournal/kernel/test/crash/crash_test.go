package crash

import (
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

const (
	testSeed  = 7
	testCount = 1500
)

// script runs a script to its end, and returns the last reported operation.
func script(t *testing.T) (dir string, told int) {
	t.Helper()
	dir = t.TempDir()
	err := Run(dir, Script{Seed: testSeed}, 1, testCount, func(_, count int) { told = count })
	if err != nil {
		t.Fatal(err)
	}
	if told == 0 {
		t.Fatal("nothing was told")
	}
	return dir, told
}

func TestWhatRanIsFound(t *testing.T) {
	dir := t.TempDir()
	var told [3]atomic.Int64
	if err := Run(dir, Script{Seed: testSeed}, len(told), testCount, func(thread, count int) { told[thread].Store(int64(count)) }); err != nil {
		t.Fatal(err)
	}
	for thread := range told {
		found, err := Check(dir, Script{Seed: testSeed}, thread, testCount, true)
		if err != nil || found.First != testCount || found.Files == 0 || found.Durable == 0 {
			t.Errorf("exactly: %+v, %v", found, err)
		}
		found, err = Check(dir, Script{Seed: testSeed}, thread, int(told[thread].Load()), false)
		if err != nil || found.First > testCount || found.Last < testCount {
			t.Errorf("at least: %+v, %v", found, err)
		}
		if _, err = Check(dir, Script{Seed: testSeed}, thread, testCount+100, false); err == nil {
			t.Error("a loss of 100 operations was not found")
		}
	}
}

// any file of the script, with at least so many bytes.
func anyFile(t *testing.T, dir string, bytes int64) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(threadDirectory(dir, 0), "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() && info.Size() >= bytes {
			return path
		}
	}
	t.Fatal("no such file")
	return ""
}

func TestWhatACrashMustNotLeaveIsFound(t *testing.T) {
	for what, test := range map[string]struct {
		spoil func(t *testing.T, dir string) error
		said  string
	}{
		"a lost name": {func(t *testing.T, dir string) error { return os.Remove(anyFile(t, dir, 0)) }, "fits no number"},
		"a name too many": {func(t *testing.T, dir string) error {
			return os.WriteFile(threadDirectory(dir, 0)+"/a/new", nil, 0o600)
		}, "should not be there"},
		"a rename half done": {func(t *testing.T, dir string) error { f := anyFile(t, dir, 0); return os.Link(f, f+"-old") }, "should not be there"},
		"other permissions":  {func(t *testing.T, dir string) error { return os.Chmod(anyFile(t, dir, 0), 0o7) }, "mode 7"},
		"an attribute's old mark": {func(t *testing.T, dir string) error {
			return unix.Setxattr(anyFile(t, dir, 0), markName, []byte("1"), 0)
		}, "mark 1"},
		"synced bytes that are zero": {func(t *testing.T, dir string) error {
			return overwrite(anyFile(t, dir, 9000), make([]byte, 9000))
		}, "byte "},
		"bytes of another file": {func(t *testing.T, dir string) error {
			return overwrite(anyFile(t, dir, 1), []byte{0xee})
		}, "is 0xee"},
	} {
		t.Run(what, func(t *testing.T) {
			dir, told := script(t)
			if err := test.spoil(t, dir); err != nil {
				t.Fatal(err)
			}
			exactly := strings.Contains(what, "zero")
			if exactly {
				told = testCount
			}
			if _, err := Check(dir, Script{Seed: testSeed}, 0, told, exactly); err == nil || !strings.Contains(err.Error(), test.said) {
				t.Errorf("%v, want %q", err, test.said)
			}
		})
	}
}

// overwrite writes over a file's beginning, and keeps the rest.
func overwrite(path string, b []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = file.WriteAt(b, 0)
	return err
}
