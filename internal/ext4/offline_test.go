package ext4

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/needs"
)

func TestParseMinimum(t *testing.T) {
	if got, err := parseMinimum("resize2fs 1.47.0 (5-Feb-2023)\nEstimated minimum size of the filesystem: 6753\n", 4096); err != nil || got != 6753*4096 {
		t.Errorf("%d, %v", got, err)
	}
	for _, text := range []string{"", "Estimated minimum size of the filesystem:\n", "minimum size of the filesystem: x\n", "Estimated minimum size of the filesystem: 99999999999999999\n"} {
		if got, err := parseMinimum(text, 4096); err == nil {
			t.Errorf("%q gives %d", text, got)
		}
	}
}

func TestOnlyResizeInode(t *testing.T) {
	const only = "Resize inode not valid.  Recreate? no\n\nPass 1: Checking inodes, blocks, and sizes\nInode 7, i_blocks is 2342, should be 2.  Fix? no\n"
	for report, want := range map[string]bool{
		only: true, "": false, "Pass 1: Checking inodes, blocks, and sizes\n": false,
		only + "Entry 'a' in / (2) has deleted/unused inode 13.  Clear? no\n": false,
		only + "Block bitmap differences:  -5\nFix? no\n":                     false,
	} {
		if got := onlyResizeInode(report); got != want {
			t.Errorf("%q: %v", report, got)
		}
	}
}

func offlineImage(t *testing.T) Offline {
	t.Helper()
	for _, tool := range []string{"mke2fs", "e2fsck", "resize2fs", "debugfs", "tune2fs"} {
		needs.Tool(t, tool)
	}
	image := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, 64<<20); err != nil {
		t.Fatal(err)
	}
	if err := Make(t.Context(), image, MakeOptions{BlockSizeBytes: 4096}); err != nil {
		t.Fatal(err)
	}
	return Offline{Device: image}
}

// The resize inode is invalid, as resize2fs leaves it.
func TestAnInvalidResizeInodeIsRepaired(t *testing.T) {
	o := offlineImage(t)
	if _, err := o.run(t.Context(), "debugfs", "-w", "-R", "set_inode_field <7> block[0] 1", o.Device); err != nil {
		t.Fatal(err)
	}
	if _, _, err := o.Check(t.Context(), true); !errors.Is(err, ErrDamaged) {
		t.Fatalf("nothing is damaged: %v", err)
	}
	if err := o.CheckResized(t.Context()); err != nil {
		t.Error(err)
	}
	if _, corrected, err := o.Check(t.Context(), true); err != nil || corrected {
		t.Errorf("%v, %v", corrected, err)
	}
	// Other damage is not repaired.
	if _, err := o.run(t.Context(), "debugfs", "-w", "-R", "clri <2>", o.Device); err != nil {
		t.Fatal(err)
	}
	if err := o.CheckResized(t.Context()); !errors.Is(err, ErrDamaged) {
		t.Errorf("%v", err)
	}
}

func TestAnIdentityAndAMinimum(t *testing.T) {
	o := offlineImage(t)
	const uuid = "01234567-89ab-4cde-8f01-23456789abcd"
	if _, _, err := o.Check(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if err := o.SetUUID(t.Context(), uuid); err != nil {
		t.Fatal(err)
	}
	s, err := ReadSuperblock(o.Device)
	if err != nil || s.UUID.String() != uuid {
		t.Errorf("%+v, %v", s, err)
	}
	least, err := o.MinimumBytes(t.Context())
	if err != nil || least == 0 || least > 64<<20 {
		t.Errorf("%d, %v", least, err)
	}
	if err := o.Resize(t.Context(), least-4096, ""); err == nil {
		t.Error("it became shorter than its minimum")
	}
	if err := o.TakeJournalInside(t.Context()); err != nil {
		t.Errorf("it is already internal: %v", err)
	}
}

// A tool that still runs holds the lock of the process that started it: its
// open file is inherited.
func TestAToolHoldsTheLock(t *testing.T) {
	dir, tools := t.TempDir(), t.TempDir()
	// It fails if the lock was taken through another open file.
	script := "#!/bin/sh\nreadlink /proc/$$/fd/3 && flock -n 3 && ! flock -n " + dir + " true\n"
	if err := os.WriteFile(filepath.Join(tools, "e2fsck"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	needs.Tool(t, "flock")
	t.Setenv("PATH", tools+":"+os.Getenv("PATH"))
	lock, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		t.Fatal(err)
	}
	if report, _, err := (Offline{Device: "x", Lock: lock}).Check(t.Context(), false); err != nil || strings.TrimSpace(report) != dir {
		t.Errorf("%q, %v", report, err)
	}
	other, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if report, corrected, err := (Offline{Device: "x", Lock: other}).Check(t.Context(), false); err == nil && !corrected {
		t.Errorf("another open file has the lock, too: %q", report)
	}
}

func awaitFile(t *testing.T, path string) {
	t.Helper()
	for range 12000 {
		if text, err := os.ReadFile(path); err == nil && strings.HasSuffix(string(text), "\n") {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("%s does not appear", path)
}

func TestAToolEndsWithItsContext(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "e2fsck"), []byte("#!/bin/sh\necho >"+dir+"/started\nexec sleep 1000\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		awaitFile(t, filepath.Join(dir, "started"))
		cancel()
	}()
	if _, _, err := (Offline{Device: "x"}).Check(ctx, true); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
