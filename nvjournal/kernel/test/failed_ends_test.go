package test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/atomicfile"
	"github.com/daybook-project/daybook/vm/vmtest"
)

// onlyTheSuperblock is a table with which each write fails but those of the first block.
func (d *device) onlyTheSuperblock() string {
	return fmt.Sprintf("0 8 linear %s 0\n8 %d flakey %[1]s 8 0 60 1 error_writes", d.disk, d.sectors-8)
}

// allButTheSuperblock is a table with which each write of the first block fails.
func (d *device) allButTheSuperblock() string {
	return fmt.Sprintf("0 8 flakey %s 0 0 60 1 error_writes\n8 %d linear %[1]s 8", d.disk, d.sectors-8)
}

// flakyDirectories are synced in a flakyVolume.
const flakyDirectories = 20

// flakyVolume is a volume with directories, on a device whose writes can be made to fail. The
// device does nothing at a sync that has nothing to commit.
func flakyVolume(t *testing.T, s system) (*device, *volume) {
	t.Helper()
	d := newDevice(t, vmtest.Device(t, "disk0"))
	v := s.make(t, plan{disk: d.node(), size: s.smallestJournal(), options: []string{"errors=remount-ro", "nobarrier"}})
	if err := syncedDirectories(v.dir, 0, flakyDirectories); err != nil {
		t.Fatal(err)
	}
	return d, v
}

// endWithDirectories mounts a flakyVolume, with the region if it waits for that, and ends it.
func (v *volume) endWithDirectories() {
	v.t.Helper()
	check := func(dir string) { hasDirectories(v.t, dir, flakyDirectories) }
	v.mount()
	check(v.dir)
	v.endAfterErrors(check)
}

// endAfterErrors ends a volume whose superblock records an error, which e2fsck reports: so it is
// repaired first, as an operator would do.
func (v *volume) endAfterErrors(check func(dir string)) {
	v.t.Helper()
	v.unmount()
	if out, err := run("e2fsck", "-fy", v.disk); err != nil && !strings.Contains(out, "FILE SYSTEM WAS MODIFIED") {
		v.t.Fatalf("e2fsck: %v: %s", err, out)
	}
	v.mount()
	v.end(check)
}

// hasDirectories checks that all directories of syncedDirectories are there.
func hasDirectories(t *testing.T, dir string, count int) {
	t.Helper()
	for n := range count {
		if _, err := os.Stat(filepath.Join(dir, "told", fmt.Sprint(n))); err != nil {
			t.Fatalf("of %d directories that were synced: %v", count, err)
		}
	}
}

// An umount cannot write all blocks home. The disk then waits for its region, which has them, and
// neither ext4 nor e2fsck accepts it without.
func failedUmount(t *testing.T, s system) {
	d, v := flakyVolume(t, s)
	d.become(d.onlyTheSuperblock())
	v.unmount()
	d.become(d.working())
	if !v.needsRecovery() {
		t.Error("the disk says that it has everything")
	}
	v.endWithDirectories()
}

// A freeze cannot write the superblock, which would remove the mark. The file system goes on, and
// the disk waits for its region; or it accepts no change.
func failedMark(t *testing.T, s system) {
	d, v := flakyVolume(t, s)
	// All is home then, and the next freeze writes the superblock alone.
	if err := errors.Join(v.ioctl(fifreeze, nil), v.ioctl(fithaw, nil)); err != nil {
		t.Fatal(err)
	}
	d.become(d.allButTheSuperblock())
	if err := v.ioctl(fifreeze, nil); !errors.Is(err, unix.EIO) {
		t.Errorf("a freeze: %v", err)
		_ = v.ioctl(fithaw, nil)
	}
	d.become(d.working())
	if err := v.superblockComesHome(); err == nil && !v.needsRecovery() {
		t.Error("the disk does not wait for its region, and the file system goes on")
	}
	v.unmount()
	v.endWithDirectories()
}

// superblockComesHome changes the superblock, which has the first open file without a name, and
// waits for two checkpoints.
func (v *volume) superblockComesHome() error {
	v.t.Helper()
	_ = atomicfile.SyncFileSystem(v.dir) // reports the write that failed
	file, err := os.Create(filepath.Join(v.dir, "nameless"))
	if err != nil {
		return err
	}
	defer file.Close()
	if err := os.Remove(file.Name()); err != nil {
		return err
	}
	for end := v.statistics()["checkpoints"] + 2; v.statistics()["checkpoints"] < end; {
		if err := errors.Join(churn(filepath.Join(v.dir, "churn"), 60), atomicfile.SyncFileSystem(v.dir)); err != nil {
			return err
		}
	}
	return nil
}

// A thaw cannot mark the disk. Whatever was committed then would be lost if the host failed, so
// nothing is.
func failedThaw(t *testing.T, s system) {
	d, v := flakyVolume(t, s)
	if err := v.ioctl(fifreeze, nil); err != nil {
		t.Fatal(err)
	}
	changed := v.changes()
	time.Sleep(100 * time.Millisecond)
	d.become(d.failing())
	if err := v.ioctl(fithaw, nil); err != nil {
		t.Errorf("a thaw: %v", err)
	}
	if !await(func() bool { return len(changed) > 0 }) {
		t.Fatal("a change of the file system still waits")
	}
	if err := <-changed; !errors.Is(err, unix.EROFS) && !errors.Is(err, unix.EIO) {
		t.Errorf("a change of a file system whose disk is not marked: %v", err)
	}
	d.become(d.working())
	v.unmount()
	v.endWithDirectories()
}
