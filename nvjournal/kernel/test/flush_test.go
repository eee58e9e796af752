package test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The next commit flushes what was written to the disk since the last flush,
// however it was written, and whether or not the kernel counts the disk's writes.
// If nothing was written, nothing is flushed.
func flushes(t *testing.T, s system) {
	v := s.make(t, plan{})
	// Larger than the small files whose data is journaled.
	const large = 1 << 20
	// Longer than a tick of any kernel (10 ms with HZ=100).
	const tick = 20 * time.Millisecond
	path := filepath.Join(v.dir, "large")
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	page := aligned(t, 4096)
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for at := int64(0); at < large; at += 4096 {
		_, err := file.WriteAt(page, at)
		ok(err)
	}
	ok(file.Sync())
	direct, err := os.OpenFile(path, os.O_RDWR|unix.O_DIRECT, 0)
	ok(err)
	mapped, err := unix.Mmap(int(file.Fd()), 0, large, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	ok(err)
	parent, err := os.Open(v.dir)
	ok(err)

	writeBack := func(file *os.File, at, bytes int64) error {
		return unix.SyncFileRange(int(file.Fd()), at, bytes,
			unix.SYNC_FILE_RANGE_WAIT_BEFORE|unix.SYNC_FILE_RANGE_WRITE|unix.SYNC_FILE_RANGE_WAIT_AFTER)
	}
	counter, made := byte(0), 0
	ways := map[string]func() error{
		"buffered": func() error {
			if _, err := file.WriteAt(page, 8192); err != nil {
				return err
			}
			return writeBack(file, 8192, 4096)
		},
		"direct": func() error { _, err := direct.WriteAt(page, 16384); return err },
		"mapped": func() error {
			mapped[20480]++
			return writeBack(file, 20480, 4096)
		},
		// Blocks of a new extent that are not written are zeroed on the disk.
		"zeroed": func() error {
			made++
			if err := unix.Fallocate(int(file.Fd()), 0, int64(large*(1+made)), 16<<10); err != nil {
				return err
			}
			if err := file.Sync(); err != nil {
				return err
			}
			_, err := direct.WriteAt(page, int64(large*(1+made))+4096)
			return err
		},
	}
	ends := map[string]func() error{
		"fsync of the file": file.Sync,
		// It commits, with the information that it flushes the disk, too.
		"fsync of its directory": func() error {
			counter++
			if err := os.WriteFile(filepath.Join(v.dir, "other"), []byte{counter}, 0o644); err != nil {
				return err
			}
			return parent.Sync()
		},
	}
	count := func(on bool) {
		t.Helper()
		value := map[bool]string{true: "1", false: "0"}[on]
		ok(os.WriteFile(filepath.Join("/sys/class/block", filepath.Base(v.disk), "queue/iostats"), []byte(value), 0))
	}
	t.Cleanup(func() { count(true) })
	for how, counted := range map[string][2]bool{
		"counted":               {true, true},
		"not counted":           {false, false},
		"not counted meanwhile": {false, true},
		"counted meanwhile":     {true, false},
	} {
		for way, write := range ways {
			for end, sync := range ends {
				flushed := func() bool {
					count(counted[1])
					ok(sync())
					before := v.statistics()["data_flushes"]
					count(counted[0])
					// A write within a tick of the last one does not change the file's
					// time. Then ext4 has nothing to log, and fsync flushes the disk
					// itself, which data_flushes does not count. So it is if the
					// periodic commit comes between the file's time and its data.
					time.Sleep(tick)
					ok(write())
					count(counted[1])
					ok(sync())
					return v.statistics()["data_flushes"] > before
				}
				if !repeated(flushed) {
					t.Errorf("%s, %s, %s: the disk was not flushed", how, way, end)
				}
			}
		}
	}

	// Metadata alone needs no flush: it is in the region. Checkpoints and writeback
	// write to the disk meanwhile.
	count(true)
	ok(unix.Fsync(int(parent.Fd())))
	const names = 20
	var flushes uint64
	directories := 0
	few := func() bool {
		before := v.statistics()
		for range names {
			directories++
			ok(os.Mkdir(filepath.Join(v.dir, fmt.Sprint("directory", directories)), 0o755))
			ok(parent.Sync())
		}
		after := v.statistics()
		if d := after["commits"] - before["commits"]; d < names {
			t.Errorf("%d commits for %d directories", d, names)
		}
		flushes = after["data_flushes"] - before["data_flushes"]
		return flushes <= 2
	}
	if !repeated(few) {
		t.Errorf("%d flushes for %d directories", flushes, names)
	}
	ok(unix.Munmap(mapped))
	for _, f := range []*os.File{file, direct, parent} {
		ok(f.Close())
	}
	v.end(nil)
}

// A remount that turns on barriers holds for the next checkpoint, and not only once the commit
// thread wakes.
func barriers(t *testing.T, s system) {
	v := s.make(t, plan{options: []string{"nobarrier", "commit=300"}})
	made := 0
	flushed := func() bool {
		t.Helper()
		made++
		before := v.statistics()["disk_flushes"]
		if err := os.Mkdir(filepath.Join(v.dir, fmt.Sprint("directory", made)), 0o755); err != nil {
			t.Fatal(err)
		}
		v.carryHome()
		return v.statistics()["disk_flushes"] > before
	}
	if flushed() {
		t.Error("a checkpoint flushes the disk without barriers")
	}
	if err := v.tryMountAgain("barrier"); err != nil {
		t.Fatal(err)
	}
	if !flushed() {
		t.Error("a checkpoint does not flush the disk with barriers")
	}
	if err := v.tryMountAgain("nobarrier"); err != nil {
		t.Fatal(err)
	}
	if flushed() {
		t.Error("a checkpoint flushes the disk after barriers were turned off")
	}
	v.end(nil)
}
