package test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/vm/vmtest"
)

// Memory that only its host can flush is refused, unless a mount option says that
// committed data may be lost.
func volatileMemory(t *testing.T, s system) {
	v := s.volume(t, plan{pmem: vmtest.Device(t, "pmem2"), blocks: 6144, journalMB: 4, size: s.smallestJournal()})
	v.mkfs() // formats the slice: by the driver, which asks the host to flush
	is := unclean{takeImage(t, v.disk, 0, v.blocks*4096), takeImage(t, v.pmem, 0, v.size)}
	seen := logMark(t)
	if err := v.tryMount(); !errors.Is(err, unix.EOPNOTSUPP) {
		t.Errorf("a mount: %v", err)
	}
	if log := logSince(t, seen); !strings.Contains(log, "only its host can flush") || !strings.Contains(log, "allow_volatile") {
		t.Errorf("the kernel says: %s", log)
	}
	is.untouched(t)

	seen = logMark(t)
	v.mount("allow_volatile")
	if log := logSince(t, seen); !strings.Contains(log, "may lose") {
		t.Errorf("no warning: %s", log)
	}
	mounts, err := os.ReadFile("/proc/mounts")
	if err != nil || !strings.Contains(string(mounts), ",allow_volatile") {
		t.Errorf("%v: %s", err, mounts)
	}
	check := scripted(t, v.dir, 2, 50)
	if err := unix.Mount(v.disk, v.dir, v.fstype(), unix.MS_REMOUNT, v.data("allow_volatile")); err != nil {
		t.Error(err)
	}
	v.end(check)

	w := s.make(t, plan{})
	if err := unix.Mount(w.disk, w.dir, w.fstype(), unix.MS_REMOUNT, w.data("allow_volatile")); !errors.Is(err, unix.EINVAL) {
		t.Errorf("a remount that would allow what is not there: %v", err)
	}
	w.end(nil)
}
