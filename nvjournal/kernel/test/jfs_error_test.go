package test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/atomicfile"
	"github.com/daybook-project/daybook/vm/vmtest"
)

// JFS finds an inode with the number of another one, while the journal has names that are not at
// home. A remount read-write is refused, and the names stay, also after one read-only. They are
// there after the repair that the message names, too.
func jfsRemountAfterError(t *testing.T, s system) {
	v := s.make(t, plan{blocks: 8192})
	damaged, names := filepath.Join(v.dir, "damaged"), filepath.Join(v.dir, "names")
	if err := errors.Join(os.WriteFile(damaged, nil, 0o644), os.Mkdir(names, 0o755), atomicfile.SyncFileSystem(v.dir)); err != nil {
		t.Fatal(err)
	}
	var stat unix.Stat_t
	if err := unix.Stat(damaged, &stat); err != nil {
		t.Fatal(err)
	}
	v.unmount()
	inode := v.placeOfInode(stat.Ino)
	inode.number(t, uint32(stat.Ino)+1)
	v.mount()
	const count = 50
	for n := range count {
		if err := os.WriteFile(filepath.Join(names, fmt.Sprint("name", n)), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := syncDirectory(names); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(damaged); !errors.Is(err, unix.EIO) {
		t.Errorf("an inode with another number: %v", err)
	}
	v.becomesReadOnly()
	hasNames := func(when string) {
		t.Helper()
		if entries, err := os.ReadDir(names); err != nil || len(entries) != count {
			t.Errorf("%s the directory has %d names, %v; want %d", when, len(entries), err, count)
		}
	}
	seen := logMark(t)
	if err := unix.Mount("", v.dir, "", unix.MS_REMOUNT, v.data()); !errors.Is(err, unix.EUCLEAN) {
		t.Fatalf("a remount after an error: %v", err) // else the directory might be read for ever
	}
	if log := logSince(t, seen); !strings.Contains(log, "JFS has found an error: unmount, recover the disk with nvj recover, and run fsck.jfs") {
		t.Errorf("the kernel says:\n%s", log)
	}
	hasNames("after a remount that was refused")
	if err := v.remountReadOnly(); err != nil {
		t.Errorf("a remount read-only after an error: %v", err)
	}
	hasNames("after a remount read-only")
	v.unmount()
	must(t, "nvj", "recover", v.pmem, "--offset", fmt.Sprint(v.offset), "--target", v.disk)
	inode.number(t, uint32(stat.Ino))
	if out, err := run("fsck.jfs", "-f", "-p", v.disk); err != nil && exitStatus(err) != 1 {
		t.Errorf("fsck.jfs: %v:\n%s", err, out)
	}
	v.mount()
	hasNames("after the repair")
	v.end(nil)
}

// The journal fails while another thread has the lock that the file system needs to become
// read-only. A remount read-only, as at a shutdown, succeeds before the next try.
func jfsRemountAfterAbort(t *testing.T, s system) {
	needsKprobes(t)
	d := newDevice(t, vmtest.Device(t, "disk0"))
	v := s.make(t, plan{disk: d.node(), blocks: 8192})
	if err := atomicfile.SyncFileSystem(v.dir); err != nil {
		t.Fatal(err)
	}
	d.become(d.failing())
	if err := os.Mkdir(filepath.Join(v.dir, "lost"), 0o755); err != nil {
		t.Fatal(err)
	}
	release := func() { setParameters(t, faultParameters+"function", "\n") }
	t.Cleanup(release)
	setParameters(t, faultParameters+"value", "0", faultParameters+"skip", "0", faultParameters+"function", "down_read_trylock")
	synced := syncDirectory(v.dir)
	remounted := v.remountReadOnly()
	release()
	if !errors.Is(synced, unix.EIO) {
		t.Fatalf("a commit without the disk: %v", synced)
	}
	if remounted != nil {
		t.Errorf("a remount read-only after the journal has failed: %v", remounted)
	}
	if err := unix.Mount("", v.dir, "", unix.MS_REMOUNT, v.data()); !errors.Is(err, unix.EROFS) {
		t.Errorf("a remount read-write after the journal has failed: %v", err)
	}
	v.unmount()
	d.become(d.working())
	v.mount()
	v.end(nil)
}
