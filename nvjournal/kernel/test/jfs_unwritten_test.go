package test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/nvjournal/kernel/test/tree"
	"github.com/daybook-project/daybook/vm/vmtest"
)

// What the file systems of these tests have, in blocks, before and after they are extended.
const unextended, extended = 12288, 24576

const sectorsOfBlock = 8

// A block cannot be written, or not at the right moment, while a file system is extended.
// The error is reported. Either nothing has changed, and the file system can be used, or it is
// read-only, and recovery makes it as it was before. Then it can be extended.
func jfsFailedExtension(t *testing.T, s system) {
	v := s.volume(t, plan{blocks: unextended, journalMB: 4})
	v.mkfs()
	super := takeImage(t, v.disk, 0, unextended*4096).bytes
	pages := mapPages(super)
	end := binary.LittleEndian.Uint64(super[0x8000+8:]) >> binary.LittleEndian.Uint16(super[0x8000+22:])
	const newDmap = 4 + 2 // the first page that has no bits of the old file system
	fresh := end
	if len(pages) > newDmap {
		fresh = pages[newDmap]
	}
	t.Run("new log", func(t *testing.T) { failExtension(t, s, "a new log of", true, errorAt(extended-10)) })
	t.Run("copy of the superblock", func(t *testing.T) { failExtension(t, s, "cannot be extended", false, errorAt(15)) })
	t.Run("page of the map", func(t *testing.T) { failExtension(t, s, "cannot be extended", false, errorAt(fresh)) })
	t.Run("map before", func(t *testing.T) {
		failExtension(t, s, "the maps of the file system cannot be written", false, errorAt(pages[0]))
	})
	if !delays(t) {
		return
	}
	t.Run("map", func(t *testing.T) { failExtension(t, s, "cannot be extended", false, failWrite(fresh, 1)) })
	t.Run("superblock", func(t *testing.T) { failExtension(t, s, "cannot be extended", false, failWrite(8, 2)) })
}

// breaking makes a disk of which a part fails, while extend runs.
type breaking func(t *testing.T, whole *device, extend func())

// errorAt lets each access to a block fail.
func errorAt(block uint64) breaking {
	return func(_ *testing.T, whole *device, extend func()) {
		whole.become(whole.except(block, func(uint64) string { return "error" }))
		extend()
	}
}

// failWrite lets one write of a block fail, the first or a later one. The accesses take seconds, so
// that the disk can be changed between them. If that is too late, the test finds less.
func failWrite(block uint64, number int) breaking {
	return func(t *testing.T, whole *device, extend func()) {
		bad := deviceNamed(t, "bad", whole.disk)
		slow := deviceNamed(t, "slow", bad.node())
		slow.become(slow.delaying(3*time.Second, 3*time.Second, 0))
		on := slow.node()
		whole.become(whole.except(block, func(sector uint64) string { return fmt.Sprintf("linear %s %d", on, sector) }))
		ended := make(chan bool)
		go func() {
			extend()
			close(ended)
		}()
		waitFor := func(what string, happened func() bool) {
			t.Helper()
			if !await(func() bool {
				select {
				case <-ended:
					return true
				default:
					return happened()
				}
			}) {
				t.Errorf("it takes too long until %s", what)
			}
		}
		// Writes follow each other at once, so they are counted where they end. Flushes are
		// writes for the kernel, but have no sectors.
		stat := filepath.Join("/sys/class/block", filepath.Base(bad.node()), "stat")
		waitFor("the writes before end", func() bool {
			text, err := os.ReadFile(stat)
			fields := strings.Fields(string(text))
			if err != nil || len(fields) < 7 {
				t.Fatalf("%s: %q, %v", stat, text, err)
			}
			return fields[6] == fmt.Sprint((number-1)*sectorsOfBlock)
		})
		writes := func() bool { return slow.delayed().writes > 0 }
		waitFor("the write begins", writes)
		bad.become(fmt.Sprintf("0 %d error", bad.sectors))
		waitFor("the write fails", func() bool { return !writes() })
		bad.become(bad.working())
		<-ended
		whole.become(whole.working())
		for _, d := range []*device{slow, bad} {
			must(t, "dmsetup", "remove", "--noudevsync", "--noudevrules", d.name)
		}
	}
}

// except is a table in which a block has another target, which may depend on its first sector.
func (d *device) except(block uint64, target func(sector uint64) string) string {
	at := block * sectorsOfBlock
	return fmt.Sprintf("0 %d linear %s 0\n%d %d %s\n%d %d linear %s %[6]d\n", at, d.disk, at, sectorsOfBlock, target(at), at+sectorsOfBlock, uint64(d.sectors)-at-sectorsOfBlock, d.disk)
}

