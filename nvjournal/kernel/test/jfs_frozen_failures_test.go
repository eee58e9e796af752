package test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/atomicfile"
	"github.com/daybook-project/daybook/nvjournal/kernel/test/tree"
	"github.com/daybook-project/daybook/vm/vmtest"
)

// The journal fails while the file system is frozen, or while a freeze begins or ends. A
// program that waits for the thaw gets an error then, and does not wait for ever.
func jfsFrozen(t *testing.T, s system) {
	t.Run("disk", func(t *testing.T) { frozenDiskFails(t, s) })
	t.Run("memory", func(t *testing.T) { frozenMemoryFails(t, s) })
	t.Run("mark stays", func(t *testing.T) { markStays(t, s) })
	t.Run("all writes fail", func(t *testing.T) { freezeFails(t, s, false) })
	if delays(t) {
		t.Run("writes fail late", func(t *testing.T) { freezeFails(t, s, true) })
		t.Run("while it waits", func(t *testing.T) { failsWhileFreezeWaits(t, s) })
	}
}

// refusedLater waits for a change of the file system, which must fail because it is read-only.
func refusedLater(t *testing.T, changed chan error) {
	t.Helper()
	if !await(func() bool { return len(changed) > 0 }) {
		t.Fatal("a change of the file system still waits")
	}
	if err := <-changed; !errors.Is(err, unix.EROFS) {
		t.Errorf("a change of the file system: %v", err)
	}
}

// changes makes a directory in another thread.
func (v *volume) changes() chan error {
	changed := make(chan error, 1)
	go func() { changed <- os.Mkdir(filepath.Join(v.dir, "late"), 0o755) }()
	return changed
}

// thawedAfter freezes the volume, and thaws it after an error. The disk has all, so it does not
// need its region.
func (v *volume) thawedAfter(fail, repair func()) {
	v.t.Helper()
	check := jfsScripted(v.t, v.dir, 2, scaled(100, 1000))
	want := v.take()
	if err := v.ioctl(fifreeze, nil); err != nil {
		v.t.Fatal(err)
	}
	changed := v.changes()
	time.Sleep(100 * time.Millisecond)
	fail()
	if err := v.ioctl(fithaw, nil); err != nil {
		v.t.Errorf("a thaw: %v", err)
	}
	refusedLater(v.t, changed)
	repair()
	v.unmount()
	if v.needsRecovery() {
		v.t.Error("the disk waits for its region, but had all")
	}
	v.mount()
	if err := tree.Compare(want, v.take()); err != nil {
		v.t.Error(err)
	}
	v.end(check)
}

func frozenDiskFails(t *testing.T, s system) {
	d := newDevice(t, vmtest.Device(t, "disk0"))
	v := s.make(t, plan{disk: d.node()})
	v.thawedAfter(func() { d.become(d.failing()) }, func() { d.become(d.working()) })
}

func frozenMemoryFails(t *testing.T, s system) {
	vmtest.WithPages(t, vmtest.Device(t, "pmem1"))
	v := s.make(t, failingMemory(t, s, 0))
	v.thawedAfter(func() {
		setParameters(t, "/sys/kernel/debug/hwpoison/corrupt-pfn", fmt.Sprint((memoryAddress(t, v.pmem)+uint64(v.offset)+8192)/4096))
	}, func() {})
}

// failedFreeze freezes the volume, which fails and makes it read-only, as a later one would
// not be on a disk that works again.
func (v *volume) failedFreeze() {
	v.t.Helper()
	v.freezeFailed(v.ioctl(fifreeze, nil))
}

func (v *volume) freezeFailed(err error) {
	v.t.Helper()
	if !errors.Is(err, unix.EIO) {
		v.t.Errorf("a freeze: %v", err)
		if err == nil {
			_ = v.ioctl(fithaw, nil)
		}
	}
	v.becomesReadOnly()
	refusedLater(v.t, v.changes())
}

// becomesReadOnly waits for the journal's thread, which makes it read-only if the thread that met
// the error could not.
func (v *volume) becomesReadOnly() {
	v.t.Helper()
	if !await(func() bool { return errors.Is(unix.Access(v.dir, unix.W_OK), unix.EROFS) }) {
		v.t.Error("the volume does not become read-only")
	}
}

// recovered unmounts a volume that needs its region then, and compares.
func (v *volume) recovered(want tree.Tree, check func(dir string)) {
	v.t.Helper()
	v.unmount()
	if !v.needsRecovery() {
		v.t.Error("the disk does not wait for its region")
	}
	v.mount()
	if err := tree.Compare(want, v.take()); err != nil {
		v.t.Error(err)
	}
	v.end(check)
}

