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
	"github.com/daybook-project/daybook/vm/vmtest"
)

// A thread commits an inode, and waits for the disk. The inode looks clean meanwhile. A sync of it
// returns when it is committed, and not before.
func jfsSyncMeanwhile(t *testing.T, s system) {
	if !delays(t) {
		return
	}
	fsync := func(file *os.File, _ string) error { return file.Sync() }
	syncfs := func(_ *os.File, dir string) error { return atomicfile.SyncFileSystem(dir) }
	t.Run("fsync while it is written back", func(t *testing.T) { syncMeanwhile(t, s, syncfs, fsync) })
	t.Run("syncfs while it is synced", func(t *testing.T) { syncMeanwhile(t, s, fsync, syncfs) })
}

func syncMeanwhile(t *testing.T, s system, first, second func(file *os.File, dir string) error) {
	d := newDevice(t, vmtest.Device(t, "disk0"))
	node := must(t, "dmsetup", "info", "-c", "--noheadings", "-o", "blkdevname", d.name)
	v := s.make(t, plan{disk: filepath.Join("/dev", strings.TrimSpace(node))})
	file := create(t, filepath.Join(v.dir, "file"))
	if err := file.Sync(); err != nil {
		t.Fatal(err)
	}
	// The inode's page is at home, and not in memory.
	v.carryHome()
	dropCaches(t)
	// Reads take seconds, writes do not.
	d.become(d.delaying(3*time.Second, 0, 0))
	before := v.statistics()
	if err := file.Chmod(0o600); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- first(file, v.dir) }()
	// If this is too short or too long, the test finds less, and does not fail.
	time.Sleep(time.Second)
	err := second(file, v.dir)
	after := v.statistics()
	if err := errors.Join(err, <-ended, file.Close()); err != nil {
		t.Error(err)
	}
	d.become(d.working())
	if after["handles"] == before["handles"] || after["committed_tid"] == before["committed_tid"] {
		t.Errorf("after the second sync there are %d handles and the transaction %d, before %d and %d: the inode is not committed",
			after["handles"], after["committed_tid"], before["handles"], before["committed_tid"])
	}
	v.end(nil)
}

// A commit waits for the flush of the disk. Meanwhile data of two other files is overwritten and
// synced, which logs nothing. Each of these syncs needs a flush that begins later. When that
// one has begun, it waits for the disk, and no sync may return.
func jfsSyncsTogether(t *testing.T, s system) {
	if !delays(t) {
		return
	}
	d := newDevice(t, vmtest.Device(t, "disk0"))
	v := s.make(t, plan{disk: d.node(), blocks: 8192})
	var files []*os.File
	overwrite := func(file *os.File, with byte) {
		t.Helper()
		if _, err := file.WriteAt(bytes.Repeat([]byte{with}, 4096), 0); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 3 {
		file := create(t, filepath.Join(v.dir, fmt.Sprint("file", n)))
		overwrite(file, 1)
		files = append(files, file)
	}
	if err := atomicfile.SyncFileSystem(v.dir); err != nil {
		t.Fatal(err)
	}
	committed, synced := make(chan error, 1), make(chan error, 2)
	d.become(d.delaying(0, 0, untilReplaced))
	defer d.become(d.working())
	if err := files[0].Chmod(0o600); err != nil {
		t.Fatal(err)
	}
	go func() { committed <- files[0].Sync() }()
	if !await(func() bool { return d.delayed().flushes > 0 || len(committed) > 0 }) || len(committed) > 0 {
		t.Fatal("the commit does not wait for the disk")
	}
	said := traced(t, "events/jfsnvj/jfsnvj_request_commit", "")
	for _, file := range files[1:] {
		overwrite(file, 2)
		go func() { synced <- unix.Fdatasync(int(file.Fd())) }()
	}
	// The thread of the journal asks for commits, too.
	asked := func() int { return strings.Count(said(), "\n") - strings.Count(said(), "nvj/") }
	if !await(func() bool { return asked() >= 2 || len(synced) > 0 }) || len(synced) > 0 {
		t.Fatal("the syncs do not wait for the commit")
	}
	d.become(d.delaying(0, 0, untilReplaced)) // the commit's flush ends, later ones wait
	if err := <-committed; err != nil {
		t.Fatal(err)
	}
	if !await(func() bool { return d.delayed().flushes >= 2 || len(synced) > 0 }) {
		t.Errorf("%d flushes wait, not those of two syncs", d.delayed().flushes)
	}
	if len(synced) > 0 {
		t.Error("a sync has returned before a flush has ended that began after it")
	}
	d.become(d.working())
	if err := errors.Join(<-synced, <-synced); err != nil {
		t.Error(err)
	}
	for _, file := range files {
		if err := file.Close(); err != nil {
			t.Error(err)
		}
	}
	v.end(nil)
}

// The disk's writes fail. The file system takes no more changes, and when the disk
// works again all that was told to be permanent is there.
func jfsWriteErrors(t *testing.T, s system) {
	d := newDevice(t, vmtest.Device(t, "disk0"))
	node := must(t, "dmsetup", "info", "-c", "--noheadings", "-o", "blkdevname", d.name)
	v := s.make(t, plan{disk: filepath.Join("/dev", strings.TrimSpace(node)), size: s.smallestJournal()})
	check := jfsScripted(t, v.dir, 2, scaled(200, 2000))
	if err := atomicfile.SyncFileSystem(v.dir); err != nil {
		t.Fatal(err)
	}
	// They are in the region, and not at home.
	const before = 20
	if err := syncedDirectories(v.dir, 0, before); err != nil {
		t.Fatal(err)
	}
	d.become(d.failing())
	told, err := directoriesUntilError(v.dir, before)
	if !errors.Is(err, unix.EROFS) && !errors.Is(err, unix.EIO) {
		t.Fatalf("after %d directories: %v", told, err)
	}
	if err := os.Mkdir(filepath.Join(v.dir, "late"), 0o755); !errors.Is(err, unix.EROFS) {
		t.Errorf("after the errors, mkdir: %v", err)
	}
	check(v.dir)
	v.unmount()
	d.become(d.working())
	v.mount()
	check(v.dir)
	for n := range told {
		if _, err := os.Stat(filepath.Join(v.dir, "told", fmt.Sprint(n))); err != nil {
			t.Fatalf("of %d directories that were synced: %v", told, err)
		}
	}
	if told < before {
		t.Errorf("only %d directories were compared, of %d that were synced", told, before)
	}
	t.Logf("%d directories were synced before the disk failed, %d then", before, told-before)
	v.unmount()
	v.fsck()
}
