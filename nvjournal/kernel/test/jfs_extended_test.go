package test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/atomicfile"
	"github.com/daybook-project/daybook/vm/vmtest"
)

// While a file system is extended, a file without a name is closed, or inodes are made for
// which there is no room. Nothing of that is logged then, so nothing of it may be on the disk:
// after a crash the file system has all that it had before.
func jfsChangedWhileExtended(t *testing.T, s system) {
	if !delays(t) {
		return
	}
	t.Run("removed", func(t *testing.T) {
		changedWhileExtended(t, s, func(v *volume) []func() error { return []func() error{v.unnamed().Close} })
	})
	t.Run("made", func(t *testing.T) {
		changedWhileExtended(t, s, func(v *volume) (changes []func() error) {
			const inodes = 80 // more than JFS has free
			for n := range inodes {
				parent := filepath.Join(v.dir, fmt.Sprint("of", n))
				if err := os.Mkdir(parent, 0o755); err != nil {
					t.Fatal(err)
				}
				changes = append(changes, func() error { return os.Mkdir(filepath.Join(parent, "new"), 0o755) })
			}
			return changes
		})
	})
}

// changedWhileExtended prepares changes, and makes each in a thread of its own while the first
// write of the extension waits. The image of the crash is of a moment when all of JFS's maps are
// written, and not the second superblock: recovery makes the part of the maps that the
// extension changes as it was before.
func changedWhileExtended(t *testing.T, s system, prepare func(v *volume) []func() error) {
	const super, superCopy = 8, 15
	whole := newDevice(t, vmtest.Device(t, "disk0"))
	first, last := deviceNamed(t, "first", whole.disk), deviceNamed(t, "last", whole.disk)
	t.Cleanup(func() { whole.become(whole.working()) }) // else they cannot be removed
	v := s.make(t, plan{disk: whole.node(), blocks: 8192})
	changes := prepare(v)
	if err := atomicfile.SyncFileSystem(v.dir); err != nil {
		t.Fatal(err)
	}
	for _, d := range []*device{first, last} {
		d.become(d.delaying(0, untilReplaced, 0))
	}
	firstOn, lastOn := first.node(), last.node()
	var table strings.Builder
	next := uint64(0)
	for _, part := range []struct {
		block uint64
		on    string
	}{{super, firstOn}, {superCopy, lastOn}} {
		at := part.block * sectorsOfBlock
		fmt.Fprintf(&table, "%d %d linear %s %[1]d\n%[4]d %d linear %s %[4]d\n", next, at-next, whole.disk, at, sectorsOfBlock, part.on)
		next = at + sectorsOfBlock
	}
	fmt.Fprintf(&table, "%d %d linear %s %[1]d\n", next, uint64(whole.sectors)-next, whole.disk)
	whole.become(table.String())

	resized := inThread(func() error { return v.remountWith(fmt.Sprintf("resize=%d", extended)) })
	waits := func(d *device, what string) {
		t.Helper()
		if !await(func() bool { return d.delayed().writes > 0 || len(resized) > 0 }) || len(resized) > 0 {
			t.Fatalf("the extension does not wait for the %s superblock", what)
		}
	}
	waits(first, "first")
	logged := v.statistics()["logged_lines"]
	ended := []chan error{resized}
	for _, change := range changes {
		ended = append(ended, inThread(change))
	}
	writtenBack(t)
	if now := v.statistics()["logged_lines"]; now != logged {
		t.Errorf("%d lines were logged while the file system was extended", now-logged)
	}
	first.become(first.working())
	waits(last, "second")
	// Who reads a device waits for writes to the same one.
	asItIs := *v
	asItIs.disk = whole.disk
	u := asItIs.uncleanAsItIs()
	u.disk.path = v.disk
	last.become(last.working())
	for _, c := range ended {
		if err := <-c; err != nil {
			t.Error(err)
		}
	}
	v.unmount()
	v.fsck()
	u.restore(t)
	v.mount()
	v.end(nil)
}
