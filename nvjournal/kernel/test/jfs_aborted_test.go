package test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/atomicfile"
	"github.com/daybook-project/daybook/nvjournal/kernel/test/tree"
	"github.com/daybook-project/daybook/vm/vmtest"
)

// A file is removed from a full disk, and the commit of that fails. So the file exists after
// recovery. Its blocks are not free for another file that is open and grows, and they are not
// discarded.
func jfsLostFrees(t *testing.T, s system) {
	if !delays(t) {
		return
	}
	for _, option := range []string{"nodiscard", "discard"} {
		t.Run(option, func(t *testing.T) { loseFrees(t, s, option) })
	}
}

func loseFrees(t *testing.T, s system, option string) {
	d := newDevice(t, vmtest.Device(t, "disk0"))
	bad := deviceNamed(t, "bad", d.disk)
	v := s.make(t, plan{disk: d.node(), blocks: 8192, options: []string{option}})
	open := create(t, filepath.Join(v.dir, "open"))
	blocks := v.fillWithFile("removed")
	v.carryHome()
	before := discarded(t, v.disk)
	bad.become(bad.failing())
	d.become(d.onlyFlushes(bad))
	seen := logMark(t)
	if err := os.Remove(filepath.Join(v.dir, "removed")); err != nil && !errors.Is(err, unix.EIO) {
		t.Fatal(err)
	}
	if !await(func() bool { return strings.Contains(logSince(t, seen), "the journal has failed") }) {
		t.Fatal("the commit of the removal does not fail")
	}
	// JFS's threads end the transaction. If this is too short, the test finds less.
	written := 0
	for range 50 {
		for ; ; written++ {
			if _, err := open.WriteAt(bytes.Repeat([]byte{0xff}, 4096), int64(written)*4096); err != nil {
				break
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	if written > 0 {
		t.Errorf("%d blocks were written to another file on a full disk", written)
	}
	_ = open.Sync()
	_ = open.Close()
	d.become(d.working())
	v.unmount()
	if after := discarded(t, v.disk); after != before {
		t.Errorf("%d sectors were discarded after the abort", after-before)
	}
	v.mount()
	v.hasNumbered("removed", blocks)
	v.end(nil)
}

// JFS's thread that ends a transaction waits for the disk. An umount waits for it, however long
// that takes.
func jfsSlowEnd(t *testing.T, s system) {
	if !delays(t) {
		return
	}
	whole := newDevice(t, vmtest.Device(t, "disk0"))
	v := s.make(t, plan{disk: whole.node(), blocks: 8192})
	path := filepath.Join(v.dir, "removed")
	blocks := v.fillWithFile("removed")
	v.unmount()
	// The page above those of the bits. It changes if more blocks beside each other are free.
	const summary = 3
	block := mapPages(takeImage(t, v.disk, 0, v.blocks*4096).bytes)[summary]
	v.mount()
	_, before := v.statfs()
	slow := deviceNamed(t, "slow", whole.disk)
	slow.become(slow.delaying(untilReplaced, 0, 0))
	on := slow.node()
	whole.become(whole.except(block, func(sector uint64) string { return fmt.Sprintf("linear %s %d", on, sector) }))
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if !await(func() bool { return slow.delayed().reads > 0 }) {
		t.Fatal("no thread waits for the page of the map")
	}
	seen := logMark(t)
	ended := make(chan error, 1)
	go func() { ended <- unix.Unmount(v.dir, 0) }()
	if !await(func() bool {
		return strings.Contains(logSince(t, seen), "transactions have not ended") || len(ended) > 0
	}) || len(ended) > 0 {
		t.Error("the umount does not wait for the transaction")
	}
	slow.become(slow.working())
	if !await(func() bool { return len(ended) > 0 }) {
		t.Fatal("the umount does not end")
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	v.mounted = false
	whole.become(whole.working())
	v.fsck()
	v.mount()
	if _, after := v.statfs(); after < before+uint64(blocks) {
		t.Errorf("%d blocks are free after a file of %d was removed, %d before", after, blocks, before)
	}
	v.end(nil)
}

// A remount read-write fails because the disk cannot be marked, or because the first page of a map
// cannot be read. The file system stays read-only and can be read, also what is not in memory, and
// can be remounted when the disk works again.
func jfsFailedRemount(t *testing.T, s system) {
	t.Run("mark", func(t *testing.T) { failRemount(t, s, func(d *device) string { return d.failing() }) })
	for inode, name := range map[int]string{2: "block map", 16: "inode map"} {
		t.Run(name, func(t *testing.T) {
			failRemount(t, s, func(d *device) string {
				return d.except(pagesOf(takeImage(t, d.disk, 0, 8192*4096).bytes, inode)[0], func(uint64) string { return "error" })
			})
		})
	}
}

func failRemount(t *testing.T, s system, failing func(d *device) string) {
	// An access to a map that is not there ends the guest, rather than a thread that others wait for.
	setParameters(t, "/proc/sys/kernel/panic_on_oops", "1")
	t.Cleanup(func() { setParameters(t, "/proc/sys/kernel/panic_on_oops", "0") })
	d := newDevice(t, vmtest.Device(t, "disk0"))
	v := s.make(t, plan{disk: d.node(), blocks: 8192})
	check := jfsScripted(t, v.dir, 2, scaled(100, 1000))
	if err := v.remountReadOnly(); err != nil {
		t.Fatal(err)
	}
	want := v.take()
	blocks, free := v.statfs()
	d.become(failing(d))
	writable := func() error { return unix.Mount("", v.dir, "", unix.MS_REMOUNT, v.data()) }
	for range 2 {
		if err := writable(); !errors.Is(err, unix.EIO) {
			t.Errorf("a remount whose disk fails: %v", err)
		}
		dropCaches(t)
		if nowBlocks, nowFree := v.statfs(); nowBlocks != blocks || nowFree != free {
			t.Errorf("%d blocks, %d are free, before the remount %d and %d", nowBlocks, nowFree, blocks, free)
		}
		if err := tree.Compare(want, v.take()); err != nil {
			t.Errorf("while the disk fails: %v", err)
		}
		if err := os.Mkdir(filepath.Join(v.dir, "late"), 0o755); !errors.Is(err, unix.EROFS) {
			t.Errorf("mkdir after a remount that failed: %v", err)
		}
	}
	d.become(d.working())
	if err := tree.Compare(want, v.take()); err != nil {
		t.Error(err)
	}
	if err := writable(); err != nil {
		t.Fatalf("a remount after the disk works again: %v", err)
	}
	if err := os.Mkdir(filepath.Join(v.dir, "late"), 0o755); err != nil {
		t.Error(err)
	}
	check(v.dir)
	v.end(check)
}

// A file that is open for reading is synced. Meanwhile the file system is remounted read-only,
// which closes the journal. That waits for the sync.
func jfsSyncAndRemount(t *testing.T, s system) {
	needsKprobes(t)
	v := s.make(t, plan{})
	path := filepath.Join(v.dir, "file")
	if err := os.WriteFile(path, []byte("content"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := atomicfile.SyncFileSystem(v.dir); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	synced, remounted := make(chan error, 1), make(chan error, 1)
	release := heldUp(t, "jfsnvj:nvj_commit", 0, func() { synced <- file.Sync() })
	go func() { remounted <- v.remountReadOnly() }()
	// If this is too short, the test finds less.
	time.Sleep(3 * time.Second)
	if len(remounted) > 0 {
		t.Error("the remount does not wait for the sync, which uses the journal")
	}
	release()
	if !await(func() bool { return len(synced) > 0 && len(remounted) > 0 }) {
		t.Fatal("the sync or the remount does not end")
	}
	if err := errors.Join(<-synced, <-remounted, file.Close()); err != nil {
		t.Error(err)
	}
	v.end(nil)
}

// JFS finds an error before the journal is open, and marks the disk dirty. The disk does not wait for
// a region, so that fsck.jfs can repair it.
func jfsDamagedMap(t *testing.T, s system) {
	v := s.make(t, plan{blocks: 8192})
	check := jfsScripted(t, v.dir, 2, 100)
	v.unmount()
	disk, err := os.OpenFile(v.disk, os.O_RDWR|unix.O_SYNC, 0)
	if err != nil {
		t.Fatal(err)
	}
	// Of the aggregate's inode 2, the block map: the number of the next entry in its extents.
	if _, err := disk.WriteAt([]byte{0, 0}, 0xb000+2*512+224+18); err != nil {
		t.Fatal(err)
	}
	if err := disk.Close(); err != nil {
		t.Fatal(err)
	}
	if err := v.tryMount(); err == nil {
		t.Error("a disk whose block map has no extents was mounted")
		v.unmount()
	}
	if v.needsRecovery() {
		t.Error("the disk waits for its region, and fsck.jfs does not repair it")
	}
	out, _ := run("fsck.jfs", "-f", "-p", v.disk)
	t.Logf("fsck.jfs says:\n%s", out)
	v.mount()
	check(v.dir)
	v.end(check)
}
