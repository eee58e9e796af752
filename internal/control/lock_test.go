package control

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/filelock/locktest"
	"github.com/daybook-project/daybook/internal/needs"
)

// someDisk is the directory of any disk of the host, which is only locked.
func someDisk(t *testing.T) (name, dir string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(blockdev.Host.Sys, "block"))
	needs.That(t, err == nil && len(entries) > 0, "a disk in /sys/block")
	name = entries[len(entries)-1].Name()
	return name, DeviceDir(name)
}

func TestOtherUsersLocksDoNotStopControl(t *testing.T) {
	name, dir := someDisk(t)
	flock := needs.Tool(t, "flock")
	locktest.Hold(t, dir, locktest.AsNobody(t, flock, "--shared")...)
	lock, err := AcquireLock(t.TempDir(), name, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Release()
	// Two new versions exclude each other as before.
	var busy *BusyError
	if _, err := AcquireLock(t.TempDir(), name, dir); !errors.As(err, &busy) || busy.PID != os.Getpid() || strings.Contains(err.Error(), "cannot control") {
		t.Errorf("a second lock: %v", err)
	}
	// And no other user can open the locked files.
	files, err := filepath.Glob("/run/daybook/locks/disk-*")
	if err != nil || len(files) == 0 {
		t.Fatalf("%q, %v", files, err)
	}
	for _, file := range files {
		try := locktest.AsNobody(t, flock, "--nonblock", file, "true")
		if output, err := exec.Command(try[0], try[1:]...).CombinedOutput(); err == nil {
			t.Errorf("another user locked %s: %s", file, output)
		}
	}
}

func TestAReadOnlyStateDirectoryIsSaidToBeReplaceable(t *testing.T) {
	needs.Root(t)
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Unmount(dir, 0) }()
	if _, err := AcquireLock(dir, "sda", ""); err == nil || !strings.Contains(err.Error(), "choose another state_dir") {
		t.Errorf("%v", err)
	}
}

// A process that was started before an upgrade, with another state directory.
func TestAnEarlierControlIsRespected(t *testing.T) {
	needs.Root(t)
	name, dir := someDisk(t)
	pid, release := locktest.Hold(t, dir, locktest.EarlierDaybook(t, t.TempDir()))
	var busy *BusyError
	if _, err := AcquireLock(t.TempDir(), name, dir); !errors.As(err, &busy) || busy.PID != pid {
		t.Errorf("%v; want busy with process %d", err, pid)
	}
	release()
	lock, err := AcquireLock(t.TempDir(), name, dir)
	if err != nil {
		t.Fatal(err)
	}
	lock.Release()
}

// Whoever can open the file can also hold its lock. Copies and chmod -R make it readable.
func TestALockOfTheStateIsClosedToOthersOrRefused(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "control-loop0.lock")
	refused := func(mode string) string { return "others can open it (mode " + mode + "); run: chmod go= " + path }
	for mode, want := range map[os.FileMode]string{0o600: "", 0o604: "", 0o644: "", 0o602: refused("0602"), 0o660: refused("0660")} {
		if err := errors.Join(os.WriteFile(path, []byte("12\n"), mode), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
		lock, err := AcquireLock(dir, "loop0", "")
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("mode %o: %v; want %q", mode, err, want)
		}
		if text, _ := os.ReadFile(path); want != "" && string(text) != "12\n" {
			t.Errorf("mode %o: %q was written to it", mode, text)
		}
		if info, statErr := os.Stat(path); want == "" && (statErr != nil || info.Mode() != 0o600) {
			t.Errorf("mode %o: it is then %v, %v; want 0600", mode, info.Mode(), statErr)
		}
		if err == nil {
			lock.Release()
		}
	}
}
