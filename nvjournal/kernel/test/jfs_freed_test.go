package test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/atomicfile"
)

// Blocks of directories are freed and get long symbolic links and attributes, which JFS
// writes to the disk itself. They are there at once, and after a crash, whether the
// journal still has the old content or the disk has it.
func jfsReusedBlocks(t *testing.T, s system) {
	t.Run("after a commit", func(t *testing.T) { reuseBlocks(t, s, false) })
	t.Run("after a checkpoint", func(t *testing.T) { reuseBlocks(t, s, true) })
}

// carryHome freezes the volume for a moment, so that the disk has all.
func (v *volume) carryHome() {
	v.t.Helper()
	if err := errors.Join(v.ioctl(fifreeze, nil), v.ioctl(fithaw, nil)); err != nil {
		v.t.Fatal(err)
	}
}

// reuseBlocks carries all home, if home is set, while the directories still have a name.
func reuseBlocks(t *testing.T, s system, home bool) {
	v := s.make(t, plan{blocks: 8192, size: 8 * s.smallestJournal()})
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	const directories, names, files, spare = 5, 560, 120, 30
	one := filepath.Join(v.dir, "one")
	ok(os.WriteFile(one, nil, 0o644))
	file := func(dir string, n int) string { return filepath.Join(dir, fmt.Sprint("file", n)) }
	link := func(dir string, n int) string { return filepath.Join(dir, fmt.Sprint("link", n)) }
	for n := range files + spare {
		ok(os.WriteFile(file(v.dir, n), nil, 0o644))
	}
	for n := range spare { // their inodes are for the links
		ok(os.Remove(file(v.dir, files+n)))
	}
	// More than 512 names have a second page in the directory's table. It is freed with
	// the last name, and no transaction has locked it then.
	name := func(d, n int) string {
		return filepath.Join(v.dir, fmt.Sprintf("dir%d/a-name-of-some-length-%04d", d, n))
	}
	for d := range directories {
		ok(os.Mkdir(filepath.Join(v.dir, fmt.Sprint("dir", d)), 0o755))
		for n := range names {
			ok(os.Link(one, name(d, n)))
		}
	}
	v.fillWithFile("ballast")
	_, full := v.statfs()
	for d := range directories {
		for n := names - 1; n > 0; n-- {
			ok(os.Remove(name(d, n)))
		}
	}
	ok(v.syncDirectory())
	if home {
		v.carryHome()
	}
	for d := range directories {
		ok(os.Remove(name(d, 0)))
	}
	ok(v.syncDirectory())
	// Each directory has at least ten pages.
	free := uint64(0)
	if !await(func() bool { _, free = v.statfs(); return free >= full+directories*10 }) {
		t.Fatalf("%d blocks are free, %d before the names were removed", free, full)
	}

	target := func(n int) string { return fmt.Sprintf("%04d", n) + strings.Repeat("/target", 140) }
	content := func(n int) []byte { return bytes.Repeat([]byte{byte(1 + n)}, 3900) }
	links, attributes := 0, 0
	for ; links < spare; links++ {
		if _, free = v.statfs(); free < 16 {
			break
		}
		ok(os.Symlink(target(links), link(v.dir, links)))
	}
	for ; attributes < files; attributes++ {
		err := unix.Setxattr(file(v.dir, attributes), "user.content", content(attributes), 0)
		if errors.Is(err, unix.ENOSPC) {
			break
		}
		ok(err)
	}
	ok(v.syncDirectory())
	if links+attributes < directories*10-16 {
		t.Errorf("only %d links and %d attributes fit", links, attributes)
	}
	check := func(dir string) {
		t.Helper()
		got := make([]byte, 4096)
		for n := range links {
			if to, err := os.Readlink(link(dir, n)); err != nil || to != target(n) {
				t.Errorf("link %d of %d goes to %d bytes, %.20q: %v", n, links, len(to), to, err)
			}
		}
		for n := range attributes {
			if size, err := unix.Getxattr(file(dir, n), "user.content", got); err != nil || !bytes.Equal(got[:size], content(n)) {
				t.Errorf("file %d of %d has another attribute: %v", n, attributes, err)
			}
		}
		if t.Failed() {
			t.FailNow()
		}
	}
	check(v.dir)
	u := v.uncleanAsItIs()
	dropCaches(t)
	check(v.dir)
	v.unmount()
	u.restore(t)
	v.mount()
	check(v.dir)
	v.end(check)
}

// syncDirectory commits what was done, and writes nothing home.
func (v *volume) syncDirectory() error { return syncDirectory(v.dir) }

