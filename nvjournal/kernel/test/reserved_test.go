package test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/vm/vmtest"
)

// Pages of a file are written back, and the disk does not answer. Each extent that is
// being written has reserved a handle, until no further one can be reserved. Other
// operations that need no disk do not wait for it.
func writebackWaits(t *testing.T, s system) {
	d := newDevice(t, vmtest.Device(t, "disk0"))
	// No commit meanwhile, and no checkpoint: both wait for the disk.
	v := s.make(t, plan{disk: d.node(), size: s.smallestJournal(), journalMB: 4, options: []string{"commit=3600"}})
	const extents, names = 200, 20
	name := func(n int) string { return filepath.Join(v.dir, fmt.Sprintf("name%d", n)) }
	// What creates need is in memory then.
	for n := range names {
		if err := os.WriteFile(name(n), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for n := range names {
		if err := os.Remove(name(n)); err != nil {
			t.Fatal(err)
		}
	}
	file, err := os.Create(filepath.Join(v.dir, "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close() // a second time, unless the test failed before
	page := make([]byte, 4096)
	write := func() {
		t.Helper()
		for n := range extents {
			if _, err := file.WriteAt(page, int64(2*n*len(page))); err != nil {
				t.Fatal(err)
			}
		}
	}
	// Its blocks are found in memory: the same bitmaps are used again.
	write()
	if err := file.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := file.Truncate(0); err != nil {
		t.Fatal(err)
	}
	unix.Sync()
	for n := range page {
		page[n] = 'w'
	}
	write()

	must(t, "dmsetup", "suspend", "--nolockfs", "--noudevsync", d.name)
	resumed := false
	resume := func() {
		if !resumed {
			resumed = true
			must(t, "dmsetup", "resume", "--noudevsync", d.name)
		}
	}
	defer resume()
	thread, written := make(chan int, 1), make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		thread <- unix.Gettid()
		written <- unix.SyncFileRange(int(file.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WRITE)
	}()
	stat := fmt.Sprintf("/proc/self/task/%d/stat", <-thread)
	t.Logf("the thread that writes pages back waits: %v", await(func() bool { return isAsleep(stat) || len(written) > 0 }))
	created := make(chan error, 1)
	go func() {
		var err error
		for n := range names {
			if err == nil {
				err = os.WriteFile(name(n), nil, 0o600)
			}
		}
		created <- err
	}()
	done := await(func() bool { return len(created) > 0 })
	if !done {
		t.Error("creates wait for the disk that writes file data")
	}
	resume()
	if err := <-created; err != nil {
		t.Error(err)
	}
	if err := errors.Join(<-written, file.Close()); err != nil {
		t.Error(err)
	}
	v.end(func(dir string) {
		text, err := os.ReadFile(filepath.Join(dir, "file"))
		if err != nil || strings.Count(string(text), "w") != extents*len(page) {
			t.Errorf("the file has %d bytes: %v", len(text), err)
		}
	})
}

// isAsleep reports whether a thread waits without an end that a signal could bring, and
// does so for a while.
func isAsleep(stat string) bool {
	for range 20 {
		text, err := os.ReadFile(stat)
		if err != nil || !strings.Contains(string(text), ") D ") {
			return false
		}
		time.Sleep(50 * time.Millisecond)
	}
	return true
}
