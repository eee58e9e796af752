package test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/atomicfile"
	"github.com/daybook-project/daybook/vm/vmtest"
)

const (
	blocksOfUnnamed = 10
	blocksOfExtent  = 4
)

// unnamed returns a file without a name, which is the last one in its extent of inodes. The others
// have so many free inodes that JFS removes the extent with the file.
func (v *volume) unnamed() *os.File {
	v.t.Helper()
	ok := func(err error) {
		v.t.Helper()
		if err != nil {
			v.t.Fatal(err)
		}
	}
	const files, inodes = 640, 32
	of := map[int][]string{}
	last := -1
	for n := range files {
		path := filepath.Join(v.dir, fmt.Sprint("f", n))
		ok(os.WriteFile(path, nil, 0o644))
		extent := extentOf(v.t, path)
		if of[extent] = append(of[extent], path); len(of[extent]) == inodes {
			last = extent
		}
	}
	if last < 0 {
		v.t.Fatalf("no extent has %d files: %v", inodes, of)
	}
	for extent, paths := range of {
		stay := min(2, len(paths))
		if extent == last {
			stay = 1
		}
		for _, path := range paths[stay:] {
			ok(os.Remove(path))
		}
	}
	file, err := os.OpenFile(of[last][0], os.O_RDWR, 0)
	ok(err)
	_, err = file.Write(make([]byte, blocksOfUnnamed*4096))
	ok(errors.Join(err, file.Sync(), os.Remove(file.Name()), atomicfile.SyncFileSystem(v.dir)))
	return file
}

// writtenBack waits until the kernel has written back what it can.
func writtenBack(t *testing.T) {
	t.Helper()
	const expire, interval = "/proc/sys/vm/dirty_expire_centisecs", "/proc/sys/vm/dirty_writeback_centisecs"
	setParameters(t, expire, "1", interval, "10")
	time.Sleep(2 * time.Second)
	setParameters(t, expire, "3000", interval, "500")
}

func inThread(call func() error) chan error {
	ended := make(chan error, 1)
	go func() { ended <- call() }()
	return ended
}

// A file without a name is closed while the file system is frozen. The disk does not change. After the
// thaw the blocks are free.
func jfsClosedWhileFrozen(t *testing.T, s system) {
	v := s.make(t, plan{blocks: 8192})
	file := v.unnamed()
	_, free := v.statfs()
	if err := v.ioctl(fifreeze, nil); err != nil {
		t.Fatal(err)
	}
	frozen := takeImage(t, v.disk, 0, v.blocks*4096)
	closed := inThread(file.Close)
	writtenBack(t)
	if place, same := frozen.same(t); !same {
		t.Errorf("the frozen disk was written to, at byte %d", place)
	}
	if err := errors.Join(v.ioctl(fithaw, nil), <-closed); err != nil {
		t.Fatal(err)
	}
	if !await(func() bool { _, now := v.statfs(); return now >= free+blocksOfUnnamed+blocksOfExtent }) {
		t.Error("the file or its extent of inodes was not removed")
	}
	v.end(nil)
}

// JFS takes free blocks while it discards them. A thread that asks for that while the file system
// is frozen waits: the disk does not change, and nothing of it is discarded.
func jfsTrimmedWhileFrozen(t *testing.T, s system) {
	v := s.make(t, plan{blocks: 8192})
	stormedWith(t, v.dir, jfsStorm(2, 60))
	if err := v.ioctl(fifreeze, nil); err != nil {
		t.Fatal(err)
	}
	frozen, before := takeImage(t, v.disk, 0, v.blocks*4096), discarded(t, v.disk)
	trim := struct{ start, length, minimum uint64 }{0, 1 << 60, 0}
	trimmed := inThread(func() error { return v.ioctl(fitrim, unsafe.Pointer(&trim)) })
	writtenBack(t)
	if now := discarded(t, v.disk); now != before {
		t.Errorf("%d sectors of the frozen disk were discarded", now-before)
	}
	if place, same := frozen.same(t); !same {
		t.Errorf("the frozen disk was written to, at byte %d", place)
	}
	if err := errors.Join(v.ioctl(fithaw, nil), <-trimmed); err != nil {
		t.Fatal(err)
	}
	if trim.length == 0 {
		t.Error("after the thaw nothing was discarded")
	}
	v.end(nil)
}

// A freeze commits inodes of its own file system only: the disk of another one may hang.
func jfsFreezeAlone(t *testing.T, s system) {
	if !delays(t) {
		return
	}
	d := newDevice(t, vmtest.Device(t, "disk1"))
	v := s.make(t, plan{size: s.smallestJournal()})
	other := s.make(t, plan{disk: d.node(), offset: v.size, size: v.size})
	file := create(t, filepath.Join(other.dir, "file"))
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	write := func(block int64) {
		t.Helper()
		_, err := file.WriteAt(make([]byte, 4096), block*4096)
		ok(err)
	}
	write(0)
	ok(file.Sync())
	// The page of its inode is at home, and not in memory.
	other.carryHome()
	dropPages(t)
	write(2)
	d.become(d.delaying(untilReplaced, 0, 0))
	frozen := inThread(func() error { return v.ioctl(fifreeze, nil) })
	if !await(func() bool { return len(frozen) > 0 }) {
		t.Error("a freeze waits for the disk of another file system")
	}
	d.become(d.working())
	ok(errors.Join(<-frozen, v.ioctl(fithaw, nil), unix.Fdatasync(int(file.Fd())), file.Close()))
	other.end(nil)
	v.end(nil)
}