func syncDirectory(path string) error {
	directory, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(directory.Sync(), directory.Close())
}

// fillWithFile fills the volume with a file, each of whose blocks has its number, and
// returns the blocks.
func (v *volume) fillWithFile(name string) int {
	v.t.Helper()
	file, err := os.Create(filepath.Join(v.dir, name))
	if err != nil {
		v.t.Fatal(err)
	}
	blocks := 0
	for ; err == nil; blocks++ {
		_, err = file.Write(numbered(blocks))
	}
	blocks--
	if !errors.Is(err, unix.ENOSPC) {
		v.t.Fatalf("after %d blocks: %v", blocks, err)
	}
	if err := errors.Join(file.Truncate(int64(blocks)*4096), file.Sync(), file.Close()); err != nil {
		v.t.Fatal(err)
	}
	return blocks
}

func numbered(block int) []byte { return bytes.Repeat([]byte(fmt.Sprintf("%08d", block)), 4096/8) }

// A directory's page has one name, and the page before it is full. The name gets
// another place in the page before: JFS splits that one, changes the next one because
// it is the neighbor of a new page, and then removes it, all in one transaction. Its
// block then gets file data, over which the journal writes nothing.
func jfsEmptiedPages(t *testing.T, s system) {
	v := s.make(t, plan{blocks: 8192, size: 4 * s.smallestJournal()})
	one := filepath.Join(v.dir, "one")
	if err := os.WriteFile(one, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	// A name takes 14 of the 123 places in a page, so that eight fit.
	const directories, names = 16, 8
	name := func(d int, start string) string {
		return filepath.Join(v.dir, fmt.Sprint("dir", d), start+strings.Repeat("-", 200-len(start)))
	}
	for d := range directories {
		if err := os.Mkdir(filepath.Join(v.dir, fmt.Sprint("dir", d)), 0o755); err != nil {
			t.Fatal(err)
		}
		for n := range names + 1 {
			if err := os.Link(one, name(d, fmt.Sprint("b", n))); err != nil {
				t.Fatal(err)
			}
		}
	}
	// Now neither the memory nor the journal has a page.
	v.unmount()
	v.mount()
	_, free := v.statfs()
	for d := range directories {
		if err := os.Rename(name(d, fmt.Sprint("b", names)), name(d, "b4x")); err != nil {
			t.Fatal(err)
		}
	}
	if err := v.syncDirectory(); err != nil {
		t.Fatal(err)
	}
	now := uint64(0)
	if !await(func() bool { _, now = v.statfs(); return now >= free }) {
		t.Fatalf("%d blocks are free, %d before names changed: no page was freed", now, free)
	}
	blocks := v.fillWithFile("data")
	check := func(dir string) {
		t.Helper()
		file, err := os.Open(filepath.Join(dir, "data"))
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		b := make([]byte, 4096)
		for n := range blocks {
			if _, err := io.ReadFull(file, b); err != nil || !bytes.Equal(b, numbered(n)) {
				t.Fatalf("block %d of %d has other content, %.8q: %v", n, blocks, b, err)
			}
		}
	}
	u := v.unclean()
	v.carryHome()
	dropCaches(t)
	check(v.dir)
	v.unmount()
	u.restore(t)
	v.mount()
	check(v.dir)
	v.end(check)
}

// A file without a name is open, and gets more extents. JFS writes the pages of its
// extent tree without its log, and reads them again from the disk.
func jfsUnlinked(t *testing.T, s system) {
	v := s.make(t, plan{})
	const extents = 40
	path := filepath.Join(v.dir, "unlinked")
	file := create(t, path)
	add := func(first, end int) {
		t.Helper()
		for n := first; n < end; n++ {
			if _, err := file.WriteAt(numbered(n), int64(n)*2*4096); err != nil {
				t.Fatal(err)
			}
		}
		if err := file.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	add(0, extents)
	// The page is at home, and nothing of it waits.
	v.carryHome()
	if err := errors.Join(os.Remove(path), v.syncDirectory()); err != nil {
		t.Fatal(err)
	}
	add(extents, 2*extents)
	if err := atomicfile.SyncFileSystem(v.dir); err != nil {
		t.Fatal(err)
	}
	dropCaches(t)
	b := make([]byte, 4096)
	for n := range 2 * extents {
		if _, err := file.ReadAt(b, int64(n)*2*4096); err != nil || !bytes.Equal(b, numbered(n)) {
			t.Fatalf("extent %d of %d has other content, %.8q: %v", n, 2*extents, b, err)
		}
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	v.end(nil)
}
