package filelock

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/filelock/locktest"
	"github.com/daybook-project/daybook/internal/needs"
)

func mustTake(t *testing.T, path string) *Lock {
	t.Helper()
	l, err := Take(path)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestALockExcludesAndNamesItsHolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	l := mustTake(t, path)
	var held *HeldError
	if _, err := Take(path); !errors.As(err, &held) || held.PID != os.Getpid() || held.Path != path {
		t.Errorf("a second lock: %v", err)
	}
	l.Release()
	l.Release() // a second call does nothing
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after the release: %v", err)
	}
	mustTake(t, path).Release()
}

// Each release removes the file that others are just opening.
func TestNoTwoHoldersWhileFilesComeAndGo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	var all sync.WaitGroup
	inside, rounds := 0, 0 // the lock guards them
	for range 4 {
		all.Go(func() {
			for done := 0; done < 500; {
				l, err := Take(path)
				var held *HeldError
				if errors.As(err, &held) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				if inside++; inside != 1 {
					t.Error("two goroutines have the lock")
				}
				inside--
				rounds++
				done++
				l.Release()
			}
		})
	}
	all.Wait()
	if rounds != 4*500 {
		t.Errorf("%d rounds", rounds)
	}
}

func TestAFileThatOthersCanOpenIsNoLock(t *testing.T) {
	dir := t.TempDir()
	for name, make := range map[string]func(path string) error{
		"readable":  func(path string) error { return errors.Join(os.WriteFile(path, nil, 0o600), os.Chmod(path, 0o604)) },
		"group's":   func(path string) error { return errors.Join(os.WriteFile(path, nil, 0o600), os.Chmod(path, 0o620)) },
		"a link":    func(path string) error { return os.Symlink(filepath.Join(dir, "elsewhere"), path) },
		"directory": func(path string) error { return os.Mkdir(path, 0o700) },
	} {
		path := filepath.Join(dir, name)
		if err := make(path); err != nil {
			t.Fatal(err)
		}
		if _, err := Take(path); err == nil {
			t.Errorf("%s: taken", name)
		}
		if _, err := os.Lstat(path); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Take(filepath.Join(dir, "group's")); err == nil || !strings.HasSuffix(err.Error(), "run: chmod go= '"+dir+`/group'\''s'`) {
		t.Errorf("the command is not for a shell: %v", err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "elsewhere")); !errors.Is(err, fs.ErrNotExist) {
		t.Error("a link was followed")
	}
	if os.Geteuid() == 0 {
		path := filepath.Join(dir, "another's")
		if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Chown(path, 65534, 65534)); err != nil {
			t.Fatal(err)
		}
		if _, err := Take(path); err == nil || !strings.Contains(err.Error(), "belongs to user 65534") {
			t.Errorf("another's file: %v", err)
		}
	}
}

func TestTheDirectoryOfLocksIsPrivate(t *testing.T) {
	path, err := RunPath("test")
	needs.That(t, !errors.Is(err, fs.ErrPermission) && err == nil, "a directory for locks below /run")
	info, err := os.Lstat(filepath.Dir(path))
	if err != nil || info.Mode() != os.ModeDir|0o700 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	dir := filepath.Join(t.TempDir(), "made", "locks")
	if err := makePrivate(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o701); err != nil {
		t.Fatal(err)
	}
	if err := makePrivate(dir); err == nil || !strings.Contains(err.Error(), "chmod go= "+dir) {
		t.Errorf("a directory that others can enter: %v", err)
	}
}

func try(t *testing.T, path string) (stranger int, err error) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	return TryEarlier(file)
}

func TestAnEarlierDaybookIsRespectedAndOthersAreNot(t *testing.T) {
	free := t.TempDir()
	if stranger, err := try(t, free); stranger != 0 || err != nil {
		t.Errorf("nobody's: %d, %v", stranger, err)
	}
	if stranger, err := try(t, free); stranger != 0 || err != nil {
		t.Errorf("this process's own: %d, %v", stranger, err)
	}
	earlier := t.TempDir()
	pid, release := locktest.Hold(t, earlier, locktest.EarlierDaybook(t, t.TempDir()))
	var held *HeldError
	if stranger, err := try(t, earlier); !errors.As(err, &held) || held.PID != pid || stranger != 0 {
		t.Errorf("an earlier Daybook's: %d, %v; want process %d", stranger, err, pid)
	}
	path := filepath.Join(t.TempDir(), "lock")
	if _, err := TakeBoth(path, earlier); !errors.As(err, &held) || held.PID != pid {
		t.Errorf("beside an earlier Daybook: %v", err)
	}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := Await(short, func() (*Lock, error) { return TakeBoth(path, earlier) }); !errors.As(err, &held) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("waiting for an earlier Daybook: %v", err)
	}
	release()
	l, err := Await(t.Context(), func() (*Lock, error) { return TakeBoth(path, earlier) })
	if err != nil {
		t.Fatal(err)
	}
	l.Release()
	other := t.TempDir()
	pid, _ = locktest.Hold(t, other)
	if stranger, err := try(t, other); err != nil || stranger != pid {
		t.Errorf("another program's: %d, %v; want %d", stranger, err, pid)
	}
}

func TestNoOtherUserPassesForAnEarlierDaybook(t *testing.T) {
	needs.Root(t)
	home, err := os.MkdirTemp("", "daybook-filelock-") // t.TempDir is closed to others
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(home); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(home, 0o755); err != nil {
		t.Fatal(err)
	}
	// With the set-user-ID bit it runs as root, like su(1) while it waits for a
	// password.
	for name, mode := range map[string]os.FileMode{"plain": 0o755, "set-user-id": os.ModeSetuid | 0o755} {
		dir := filepath.Join(home, name)
		if err := errors.Join(os.Mkdir(dir, 0o755), os.Chmod(dir, 0o755)); err != nil {
			t.Fatal(err)
		}
		daybook := locktest.EarlierDaybook(t, dir)
		if err := os.Chmod(daybook, mode); err != nil {
			t.Fatal(err)
		}
		pid, release := locktest.Hold(t, dir, locktest.AsNobody(t, daybook)...)
		if stranger, err := try(t, dir); err != nil || stranger != pid {
			t.Errorf("%s: %d, %v; want to pass over process %d", name, stranger, err, pid)
		}
		release()
	}
}
