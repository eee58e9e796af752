package test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/atomicfile"
	"github.com/daybook-project/daybook/vm/vmtest"
)

// A program keeps the disk open and mapped, and has read all of it. The kernel keeps what it has read, while
// the journal writes a page home. Later records of the page have other lines. Recovery adds them to
// what the disk has, and not to what the program has read.
func jfsDiskKeptOpen(t *testing.T, s system) {
	d := newDevice(t, vmtest.Device(t, "disk0"))
	v := s.make(t, plan{disk: d.node(), blocks: 8192})
	files := v.neighbours(2)
	if err := atomicfile.SyncFileSystem(v.dir); err != nil {
		t.Fatal(err)
	}
	v.carryHome()
	disk, err := os.Open(v.disk)
	if err != nil {
		t.Fatal(err)
	}
	defer disk.Close()
	if _, err := io.CopyN(io.Discard, disk, int64(v.blocks)*4096); err != nil {
		t.Fatal(err)
	}
	mapped, err := unix.Mmap(int(disk.Fd()), 0, v.blocks*4096, unix.PROT_READ, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Munmap(mapped); err != nil {
			t.Error(err)
		}
	}()
	const mode = 0o600
	if err := errors.Join(files[0].Chmod(mode), files[0].Sync()); err != nil {
		t.Fatal(err)
	}
	v.carryHome()
	if err := errors.Join(files[1].Chmod(mode), files[1].Sync()); err != nil {
		t.Fatal(err)
	}
	d.become(d.failing())
	if err := os.Mkdir(filepath.Join(v.dir, "lost"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syncDirectory(v.dir); !errors.Is(err, unix.EIO) {
		t.Fatalf("a commit without the disk: %v", err)
	}
	v.becomesReadOnly()
	for _, file := range files {
		_ = file.Close()
	}
	v.unmount()
	d.become(d.working())
	v.mount()
	for n, file := range files {
		if info, err := os.Stat(file.Name()); err != nil || info.Mode().Perm() != mode {
			t.Errorf("file %d of the two that were synced is %v, %v", n+1, info, err)
		}
	}
	v.end(nil)
}