// The superblock cannot be written, so the disk stays marked. A copy of it could not be mounted
// without the region, so this is an error.
func markStays(t *testing.T, s system) {
	d := newDevice(t, vmtest.Device(t, "disk0"))
	v := s.make(t, plan{disk: d.node()})
	check := jfsScripted(t, v.dir, 2, scaled(100, 1000))
	want := v.take()
	const superblock = 8
	d.become(d.except(superblock, func(uint64) string { return "error" }))
	v.failedFreeze()
	d.become(d.working())
	v.recovered(want, check)
}

// Nothing can be written, and the freeze fails: when the kernel syncs the file system, before it asks
// JFS to freeze it, or late, when JFS carries the journal home. The files can still be read, also
// after memory was short.
func freezeFails(t *testing.T, s system, late bool) {
	d := newDevice(t, vmtest.Device(t, "disk0"))
	bad := deviceNamed(t, "bad", d.disk)
	v := s.make(t, plan{disk: d.node()})
	check := jfsScripted(t, v.dir, 2, scaled(100, 1000))
	if err := atomicfile.SyncFileSystem(v.dir); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second) // the disk has all of that
	const text = "its inode, too"
	logged := func(n int) string { return filepath.Join(v.dir, fmt.Sprint("only in the log ", n)) }
	for n := range 20 {
		file := create(t, logged(n))
		if _, err := fmt.Fprint(file, text); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(file.Sync(), file.Close()); err != nil {
			t.Fatal(err)
		}
	}
	want := v.take()
	if late {
		// The sync starts writes, and does not wait for them.
		d.become(d.onlyWrites(bad, untilReplaced))
		frozen := make(chan error, 1)
		go func() { frozen <- v.ioctl(fifreeze, nil) }()
		if !await(func() bool { return d.delayed().writes > 0 || len(frozen) > 0 }) || len(frozen) > 0 {
			t.Fatal("the freeze does not wait for writes")
		}
		// If this is too short, the sync has not ended, and the test finds less.
		time.Sleep(2 * time.Second)
		bad.become(bad.failing())
		d.become(d.onlyWrites(bad, 0))
		v.freezeFailed(<-frozen)
	} else {
		d.become(d.failing())
		v.failedFreeze()
	}
	writtenBack(t)
	dropCaches(t)
	// First by name: JFS reads a damaged directory without end.
	for n := range 20 {
		if got, err := os.ReadFile(logged(n)); err != nil || string(got) != text {
			t.Fatalf("after a freeze that failed, file %d has %q: %v", n, got, err)
		}
	}
	if err := tree.Compare(want, v.take()); err != nil {
		t.Errorf("after a freeze that failed: %v", err)
	}
	d.become(d.working())
	v.recovered(want, check)
}

// A freeze waits for a program that writes. Before it ends, a commit fails.
func failsWhileFreezeWaits(t *testing.T, s system) {
	d := newDevice(t, vmtest.Device(t, "disk0"))
	bad := deviceNamed(t, "bad", d.disk)
	v := s.make(t, plan{disk: d.node()})
	check := jfsScripted(t, v.dir, 2, scaled(100, 1000))
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	written, other := create(t, filepath.Join(v.dir, "written")), create(t, filepath.Join(v.dir, "other"))
	_, err := written.WriteAt(make([]byte, 8192), 0)
	ok(err)
	ok(atomicfile.SyncFileSystem(v.dir))
	want := v.take()
	ok(unix.Fadvise(int(written.Fd()), 0, 0, unix.FADV_DONTNEED))
	ok(other.Chmod(0o600))
	bad.become(bad.failing())
	// Reads wait, writes and flushes fail.
	d.become(fmt.Sprintf("0 %d delay %s 0 %d %s 0 0 %[4]s 0 0", d.sectors, d.disk, untilReplaced.Milliseconds(), bad.node()))
	wrote, frozen := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := written.WriteAt([]byte("a part of a block, which is read first"), 100)
		wrote <- err
	}()
	if !await(func() bool { return d.delayed().reads > 0 || len(wrote) > 0 }) || len(wrote) > 0 {
		t.Fatal("a write does not wait for the disk")
	}
	go func() { frozen <- v.ioctl(fifreeze, nil) }()
	// If this is too short, the test finds less.
	time.Sleep(time.Second)
	if len(frozen) > 0 {
		t.Fatal("the freeze does not wait for a write")
	}
	if err := other.Sync(); !errors.Is(err, unix.EIO) {
		t.Errorf("an fsync whose flush fails: %v", err)
	}
	d.become(d.working())
	ok(<-wrote)
	if err := <-frozen; err == nil {
		t.Log("the freeze did not fail")
		ok(v.ioctl(fithaw, nil))
	}
	v.becomesReadOnly()
	refusedLater(t, v.changes())
	ok(errors.Join(written.Close(), other.Close()))
	v.unmount()
	v.mount()
	after := v.take()
	delete(after, "written")
	delete(want, "written")
	delete(after, "other")
	delete(want, "other")
	if err := tree.Compare(want, after); err != nil {
		t.Error(err)
	}
	v.end(check)
}
