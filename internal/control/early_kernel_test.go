package control

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/ext4test"
)

func TestEarlyWritebackWritesMetadataThatACommitMadeDirty(t *testing.T) {
	fs := ext4test.New(t, ext4test.Options{Mount: "commit=1"})
	other := ext4test.New(t, ext4test.Options{Mount: "commit=1"})
	const directories, blockBytes = 2000, 4096
	written := func(f ext4test.FileSystem) uint64 {
		t.Helper()
		stat, err := f.Disk.Stat()
		if err != nil {
			t.Fatal(err)
		}
		return stat.WriteBytes
	}
	for _, f := range []ext4test.FileSystem{fs, other} {
		for n := range directories {
			if err := os.Mkdir(filepath.Join(f.Dir, strconv.Itoa(n)), 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	// jbd2 commits after a second, and then writes nothing more.
	settled := func() (uint64, uint64) {
		for {
			a, b := written(fs), written(other)
			time.Sleep(2 * time.Second)
			if a == written(fs) && b == written(other) {
				return a, b
			}
		}
	}
	before, otherBefore := settled()
	if err := (hostWriteback{fs.Disk.Disk}).StartMetadata(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(20 * time.Second); written(fs) < before+directories*blockBytes; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d bytes were written; want a block for each of %d directories", written(fs)-before, directories)
		}
	}
	if now := written(other); now != otherBefore {
		t.Errorf("%d bytes were written to another disk", now-otherBefore)
	}
}
