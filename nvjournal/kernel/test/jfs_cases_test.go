package test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/atomicfile"
	"github.com/daybook-project/daybook/nvjournal/kernel/test/crash"
	"github.com/daybook-project/daybook/nvjournal/kernel/test/fsx"
	"github.com/daybook-project/daybook/nvjournal/kernel/test/storm"
	"github.com/daybook-project/daybook/vm/vmtest"
)

// jfsStorm leaves out what stock JFS cannot do, or does wrong.
func jfsStorm(threads, count int) storm.Options {
	return storm.Options{Threads: threads, Count: count, NoAttributes: true, Allow: []error{unix.EOPNOTSUPP}}
}

// jfsScripted is scripted, without what stock JFS does wrong.
func jfsScripted(t *testing.T, dir string, threads, count int) func(dir string) {
	t.Helper()
	return scriptedAs(t, dir, crash.Script{Seed: loadSeed, LazyInodes: true}, threads, count)
}

// Scripts of which each state is known.
func jfsScripts(t *testing.T, s system) {
	v := s.make(t, plan{})
	v.end(jfsScripted(t, v.dir, 3, scaled(300, 3000)))
}

// A storm. What it leaves is sound, and the same for stock JFS.
func jfsStorms(t *testing.T, s system) {
	v := s.make(t, plan{})
	stormedWith(t, v.dir, jfsStorm(4, scaled(250, 5000)))
	v.end(nil)
}

// Files against a model.
func jfsFiles(t *testing.T, s system) {
	v := s.make(t, plan{})
	exercised(t, v.dir, 3, scaled(120, 3000), fsx.Options{NoShift: true})
	v.end(nil)
}

