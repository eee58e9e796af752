package filelock

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func wantHolder(t *testing.T, when, path string, pid int, held bool) {
	t.Helper()
	if gotPID, got, err := Holder(path); err != nil || gotPID != pid || got != held {
		t.Errorf("%s: process %d, held %v, %v; want %d, %v", when, gotPID, got, err, pid, held)
	}
}

func TestTheHolderOfALockIsKnownWithoutTakingIt(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "lock")
	wantHolder(t, "no file", path, 0, false)
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("the question made %v, %v", entries, err)
	}
	l := mustTake(t, path)
	wantHolder(t, "held", path, os.Getpid(), true)
	l.Release()
	wantHolder(t, "released", path, 0, false)
	// As a killed holder leaves it.
	if err := os.WriteFile(path, []byte("4194305\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	wantHolder(t, "left by a killed process", path, 0, false)
	if text, err := os.ReadFile(path); err != nil || string(text) != "4194305\n" {
		t.Errorf("the question changed the file: %q, %v", text, err)
	}
	mustTake(t, path).Release()
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Holder(path); err == nil {
		t.Error("a file that any user can lock was asked")
	}
}

// A process that only asks for the holder does not count as one.
func TestALockIsTakenBesideProcessesThatAskForItsHolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	asking, err := os.OpenFile(path, os.O_RDONLY|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if shared, err := tryShared(asking); err != nil || !shared {
		t.Fatal(shared, err)
	}
	time.AfterFunc(50*time.Millisecond, func() { _ = asking.Close() })
	mustTake(t, path).Release()
	// One that never ends is not waited for.
	stopped, err := os.OpenFile(path, os.O_RDONLY|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer stopped.Close()
	if err := unix.Flock(int(stopped.Fd()), unix.LOCK_SH); err != nil {
		t.Fatal(err)
	}
	var held *HeldError
	if l, err := Take(path); !errors.As(err, &held) {
		l.Release()
		t.Errorf("beside a process that asks for ever: %v", err)
	}
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		t.Error("the file is gone")
	}
}
