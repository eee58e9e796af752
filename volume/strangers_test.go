package volume

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/filelock/locktest"
	"github.com/daybook-project/daybook/internal/needs"
	"github.com/daybook-project/daybook/volume/internal/store"
)

// lockAsNobody makes the user nobody hold the flock of each path that it can open,
// until the test ends. It returns these paths.
func lockAsNobody(t *testing.T, paths []string) (locked []string) {
	t.Helper()
	script := `for path; do [ -r "$path" ] && exec {fd}<"$path" && flock --nonblock --shared $fd && echo "$path"; done; echo; exec cat`
	needs.Tool(t, "flock")
	nobody := append(locktest.AsNobody(t, needs.Tool(t, "bash"), "-c", script, "bash"), paths...)
	cmd := exec.Command(nobody[0], nobody[1:]...)
	cmd.Stderr = os.Stderr
	input, err1 := cmd.StdinPipe()
	output, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(input.Close(), cmd.Wait()); err != nil {
			t.Error(err)
		}
	})
	var text strings.Builder
	for buffer := make([]byte, 4096); !strings.HasSuffix(text.String(), "\n\n") && text.String() != "\n"; {
		n, err := output.Read(buffer)
		text.Write(buffer[:n])
		if err != nil {
			t.Fatalf("%v after %q", err, text.String())
		}
	}
	return strings.Fields(text.String())
}

// openToAll lets other users enter the rig's home, like a directory that an
// administrator made.
func (r *rig) openToAll() {
	r.t.Helper()
	dir := filepath.Join(r.home, "pool")
	if err := errors.Join(os.Chmod(r.home, 0o755), os.Mkdir(dir, 0o755), os.Chmod(dir, 0o755)); err != nil {
		r.t.Fatal(err)
	}
	r.open(dir)
}

func TestLocksOfOtherUsersDelayNothing(t *testing.T) {
	r := newHome(t)
	r.openToAll()
	registry := Registry{StateDir: filepath.Join(r.home, "state")}
	if err := errors.Join(os.Mkdir(registry.StateDir, 0o755), os.Chmod(registry.StateDir, 0o755)); err != nil {
		t.Fatal(err)
	}
	first, second := r.name("first"), r.name("second")
	r.keep(first, CreateOptions{Weight: 300})
	r.attach(first, AttachOptions{})
	paths := []string{r.pool.dir, registry.StateDir}
	for _, file := range r.files() {
		paths = append(paths, filepath.Join(r.pool.dir, file))
	}
	locked := lockAsNobody(t, paths)
	if !slices.Contains(locked, r.pool.dir) || !slices.Contains(locked, registry.StateDir) {
		t.Fatalf("the user nobody has locked only %q", locked)
	}
	t.Logf("locked by the user nobody: %q", locked)

	var warnings strings.Builder
	pool, err := Open(t.Context(), r.pool.dir, PoolOptions{Log: slog.New(slog.NewTextHandler(&warnings, nil))})
	if err != nil {
		t.Fatal(err)
	}
	operations := []struct {
		what string
		do   func(ctx context.Context) error
	}{
		{"note", func(ctx context.Context) error { return registry.Note(ctx, pool) }},
		{"quota", func(ctx context.Context) error { return pool.SetQuota(ctx, 1<<40) }},
		{"create", func(ctx context.Context) error {
			_, err := pool.Create(ctx, second, CreateOptions{SizeBytes: testBytes, Weight: 200})
			return err
		}},
		{"attach", func(ctx context.Context) error {
			_, err := pool.Attach(ctx, second, AttachOptions{Target: r.target(second)})
			return err
		}},
		{"snapshot", func(ctx context.Context) error {
			_, err := pool.Snapshot(ctx, first, "snap", SnapshotOptions{})
			return err
		}},
		{"keep", func(context.Context) error {
			keeper, err := pool.Keeper()
			if err != nil {
				return err
			}
			keeper.Once()
			return keeper.Close()
		}},
		{"repair", func(ctx context.Context) error { _, err := pool.Repair(ctx); return err }},
		{"detach", func(ctx context.Context) error { return pool.Detach(ctx, second) }},
		{"delete", func(ctx context.Context) error { return pool.Delete(ctx, second, DeleteOptions{}) }},
		{"delete the snapshot", func(ctx context.Context) error { return pool.DeleteSnapshot(ctx, first, "snap") }},
	}
	var delayed []string
	for _, operation := range operations {
		began := time.Now()
		if err := operation.do(t.Context()); err != nil {
			t.Errorf("%s: %v", operation.what, err)
		}
		if time.Since(began) > store.LockPatience/2 {
			delayed = append(delayed, operation.what)
		}
	}
	// A busy host delays some, but a wait for these locks would delay nearly all.
	if len(delayed) > len(operations)/2 {
		t.Errorf("delayed: %q", delayed)
	}
	if text := warnings.String(); strings.Count(text, "another user's process has locked") != 1 {
		t.Errorf("want one warning of the lock:\n%s", text)
	}
	r.detach(first)
	r.wantKept(first)
}

// They must not both change the pool at the same time, also if an administrator
// made the directory.
func TestAnEarlierVersionAndThisOneExcludeEachOther(t *testing.T) {
	r := newHome(t)
	r.openToAll()
	ctx := t.Context()
	l, err := r.pool.files.Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	earlier, err := os.Open(r.pool.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = earlier.Close() }()
	wantError(t, store.TryFlock(earlier), ErrBusy, "")
	l.Release()

	pid, release := locktest.Hold(t, r.pool.dir, locktest.EarlierDaybook(t, r.home))
	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	wantError(t, r.pool.SetQuota(short, 1<<40), ErrBusy, fmt.Sprintf("%s is in use: process %d", r.pool.dir, pid))
	release()
	if err := r.pool.SetQuota(ctx, 1<<40); err != nil {
		t.Error(err)
	}
}

// Only Daybook can open the directories that it locks.
func TestLockedDirectoriesAreClosedToOthers(t *testing.T) {
	r := newHome(t)
	r.openToAll()
	name := r.name("v")
	r.create(name, CreateOptions{})
	for _, dir := range []string{filepath.Join(r.pool.dir, store.WorkDir), filepath.Join(r.pool.dir, store.VolumesDir), r.pool.files.VolumeDir(name)} {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		l, err := store.LockDirectory(dir)
		if err != nil {
			t.Fatal(err)
		}
		l.Release()
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm()&0o066 != 0 {
			t.Errorf("%s: %v, %v", dir, info.Mode(), err)
		}
	}
	r.wantDetached(name)
}
