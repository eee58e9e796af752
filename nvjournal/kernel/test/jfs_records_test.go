package test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/atomicfile"
	"github.com/daybook-project/daybook/nvjournal/kernel/test/tree"
)

// The first record of a page has only what changed, if the page was read from the disk.
// Recovery from these records gives the same tree, whatever the disk had before, and
// whichever blocks are at home.
func jfsFirstRecords(t *testing.T, s system) {
	v := s.volume(t, plan{blocks: 12288, journalMB: 4, size: 2 * s.smallestJournal()})
	v.fillDisk(0xa5)
	v.mkfs()
	v.mount()
	const directories, files = 6, 120
	name := func(d, f int) string { return filepath.Join(v.dir, fmt.Sprintf("d%d/f%03d", d, f)) }
	for d := range directories {
		if err := os.Mkdir(filepath.Join(v.dir, fmt.Sprintf("d%d", d)), 0o755); err != nil {
			t.Fatal(err)
		}
		for f := range files {
			if err := os.WriteFile(name(d, f), []byte("content"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	// Files whose extents need a page of their own. The blocks between them are holes.
	const fragmented, extents = 8, 24
	addExtent := func(file, extent int) {
		f, err := os.OpenFile(filepath.Join(v.dir, fmt.Sprintf("fragmented%d", file)), os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt(bytes.Repeat([]byte{byte(1 + extent)}, 4096), int64(extent)*2*4096); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for extent := range extents {
		for file := range fragmented {
			addExtent(file, extent)
		}
	}
	// Now neither the memory nor the journal has a page.
	v.unmount()
	v.mount()

	pages := map[uint64]string{}
	for d := range directories {
		for f := range files {
			var stat unix.Stat_t
			if err := unix.Stat(name(d, f), &stat); err != nil {
				t.Fatal(err)
			}
			const inodesOfPage = 8
			if pages[stat.Ino/inodesOfPage] == "" {
				pages[stat.Ino/inodesOfPage] = name(d, f)
			}
		}
	}
	before := v.logged()
	for _, path := range pages {
		if err := os.Chmod(path, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// A header, and two lines that have the mode and the times.
	lines, most := v.logged()-before, uint64(3*len(pages))
	t.Logf("%d lines for %d pages of inodes", lines, len(pages))
	if len(pages) < directories*files/8 || lines > most+most/10 {
		t.Errorf("%d lines were logged for %d pages of inodes, want at most %d", lines, len(pages), most)
	}

	// Pages of directories and of their tables, inodes that are freed, inodes that are made.
	for d := range directories {
		for f := 0; f < files; f += 10 {
			for _, err := range []error{
				os.Rename(name(d, f), name(d, f)+"-has-another-name"),
				os.Remove(name(d, f+1)),
				os.Rename(name(d, f+2), name((d+1)%directories, f+1000)),
				os.WriteFile(name(d, f+2000), []byte("new"), 0o640),
			} {
				if err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	// Pages of extents. JFS changes them before it locks them.
	for file := range fragmented {
		addExtent(file, extents)
	}
	want, places := v.take(), v.places()
	u := v.unclean()
	v.unmount()
	home := takeImage(t, v.disk, 0, v.blocks*4096)
	check := func(string) {
		if err := tree.Compare(want, v.take()); err != nil {
			t.Error(err)
		}
		if now := v.places(); !bytes.Equal(now, places) {
			t.Error("entries of directories have other places")
		}
	}
	random := rand.New(rand.NewPCG(loadSeed, 4))
	u.restore(t)
	for round := range scaled(2, 6) {
		if round > 0 {
			u.restoreHalf(t, s, home, random)
		}
		v.mount()
		check(v.dir)
		v.end(check)
	}
}

// fillDisk gives all blocks of the volume the same bytes.
func (v *volume) fillDisk(with byte) {
	v.t.Helper()
	i := &image{v.disk, 0, aligned(v.t, v.blocks*4096)}
	for n := range i.bytes {
		i.bytes[n] = with
	}
	i.restore(v.t)
}

// logged syncs, and returns how many lines the journal has logged.
func (v *volume) logged() uint64 {
	v.t.Helper()
	if err := atomicfile.SyncFileSystem(v.dir); err != nil {
		v.t.Fatal(err)
	}
	return v.statistics()["logged_lines"]
}

// places are the entries of all directories as the kernel lists them: each has the place
// where the listing goes on, which is in the directory's table.
func (v *volume) places() []byte {
	v.t.Helper()
	var all []byte
	err := filepath.WalkDir(v.dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		directory, err := os.Open(path)
		if err != nil {
			return err
		}
		defer directory.Close()
		b := make([]byte, 1<<16)
		for {
			clear(b) // the kernel leaves gaps between entries
			n, err := unix.ReadDirent(int(directory.Fd()), b)
			if n <= 0 || err != nil {
				return err
			}
			all = append(all, b[:n]...)
		}
	})
	if err != nil {
		v.t.Fatal(err)
	}
	return all
}
