package test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"unicode/utf16"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/atomicfile"
	"github.com/daybook-project/daybook/vm/vmtest"
)

// A new extent of inodes is entered in the inode map, and another one in the same line is
// removed. The transaction of the first is committed, that of the second is not logged
// yet, and the power fails. After the recovery both exist.
func jfsRemovedExtents(t *testing.T, s system) {
	if !delays(t) {
		return
	}
	// The kernel does not promise to drop a page from memory.
	const tries = 3
	for n := range tries {
		why := "it failed"
		t.Run(fmt.Sprint("try", n), func(t *testing.T) { why = removeExtent(t, s) })
		if why == "" || t.Failed() {
			return
		}
		t.Logf("try %d: %s", n, why)
	}
	t.Error("no try came so far")
}

// stopping is a device that can stop reads until it goes on.
type stopping struct{ *device }

func (d stopping) stop() {
	d.become(d.delaying(untilReplaced, 0, 0))
}

func (d stopping) goOn() { d.become(d.working()) }

// waits says whether a read waits.
func (d stopping) waits() bool {
	d.t.Helper()
	return d.delayed().reads > 0
}

// The volume of these tests: two allocation groups.
const extentsBlocks = 16384

// removeExtent returns "", or why the extent was not removed at the right moment.
//
// A read stops each transaction. That of the new extent reads a page of the directory, after
// the inode was chosen. That of the removed extent reads a page of the block map, after it
// has changed the inode map. No other transaction reads these pages meanwhile.
func removeExtent(t *testing.T, s system) (why string) {
	raw := vmtest.Device(t, "disk0")
	directory, blockMap := stopping{deviceNamed(t, "directory", raw)}, stopping{deviceNamed(t, "map", raw)}
	whole := deviceNamed(t, "whole", raw)
	v := s.make(t, plan{disk: whole.node(), blocks: extentsBlocks, journalMB: 4})
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	wide, others := filepath.Join(v.dir, "wide"), filepath.Join(v.dir, "others")
	files := v.fillExtents(wide, others)
	v.unmount()
	whole.become(segments(t, raw, directory.node(), blockMap.node(), whole.sectors))
	v.mount()

	made := make(chan error, 1)
	defer func() {
		directory.goOn()
		blockMap.goOn()
	}()
	// The kernel remembers that there is no such name, and the page goes.
	fresh := filepath.Join(wide, "fresh")
	if _, err := os.Lstat(fresh); !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	dropPages(t)
	directory.stop()
	_, free := v.statfs()
	go func() {
		file, err := os.OpenFile(fresh, os.O_CREATE|os.O_EXCL, 0o600)
		made <- errors.Join(err, file.Close())
	}()
	if !await(func() bool { return len(made) > 0 || directory.waits() }) || len(made) > 0 {
		return "the new file's transaction did not wait"
	}
	if _, now := v.statfs(); now+4 != free {
		t.Fatalf("%d blocks are free, %d before: the new file has no new extent of inodes", now, free)
	}

	// An extent is removed only if many inodes are free. No page of the directory gets empty.
	last := len(files) - 1
	for extent, names := range files {
		var remove []string
		for n, name := range names {
			if n%8 != 0 || extent == last && n > 0 {
				remove = append(remove, name)
			}
		}
		ok(removeFreed(t, others, remove))
	}
	dropPages(t)
	blockMap.stop()
	inodes := freeInodes(t, others)
	// The thread that removes the name may also remove the inode.
	removed := make(chan error, 1)
	go func() { removed <- os.Remove(filepath.Join(others, files[last][0])) }()
	if !await(func() bool { return blockMap.waits() || freeInodes(t, others) > inodes }) || !blockMap.waits() {
		return "the removed extent's transaction did not wait"
	}
	directory.goOn()
	ok(<-made)
	ok(v.syncDirectory())
	if extent := extentOf(t, fresh); extent/8 != last/8 {
		t.Fatalf("the new extent is %d, the removed one %d: they have no line in common", extent, last)
	}
	asItIs := *v
	asItIs.disk = raw
	u := asItIs.uncleanAsItIs()
	u.disk.path = v.disk
	blockMap.goOn()
	ok(<-removed)
	v.unmount()
	u.restore(t)
	v.mount()
	if _, err := os.Lstat(fresh); err != nil {
		t.Error(err)
	}
	v.end(nil)
	return ""
}

