package test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/atomicfile"
	"github.com/daybook-project/daybook/vm/vmtest"
)

// setParameters writes to files of sysfs and debugfs, name and value in turn.
func setParameters(t *testing.T, pairs ...string) {
	t.Helper()
	for ; len(pairs) > 0; pairs = pairs[2:] {
		if err := os.WriteFile(pairs[0], []byte(pairs[1]), 0); err != nil {
			t.Fatal(err)
		}
	}
}

// failingMemory is a part of the second memory that no other test uses: a bad block
// stays in the kernel's list until the end of the guest.
func failingMemory(t *testing.T, s system, place int) plan {
	p := smallPlan(s)
	p.pmem, p.offset = vmtest.Device(t, "pmem1"), pmemBytes*3/4+place
	return p
}

// The memory of a mounted journal fails, or cannot be read at recovery. The journal
// aborts, or the mount is refused, with the place. Nothing wrong is written, and
// what was synced is not lost.
func mediaErrors(t *testing.T, s system) {
	vmtest.WithPages(t, vmtest.Device(t, "pmem1"))
	if !s.jfs { // it counts what a recovery of ext4nvj reads, by the same code
		t.Run("recovery", func(t *testing.T) { unreadableAtRecovery(t, s) })
	}
	t.Run("failure", func(t *testing.T) {
		v, check := loadedVolume(t, s, failingMemory(t, s, 0))
		memoryFails(t, v, "the memory of the journal fails, at byte 8192 of its region", func() {
			setParameters(t, "/sys/kernel/debug/hwpoison/corrupt-pfn", fmt.Sprint((memoryAddress(t, v.pmem)+uint64(v.offset)+8192)/4096))
		})
		// It is only reported as failing: all content exists.
		v.mount()
		check(v.dir)
		v.unmount()
	})
	// The last one, because it stays.
	t.Run("bad block", func(t *testing.T) {
		v, check := loadedVolume(t, s, failingMemory(t, s, 8<<20))
		bad := v.size - 4096 // nothing is there yet
		memoryFails(t, v, fmt.Sprintf("a bad block is known of the journal's memory, at byte %d of its region", bad), func() {
			setParameters(t, filepath.Join("/sys/block", filepath.Base(v.pmem), "badblocks"), fmt.Sprintf("%d 8", (v.offset+bad)/512))
		})
		seen := logMark(t)
		if err := v.tryMount(); err == nil {
			t.Fatal("a region with a bad block was mounted")
		}
		if said := logSince(t, seen); !strings.Contains(said, "is the memory damaged?") {
			t.Errorf("the kernel says %s", said)
		}
		must(t, "nvj", "recover", v.pmem, "--offset", fmt.Sprint(v.offset), "--target", v.disk)
		v.sameInStock(nil, check)
	})
}

// loadedVolume is a volume with scripts on it, all of which are permanent.
func loadedVolume(t *testing.T, s system, p plan) (*volume, func(dir string)) {
	t.Helper()
	v := s.make(t, p)
	scripts := scripted
	if s.jfs {
		scripts = jfsScripted
	}
	check := scripts(t, v.dir, 2, 100)
	if err := atomicfile.SyncFileSystem(v.dir); err != nil {
		t.Fatal(err)
	}
	return v, check
}

// memoryFails unmounts the volume after its memory has failed. It accepts no change
// any more, and the log has the reason.
func memoryFails(t *testing.T, v *volume, said string, fail func()) {
	t.Helper()
	seen := logMark(t)
	fail()
	err := os.WriteFile(filepath.Join(v.dir, "after"), []byte("the failure"), 0o644)
	if err == nil {
		err = atomicfile.SyncFileSystem(v.dir)
	}
	if !errors.Is(err, unix.EIO) && !errors.Is(err, unix.EROFS) {
		t.Errorf("a write after the failure: %v", err)
	}
	if err := os.Mkdir(filepath.Join(v.dir, "late"), 0o755); !errors.Is(err, unix.EIO) && !errors.Is(err, unix.EROFS) {
		t.Errorf("mkdir after the failure: %v", err)
	}
	aborted := "the journal is aborted"
	if v.system.jfs {
		aborted = "the journal has failed"
	}
	if log := logSince(t, seen); !strings.Contains(log, said) || !strings.Contains(log, aborted) {
		t.Errorf("the kernel says, and not %q:\n%s", said, log)
	}
	v.unmount()
	if !v.needsRecovery() {
		t.Error("the disk says that it needs no recovery")
	}
}

// memoryAddress is the physical address of the persistent memory.
func memoryAddress(t *testing.T, pmem string) uint64 {
	t.Helper()
	device, err := filepath.EvalSymlinks(filepath.Join("/sys/block", filepath.Base(pmem), "device"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(device, "resource"))
	if err != nil {
		t.Fatal(err)
	}
	address, err := strconv.ParseUint(strings.TrimSpace(string(text)), 0, 64)
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// QEMU has no memory whose loads fail. So the function that copies fails instead,
// as it does after a machine check.
func unreadableAtRecovery(t *testing.T, s system) {
	v, u, check := crashed(t, s, smallPlan(s))
	fail := func(skip int) { // false after so many copies
		setParameters(t, faultParameters+"value", "64", faultParameters+"skip", fmt.Sprint(skip), faultParameters+"function", "ext4nvj:nvjk_copy_mc")
	}
	works := func() { setParameters(t, faultParameters+"function", "\n") }
	t.Cleanup(works)
	try := func(skip int) string {
		seen := logMark(t)
		fail(skip)
		err := v.tryMount()
		works()
		if err == nil {
			v.unmount()
			t.Fatalf("mounted, though memory could not be read after %d copies", skip)
		}
		return logSince(t, seen)
	}
	// They are read in this order, after the superblock, which is read for several
	// purposes.
	const most = 20
	skip := 0
	for _, want := range []string{
		"is damaged",
		"memory that cannot be read: one copy of the superblock",
		"memory that cannot be read: both copies of the tail",
		"memory that cannot be read: a record of the commit ring",
	} {
		for said := try(skip); !strings.Contains(said, want); said = try(skip) {
			if skip++; skip == most {
				t.Fatalf("%q is never said; at last %s", want, said)
			}
		}
	}
	// After the end of the commit ring.
	if said := try(int(v.size/4096) + most); !strings.Contains(said, "memory that cannot be read: a committed record") {
		t.Errorf("the kernel says %s", said)
	}
	u.untouched(t)
	v.mount()
	check(v.dir)
	v.end(check)
}
