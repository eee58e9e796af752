package test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/vm/vmtest"
)

// A mount that fails returns the error that it met.
func jfsFailedMount(t *testing.T, s system) {
	d := newDevice(t, vmtest.Device(t, "disk0"))
	v := s.make(t, plan{disk: d.node(), blocks: 8192})
	check := jfsScripted(t, v.dir, 2, 100)
	v.unmount()
	fails := func(what string, flags uintptr, want error) {
		t.Helper()
		err := unix.Mount(v.disk, v.dir, v.fstype(), flags, v.data())
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
		if err == nil {
			v.mounted = true
			v.unmount()
		}
	}
	image := takeImage(t, v.disk, 0, v.blocks*4096).bytes
	const superblock = 8
	for what, block := range map[string]uint64{"superblock": superblock, "block map": mapPages(image)[0], "inode map": pagesOf(image, 16)[0]} {
		d.become(d.except(block, func(uint64) string { return "error" }))
		fails("the "+what+" cannot be read", 0, unix.EIO)
		d.become(d.working())
	}
	d.become(d.failing())
	fails("the disk cannot be written", 0, unix.EIO)
	d.become(d.working())
	v.mount() // if the disk was marked, it is recovered
	v.unmount()

	// A negative number, as the kernel has it in a register.
	setParameters(t, faultParameters+"value", fmt.Sprint(^uint64(0)-uint64(unix.ENOMEM)+1), faultParameters+"skip", "0", faultParameters+"function", "jfsnvj:nvj_open")
	fails("no memory for the journal", 0, unix.ENOMEM)
	setParameters(t, faultParameters+"function", "\n")
	v.mount()

	// A disk that needs recovery.
	d.become(d.failing())
	late := create(t, filepath.Join(v.dir, "late"))
	if err := late.Sync(); err == nil {
		t.Error("a sync whose disk fails succeeds")
	}
	if err := late.Close(); err != nil {
		t.Error(err)
	}
	v.unmount()
	d.become(d.working())
	if !v.needsRecovery() {
		t.Error("the disk does not wait for its region")
	}
	readOnly := func(value int) {
		t.Helper()
		disk, err := os.Open(v.disk)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(unix.IoctlSetPointerInt(int(disk.Fd()), unix.BLKROSET, value), disk.Close()); err != nil {
			t.Fatal(err)
		}
	}
	readOnly(1)
	fails("a disk that needs recovery is write-protected", unix.MS_RDONLY, unix.EROFS)
	readOnly(0)
	if !v.needsRecovery() {
		t.Error("a mount that failed has removed the mark")
	}
	v.mount()
	check(v.dir)
	v.end(check)
}