// fillExtents makes files until six extents of inodes have no free inode, in an allocation
// group that has no free block; another group has some. It returns the names in others of
// the files of each extent, and leaves a few files in wide, whose names need a page.
func (v *volume) fillExtents(wide, others string) [][]string {
	v.t.Helper()
	ok := func(err error) {
		v.t.Helper()
		if err != nil {
			v.t.Fatal(err)
		}
	}
	// The first group has fewer free blocks then, and gets no directory.
	gap := filepath.Join(v.dir, "gap")
	ok(os.WriteFile(gap, make([]byte, 2000*4096), 0o600))
	for _, dir := range []string{wide, others} {
		ok(os.Mkdir(dir, 0o700))
	}
	for n := range 12 {
		ok(os.WriteFile(filepath.Join(wide, fmt.Sprintf("stays-%02d", n)), nil, 0o600))
	}
	const extents, inodes = 6, 32
	var files [][]string
	for n, full := 0, false; !full; n++ {
		name := fmt.Sprintf("%02d-%02d", n%inodes, n/inodes) // each page has names of all extents
		path := filepath.Join(wide, name)
		ok(os.WriteFile(path, nil, 0o600))
		extent := extentOf(v.t, path)
		for len(files) <= extent {
			files = append(files, nil)
		}
		files[extent] = append(files[extent], name)
		ok(os.Rename(path, filepath.Join(others, name)))
		full = len(files) == extents && len(files[extents-1]) == inodes
	}
	ballast, err := os.Create(filepath.Join(v.dir, "ballast"))
	ok(err)
	for _, size := range []int{1 << 16, 4096} {
		for err = nil; err == nil; {
			_, err = ballast.Write(make([]byte, size))
		}
		if !errors.Is(err, unix.ENOSPC) {
			v.t.Fatal(err)
		}
	}
	ok(errors.Join(ballast.Close(), os.Remove(gap), atomicfile.SyncFileSystem(v.dir)))
	if free := uint64(0); !await(func() bool { _, free = v.statfs(); return free >= 2000 }) {
		v.t.Fatalf("%d blocks are free", free)
	}
	return files
}

// extentOf is the number of a file's extent of inodes in its page of the inode map.
func extentOf(t *testing.T, path string) int {
	t.Helper()
	var stat unix.Stat_t
	if err := unix.Stat(path, &stat); err != nil {
		t.Fatal(err)
	}
	return int(stat.Ino / 32 % 128)
}

func freeInodes(t *testing.T, dir string) uint64 {
	t.Helper()
	var stat unix.Statfs_t
	if err := unix.Statfs(dir, &stat); err != nil {
		t.Fatal(err)
	}
	return stat.Ffree
}

// removeFreed removes the files, and waits until JFS has freed their inodes.
func removeFreed(t *testing.T, dir string, names []string) error {
	t.Helper()
	want := freeInodes(t, dir) + uint64(len(names))
	for _, name := range names {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	if err := syncDirectory(dir); err != nil {
		return err
	}
	if !await(func() bool { return freeInodes(t, dir) >= want }) {
		return fmt.Errorf("%d inodes are free, not %d", freeInodes(t, dir), want)
	}
	return nil
}

// dropPages drops all pages that are not in use, and keeps names.
func dropPages(t *testing.T) {
	t.Helper()
	if err := os.WriteFile("/proc/sys/vm/drop_caches", []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
}

// segments is a table of the whole disk. Its pages of a directory whose names begin with
// "stays-" are on one device, and the block map is on another one.
func segments(t *testing.T, raw, directory, blockMap string, sectors int) string {
	t.Helper()
	const leaf = 2
	disk := takeImage(t, raw, 0, extentsBlocks*4096).bytes
	on := make([]string, sectors/sectorsOfBlock)
	for n := range on {
		on[n] = raw
	}
	var names []byte
	for _, c := range utf16.Encode([]rune("stays-")) {
		names = binary.LittleEndian.AppendUint16(names, c)
	}
	pages := 0
	for n := range extentsBlocks {
		// Each page has its own address.
		page := disk[n*4096 : (n+1)*4096]
		if page[16]&leaf != 0 && binary.LittleEndian.Uint32(page[28:]) == uint32(n) && bytes.Contains(page, names) {
			on[n] = directory
			pages++
		}
	}
	// Of the aggregate's inode 2: the root of its tree of extents.
	root := disk[0xb000+2*512+224:]
	last := int(binary.LittleEndian.Uint16(root[18:]))
	if pages == 0 || root[16]&leaf == 0 || last < 3 || last > 18 {
		t.Fatalf("the directory has %d pages, the block map's tree %d entries", pages, last)
	}
	for entry := 2; entry < last; entry++ {
		at := root[entry*16:]
		first, count := binary.LittleEndian.Uint32(at[12:]), binary.LittleEndian.Uint32(at[8:])&0xffffff
		for n := first; n < first+count; n++ {
			on[n] = blockMap
		}
	}
	table := ""
	for first := 0; first < len(on); {
		next := first
		for next < len(on) && on[next] == on[first] {
			next++
		}
		table += fmt.Sprintf("%d %d linear %s %[1]d\n", first*sectorsOfBlock, (next-first)*sectorsOfBlock, on[first])
		first = next
	}
	return table
}
