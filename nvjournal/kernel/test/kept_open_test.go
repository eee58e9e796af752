package test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/vm/vmtest"
)

// As jfsDiskKeptOpen, for ext4, on a disk with sectors of 4096 bytes: a mount keeps the cache of such
// a disk. A program has mapped it, so the cache has what a commit that failed did not commit. Recovery
// adds records to what the disk has.
func diskKeptOpen(t *testing.T, s system) {
	loop, err := blockdev.Attach(vmtest.Device(t, "disk0"), blockdev.AttachOptions{BlockSizeBytes: 4096})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = loop.DetachLazily() })
	d := newDevice(t, loop.Node())
	v := s.make(t, plan{disk: d.node(), blocks: 8192})
	files, data := v.neighbours(2), create(t, filepath.Join(v.dir, "data"))
	// It has its block already: a write of it needs no new one.
	if _, err := data.WriteAt(make([]byte, 4096), 0); err != nil {
		t.Fatal(err)
	}
	v.carryHome()
	const mode = 0o600
	if err := errors.Join(files[0].Chmod(mode), files[0].Sync()); err != nil {
		t.Fatal(err)
	}
	disk, err := os.Open(v.disk)
	if err != nil {
		t.Fatal(err)
	}
	defer disk.Close()
	mapped, err := unix.Mmap(int(disk.Fd()), 0, v.blocks*4096, unix.PROT_READ, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Munmap(mapped); err != nil {
			t.Error(err)
		}
	}()
	d.become(d.failing())
	// A commit flushes the disk only if data was written since the last flush. The periodic commit cannot
	// flush it before, as the disk fails.
	if _, err := data.WriteAt(make([]byte, 4096), 0); err != nil {
		t.Fatal(err)
	}
	if err := unix.SyncFileRange(int(data.Fd()), 0, 4096, unix.SYNC_FILE_RANGE_WRITE|unix.SYNC_FILE_RANGE_WAIT_AFTER); err != nil && !errors.Is(err, unix.EIO) {
		t.Fatal(err)
	}
	if err := files[1].Chmod(mode); err != nil {
		t.Fatal(err)
	}
	if err := files[1].Sync(); err == nil {
		t.Fatal("a commit without the disk succeeds")
	}
	for _, file := range append(files, data) {
		_ = file.Close()
	}
	v.unmount()
	d.become(d.working())
	v.mount()
	for n, want := range []fs.FileMode{mode, 0o644} {
		if info, err := os.Stat(files[n].Name()); err != nil || info.Mode().Perm() != want {
			t.Errorf("file %d: %v, %v; %v was committed", n+1, info, err, want)
		}
	}
	v.endAfterErrors(nil)
}

// A program writes to the cache of the disk all the time, so the kernel cannot drop it. The mount
// does not recover the disk, and writes nothing.
func diskWritten(t *testing.T, s system) {
	needsKprobes(t)
	v, crash, check := crashed(t, s, smallPlan(s))
	works := func() { setParameters(t, faultParameters+"function", "\n") }
	t.Cleanup(works)
	const busy = ^uint64(unix.EBUSY) + 1 // -EBUSY
	setParameters(t, faultParameters+"value", fmt.Sprint(busy), faultParameters+"skip", "0", faultParameters+"function", "ext4nvj:nvjk_disk_drop_cache")
	seen := logMark(t)
	err := v.tryMount()
	works()
	if !errors.Is(err, unix.EBUSY) {
		t.Fatalf("a mount while a program writes to the disk: %v", err)
	}
	if log := logSince(t, seen); !strings.Contains(log, "the disk cannot be recovered while a program writes to it") {
		t.Errorf("the kernel says:\n%s", log)
	}
	crash.untouched(t)
	v.mount()
	v.end(check)
}
