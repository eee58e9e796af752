package test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/daybook-project/daybook/internal/atomicfile"
)

// A transaction that nobody waits for ends when it is logged, if it has freed nothing. It is
// committed all the same, soon, though nobody syncs: then what was made survives a power cut.
// One that has emptied a file ends at its commit: then the file's blocks are free.
func jfsUnsynced(t *testing.T, s system) {
	v := s.make(t, plan{blocks: 8192})
	v.fillWithFile("emptied")
	// Otherwise the kernel asks JFS to write pages home, for which it commits.
	const period = "/proc/sys/vm/dirty_writeback_centisecs"
	usual, err := os.ReadFile(period)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(period, []byte("0"), 0); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.WriteFile(period, usual, 0) }()
	if err := atomicfile.SyncFileSystem(v.dir); err != nil {
		t.Fatal(err)
	}
	committed := func(happens func() error) {
		t.Helper()
		before := v.statistics()["commits"]
		if err := happens(); err != nil {
			t.Fatal(err)
		}
		if !await(func() bool { return v.statistics()["commits"] > before }) {
			t.Fatal("nothing was committed")
		}
	}
	committed(func() error { return os.Truncate(filepath.Join(v.dir, "emptied"), 0) })
	const blocks = 1024
	if !await(func() bool { _, free := v.statfs(); return free > blocks }) {
		t.Error("the blocks of a file that was emptied are not free")
	}
	made := func(n int) string { return filepath.Join(v.dir, fmt.Sprint("made", n)) }
	const files = 20
	committed(func() error {
		for n := range files {
			if err := os.Mkdir(made(n), 0o755); err != nil {
				return err
			}
		}
		return nil
	})
	// A commit may have begun before the last one was made.
	committed(func() error { return os.Mkdir(made(files), 0o755) })
	u := v.uncleanAsItIs()
	v.unmount()
	u.restore(t)
	v.mount()
	for n := range files {
		if _, err := os.Stat(made(n)); err != nil {
			t.Error(err)
		}
	}
	v.end(nil)
}