func failExtension(t *testing.T, s system, said string, unchanged bool, fail breaking) {
	whole := newDevice(t, vmtest.Device(t, "disk0"))
	v := s.make(t, plan{disk: whole.node(), blocks: unextended, journalMB: 4})
	check := jfsScripted(t, v.dir, 2, scaled(100, 1000))
	want := v.take()
	blocks, _ := v.statfs()
	extend := fmt.Sprintf("resize=%d", extended)
	seen := logMark(t)
	var err error
	fail(t, whole, func() { err = v.remountWith(extend) })
	whole.become(whole.working())
	if !errors.Is(err, unix.EIO) {
		t.Errorf("an extension whose disk fails: %v", err)
	}
	if log := logSince(t, seen); !strings.Contains(log, said) {
		t.Errorf("the kernel does not say %q:\n%s", said, log)
	}
	if unchanged {
		if err := tree.Compare(want, v.take()); err != nil {
			t.Error(err)
		}
	}
	late := os.Mkdir(filepath.Join(v.dir, "late"), 0o755)
	if unchanged {
		if err := errors.Join(late, v.syncDirectory(), os.Remove(filepath.Join(v.dir, "late"))); err != nil {
			t.Errorf("the file system cannot be changed: %v", err)
		}
	} else {
		if !errors.Is(late, unix.EROFS) {
			t.Errorf("mkdir after the error: %v", late)
		}
		v.unmount()
		if !v.needsRecovery() {
			t.Error("the disk does not wait for its region")
		}
		v.mount()
	}
	if now, _ := v.statfs(); now != blocks {
		t.Errorf("the file system has %d blocks, %d before", now, blocks)
	}
	if !unchanged {
		if err := tree.Compare(want, v.take()); err != nil {
			t.Error(err)
		}
	}
	check(v.dir)
	v.unmount()
	v.fsck()
	v.mount()
	if err := v.remountWith(extend); err != nil {
		t.Fatalf("an extension after the disk works again: %v", err)
	}
	if now, _ := v.statfs(); now < blocks+(extended-unextended)*8/10 {
		t.Errorf("the file system has %d blocks, %d before", now, blocks)
	}
	check(v.dir)
	v.end(check)
}

// The block map cannot be written when the file system is unmounted or frozen: never, or only
// JFS's last write at an umount, or a remount read-only, fails. The disk still waits for its
// region, and recovery makes the map.
func jfsUnwrittenMaps(t *testing.T, s system) {
	for _, how := range []string{"unmount", "freeze", "last write", "last write of a remount"} {
		t.Run(how, func(t *testing.T) {
			last := strings.HasPrefix(how, "last write")
			if last && !delays(t) {
				return
			}
			whole := newDevice(t, vmtest.Device(t, "disk0"))
			v := s.make(t, plan{disk: whole.node(), blocks: unextended})
			check := jfsScripted(t, v.dir, 2, scaled(100, 1000))
			want := v.take()
			control := mapPages(takeImage(t, v.disk, 0, unextended*4096).bytes)[0]
			seen := logMark(t)
			fail := errorAt(control)
			if last {
				fail = failWrite(control, 2)
			}
			fail(t, whole, func() {
				if how == "freeze" {
					if err := v.ioctl(fifreeze, nil); !errors.Is(err, unix.EIO) {
						t.Errorf("a freeze: %v", err)
					}
				}
				if how == "last write of a remount" {
					if err := v.remountReadOnly(); !errors.Is(err, unix.EIO) {
						t.Errorf("a remount: %v", err)
					}
				}
				v.unmount()
			})
			whole.become(whole.working())
			if log := logSince(t, seen); !strings.Contains(log, "the maps of the file system cannot be written") {
				t.Errorf("the kernel says:\n%s", log)
			}
			if !v.needsRecovery() {
				t.Error("the disk does not wait for its region")
			}
			v.mount()
			if err := tree.Compare(want, v.take()); err != nil {
				t.Error(err)
			}
			v.end(check)
		})
	}
}

// mapPages are the blocks of the pages of a disk's block map.
func mapPages(disk []byte) []uint64 { return pagesOf(disk, 2) }

// pagesOf are the blocks of the pages of an inode of the aggregate; 2: the block map, 16: the inode map.
func pagesOf(disk []byte, inode int) []uint64 {
	// The root of its tree of extents.
	root := disk[0xb000+inode*512+224:]
	var pages []uint64
	for entry := 2; entry < int(binary.LittleEndian.Uint16(root[18:])); entry++ {
		at := root[entry*16:]
		first, count := binary.LittleEndian.Uint32(at[12:]), binary.LittleEndian.Uint32(at[8:])&0xffffff
		for n := range count {
			pages = append(pages, uint64(first+n))
		}
	}
	return pages
}
