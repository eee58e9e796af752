package test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/vm/vmtest"
)

// The kernel asks for memory: copies of blocks that are at home are freed, and the
// volume continues as before.
func memoryIsGivenBack(t *testing.T, s system) {
	v := s.make(t, plan{size: 4 * s.smallestJournal()})
	check := v.scripted(2, 300)
	var before, after uint64
	// The kernel may also ask before, and skips a list that a commit has locked.
	given := func() bool {
		if err := churn(filepath.Join(v.dir, "churn"), 400); err != nil {
			t.Fatal(err)
		}
		// A freeze writes all blocks home.
		if err := v.ioctl(fifreeze, nil); err != nil {
			t.Fatal(err)
		}
		if err := v.ioctl(fithaw, nil); err != nil {
			t.Fatal(err)
		}
		before = v.statistics()["images_bytes"]
		unix.Sync()
		setParameters(t, "/proc/sys/vm/drop_caches", "2")
		after = v.statistics()["images_bytes"]
		return before >= 100*4096 && after <= before/4
	}
	if !repeated(given) {
		t.Errorf("copies of blocks had %d bytes, and have %d after the caches were dropped", before, after)
	}
	v.stormed(3, 100)
	check(v.dir)
	v.end(check)
}

// All mounts share one bound: a mount that exceeds it makes the others write home,
// too.
func memoryOfAllMountsIsBounded(t *testing.T, s system) {
	slice := 4 * s.smallestJournal()
	busy := s.make(t, plan{size: slice})
	idle := s.make(t, plan{disk: vmtest.Device(t, "disk1"), offset: slice, size: slice})
	const parameter = "/sys/module/ext4nvj/parameters/max_pinned_buffers"
	setParameters(t, parameter, "0")
	eighth := busy.statistics()["max_pinned_buffers"]
	if pages := uint64(memoryPages(t)) / 8; eighth < pages*9/10 || eighth > pages {
		t.Errorf("the bound is %d buffers, not an eighth of %d pages", eighth, 8*pages)
	}

	// A block for each directory.
	const directories, bound = 400, 200
	// The count can be wrong by some tens for each processor.
	inexact := uint64(64 * runtime.NumCPU())
	make := func(v *volume) {
		for n := range directories {
			if err := os.Mkdir(filepath.Join(v.dir, fmt.Sprint("d", n)), 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	make(idle)
	if pinned := idle.statistics()["pinned_buffers"]; pinned < directories {
		t.Fatalf("%d buffers are pinned by %d directories: the load shows nothing", pinned, directories)
	}
	setParameters(t, parameter, fmt.Sprint(bound))
	t.Cleanup(func() { setParameters(t, parameter, "0") })
	make(busy)
	if most := busy.statistics()["max_pinned_buffers"]; most != bound {
		t.Errorf("the bound is said to be %d", most)
	}
	var both, all uint64
	bounded := func() bool {
		both, all = idle.statistics()["pinned_buffers"]+busy.statistics()["pinned_buffers"], busy.statistics()["pinned_buffers_all_mounts"]
		if both <= bound+inexact && all <= bound+inexact && all >= both {
			return true
		}
		// An idle mount need not be asked again.
		if err := os.WriteFile(filepath.Join(busy.dir, "more"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
		_ = os.Remove(filepath.Join(busy.dir, "more"))
		return false
	}
	if !await(bounded) {
		t.Fatalf("idle and busy have pinned %d buffers, all mounts %d; the bound is %d", both, all, bound)
	}
	idle.end(nil)
	busy.end(nil)
}

// memoryPages is the kernel's memory in pages.
func memoryPages(t *testing.T) int {
	t.Helper()
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		t.Fatal(err)
	}
	return int(info.Totalram * uint64(info.Unit) / uint64(os.Getpagesize()))
}