// Directories of many pages, attributes in blocks of their own, long symbolic links,
// sparse files of many extents, and a large file that is truncated in steps.
func jfsLarge(t *testing.T, s system) {
	v := s.make(t, plan{})
	wide := filepath.Join(v.dir, "wide")
	if err := os.Mkdir(wide, 0o755); err != nil {
		t.Fatal(err)
	}
	names := scaled(1500, 12000)
	for n := range names {
		if err := os.WriteFile(filepath.Join(wide, fmt.Sprintf("a-name-of-some-length-%06d", n)), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for n := 0; n < names; n += 3 {
		if err := os.Remove(filepath.Join(wide, fmt.Sprintf("a-name-of-some-length-%06d", n))); err != nil {
			t.Fatal(err)
		}
	}
	if err := churn(filepath.Join(v.dir, "attributes"), 120); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(strings.Repeat("0123456789", 100), filepath.Join(v.dir, "long")); err != nil {
		t.Fatal(err)
	}
	sparse, err := os.Create(filepath.Join(v.dir, "sparse"))
	if err != nil {
		t.Fatal(err)
	}
	defer sparse.Close()
	for n := range int64(scaled(800, 4000)) {
		if _, err := sparse.WriteAt([]byte("an extent of its own"), n*16384); err != nil {
			t.Fatal(err)
		}
	}
	if err := sparse.Sync(); err != nil {
		t.Fatal(err)
	}
	for _, bytes := range []int64{9 << 20, 5<<20 + 77, 1 << 20, 0} {
		if err := sparse.Truncate(bytes); err != nil {
			t.Fatal(err)
		}
	}
	sparse.Close()
	v.end(nil)
}

// Several threads make and remove many files, in allocation groups of their own. So the
// inode map grows while extents of inodes are freed.
func jfsInodes(t *testing.T, s system) {
	v := s.make(t, plan{})
	var all sync.WaitGroup
	errs := make([]error, 3)
	for thread := range errs {
		all.Go(func() {
			for round := 0; round < scaled(3, 12) && errs[thread] == nil; round++ {
				errs[thread] = makeAndRemove(filepath.Join(v.dir, fmt.Sprintf("of%d-%d", thread, round)), scaled(320, 3000))
			}
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	v.end(nil)
}

// makeAndRemove leaves an empty directory.
func makeAndRemove(dir string, files int) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	name := func(n int) string { return filepath.Join(dir, fmt.Sprint(n)) }
	for n := range files {
		if err := os.WriteFile(name(n), nil, 0o644); err != nil {
			return err
		}
	}
	for n := range files {
		if err := os.Remove(name(n)); err != nil {
			return err
		}
	}
	return nil
}

// The region is full all the time, and goes round several times.
func jfsSmallJournal(t *testing.T, s system) {
	// By block, so that all partitions are used, whatever the number of processors.
	v := s.make(t, plan{size: s.smallestJournal(), journalMB: 4, placement: "block"})
	check := jfsScripted(t, v.dir, 3, scaled(300, 2000))
	times := uint64(scaled(1, 4))
	if s != jfsOne {
		times = uint64(scaled(1, 2))
	}
	// How many lines an operation logs changes with the module, so this has a wide bound.
	const mostRounds = 40
	for round := range mostRounds {
		if err := churn(filepath.Join(v.dir, "churn"), 50); err != nil {
			t.Fatal(err)
		}
		dir, stormed := filepath.Join(v.dir, fmt.Sprintf("storm%d", round)), jfsStorm(4, scaled(500, 4000))
		if _, err := storm.Run(t.Context(), dir, stormed); err != nil {
			t.Fatal(err)
		}
		// Partitions fill unevenly; that of one is full in the quick form.
		if n := v.statistics(); n["logged_lines"] > times*n["ring_lines"]*uint64(scaled(1, s.partitions)) && n["checkpoints"] > 1 {
			t.Logf("%d rounds: %d lines in rings of %d, %d checkpoints, %d handles waited", round+1, n["logged_lines"], n["ring_lines"], n["checkpoints"], n["start_waits"])
			break
		} else if round == mostRounds-1 {
			t.Errorf("the journal did not go round: %v", n)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	check(v.dir)
	v.end(check)
}

// The disk is full again and again, and what is removed can be used again.
func jfsNoSpace(t *testing.T, s system) {
	v := s.make(t, plan{blocks: 8192})
	_, empty := v.statfs()
	for range scaled(2, 6) {
		var full atomic.Int32
		var all sync.WaitGroup
		errs := make([]error, 3)
		for writer := range errs {
			all.Go(func() { errs[writer] = fill(filepath.Join(v.dir, fmt.Sprintf("w%d", writer)), &full) })
		}
		all.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		if full.Load() == 0 {
			t.Error("nobody found the disk full")
		}
		for writer := range errs {
			if err := os.RemoveAll(filepath.Join(v.dir, fmt.Sprintf("w%d", writer))); err != nil {
				t.Fatal(err)
			}
		}
		if err := atomicfile.SyncFileSystem(v.dir); err != nil {
			t.Fatal(err)
		}
		// Blocks of inodes stay. JFS's threads free the others after the commit.
		free := uint64(0)
		if !await(func() bool {
			_, free = v.statfs()
			return free+128 >= empty
		}) {
			t.Errorf("%d blocks are free after all was removed, not %d", free, empty)
		}
	}
	v.end(nil)
}

// remountReadOnly waits until JFS's threads have ended the transactions of what was removed,
// which is busy before.
func (v *volume) remountReadOnly() (err error) {
	await(func() bool {
		err = unix.Mount("", v.dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, v.data())
		return !errors.Is(err, unix.EBUSY)
	})
	return err
}

// Read-only and writable again, each time with a journal that begins anew.
func jfsRemount(t *testing.T, s system) {
	v := s.make(t, plan{})
	for n := range scaled(2, 10) {
		if _, err := storm.Run(t.Context(), filepath.Join(v.dir, fmt.Sprintf("storm%d", n)), jfsStorm(3, 60)); err != nil {
			t.Fatal(err)
		}
		before := v.take()
		if err := v.remountReadOnly(); err != nil {
			t.Fatalf("remount read-only: %v", err)
		}
		if err := os.WriteFile(filepath.Join(v.dir, "new"), nil, 0o644); !errors.Is(err, unix.EROFS) {
			t.Errorf("a write to a volume that is read-only: %v", err)
		}
		if isMarked(t, v.disk) {
			t.Error("the disk of a read-only mount waits for its region")
		}
		if err := unix.Mount("", v.dir, "", unix.MS_REMOUNT, v.data()); err != nil {
			t.Fatalf("remount writable, time %d: %v", n, err)
		}
		if after := v.take(); len(before) != len(after) {
			t.Errorf("%d names before, %d after", len(before), len(after))
		}
	}
	v.end(nil)
}

// isMarked says whether a disk waits for its region: by the version in the superblocks,
// which is 1 or 2 else.
func isMarked(t *testing.T, disk string) bool {
	t.Helper()
	both := []byte(superblocks(t, disk))
	first, second := binary.LittleEndian.Uint32(both[4:]) > 2, binary.LittleEndian.Uint32(both[4100:]) > 2
	if first != second {
		t.Errorf("only one superblock is marked: first %v, second %v", first, second)
	}
	return first
}

// A frozen disk has all, and is not marked.
func jfsFreeze(t *testing.T, s system) {
	v := s.make(t, plan{blocks: 16384})
	t.Cleanup(func() { _ = v.ioctl(fithaw, nil) }) // after a failure, else the unmount waits for ever
	for n := range scaled(2, 20) {
		if _, err := storm.Run(t.Context(), filepath.Join(v.dir, fmt.Sprintf("storm%d", n)), jfsStorm(3, 60)); err != nil {
			t.Fatal(err)
		}
		if err := v.ioctl(fifreeze, nil); err != nil {
			t.Fatal(err)
		}
		written := make(chan error, 1)
		go func() { written <- os.WriteFile(filepath.Join(v.dir, "after"), []byte("thaw"), 0o644) }()
		time.Sleep(50 * time.Millisecond)
		select {
		case <-written:
			t.Error("a frozen volume was written to")
			written <- nil
		default:
		}
		if isMarked(t, v.disk) {
			t.Error("the frozen disk waits for its region")
		}
		frozenIsClean(t, v)
		if err := v.ioctl(fithaw, nil); err != nil {
			t.Fatal(err)
		}
		if err := <-written; err != nil {
			t.Error(err)
		}
		if !isMarked(t, v.disk) {
			t.Error("the disk is not marked after the thaw")
		}
	}
	v.end(nil)
}

// frozenIsClean checks that fsck.jfs finds nothing in a copy of a frozen disk.
func frozenIsClean(t *testing.T, v *volume) {
	t.Helper()
	frozen := *v
	frozen.disk = filepath.Join(t.TempDir(), "frozen")
	must(t, "dd", "if="+v.disk, "of="+frozen.disk, "bs=1M", fmt.Sprint("count=", v.blocks/256), "iflag=direct")
	frozen.fsck()
	if err := os.Remove(frozen.disk); err != nil {
		t.Error(err)
	}
}

// Two file systems have a slice each of one memory.
func jfsTwoOnOneMemory(t *testing.T, s system) {
	slice := s.smallestJournal()
	first := s.volume(t, plan{size: slice})
	second := s.volume(t, plan{disk: vmtest.Device(t, "disk1"), offset: slice, size: slice})
	var all sync.WaitGroup
	errs := make([]error, 2)
	for n, v := range []*volume{first, second} {
		v.mkfs()
		v.mount()
		all.Go(func() {
			_, errs[n] = storm.Run(t.Context(), filepath.Join(v.dir, "storm"), jfsStorm(2, scaled(200, 2000)))
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	wrong := *second
	wrong.disk = first.disk
	first.unmount()
	if err := wrong.tryMount(); err == nil {
		wrong.unmount()
		t.Error("the slice of another mount was taken")
	}
	first.mount()
	first.end(nil)
	second.end(nil)
}

// What is refused says why, and changes nothing.
func jfsRefused(t *testing.T, s system) {
	v := s.volume(t, plan{})
	v.mkfs()
	refuse := func(data, said string, want error) {
		t.Helper()
		seen := logMark(t)
		if err := unix.Mount(v.disk, v.dir, "jfsnvj", 0, data); err == nil {
			_ = unix.Unmount(v.dir, 0)
			t.Errorf("%q was mounted", data)
		} else if !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", data, err, want)
		}
		if log := logSince(t, seen); !strings.Contains(log, said) {
			t.Errorf("%q: the kernel does not say %q:\n%s", data, said, log)
		}
	}
	refuse("", "say where the journal is", unix.EINVAL)
	refuse("journal_path=/dev/none", "there is no device /dev/none", unix.ENOENT)
	refuse("journal_path="+v.pmem+",partitions=65", "choose 1 to 64", unix.EINVAL)
	refuse("journal_path="+v.pmem+",journal_size=1000", "a multiple of 4096", unix.EINVAL)
	refuse("journal_path="+v.pmem+",nointegrity", "nointegrity is refused", unix.EINVAL)
	refuse("journal_path="+v.pmem+",journal_data=small", "journal_data=small is refused", unix.EINVAL)
	refuse("journal_path="+v.pmem+",log=handle", "log= is refused", unix.EINVAL)
	refuse("journal_path="+vmtest.Device(t, "pmem1"), "there is no journal at byte 0", unix.ENODATA)
	refuse("journal_path="+vmtest.Device(t, "pmem2"), "", unix.ENODATA)
	v.mount("errors=continue")
	seen := logMark(t)
	if err := unix.Mount("", v.dir, "", unix.MS_REMOUNT, "partitions=3"); !errors.Is(err, unix.EINVAL) {
		t.Errorf("a remount that changes partitions: %v", err)
	}
	if log := logSince(t, seen); !strings.Contains(log, "partitions cannot be changed") {
		t.Errorf("the kernel says:\n%s", log)
	}
	v.end(nil)
}
