package control

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/ext4test"
)

func TestEarlyWritebackWritesMetadataThatACommitMadeDirty(t *testing.T) {
	options := ext4test.Options{Mount: "commit=600"}
	fs, other := ext4test.New(t, options), ext4test.New(t, options)
	const directories, blockBytes = 1000, 4096
	written := func(f ext4test.FileSystem) uint64 {
		t.Helper()
		stat, err := f.Disk.Stat()
		if err != nil {
			t.Fatal(err)
		}
		return stat.WriteBytes
	}
	// The kernel writes metadata that is 30 s old, and earlier if other programs have
	// made much memory dirty. Then what is written proves nothing.
	const soon = 20 * time.Second
	problem := "not measured"
	for tries := 0; problem != "" && tries < 5; tries++ {
		began := time.Now()
		for _, f := range []ext4test.FileSystem{other, fs} {
			for n := range directories {
				if err := os.Mkdir(filepath.Join(f.Dir, fmt.Sprintf("%d-%d", tries, n)), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			if err := commit(f.Dir); err != nil {
				t.Fatal(err)
			}
		}
		before, otherBefore := written(fs), written(other)
		if err := (hostWriteback{fs.Disk.Disk}).StartMetadata(); err != nil {
			t.Fatal(err)
		}
		for written(fs) < before+directories*blockBytes && time.Since(began) < soon {
			time.Sleep(10 * time.Millisecond)
		}
		now, otherNow, took := written(fs), written(other), time.Since(began)
		switch {
		case took >= soon:
			problem = fmt.Sprintf("after %v %d bytes were written; want a block for each of %d directories within %v", took, now-before, directories, soon)
		case otherNow != otherBefore:
			problem = fmt.Sprintf("%d bytes were written to another disk", otherNow-otherBefore)
		default:
			problem = ""
		}
		t.Logf("%d bytes after %v %s", now-before, took, problem)
	}
	if problem != "" {
		t.Error(problem)
	}
}

// commit commits the journal by a sync of the directory, which writes no metadata in place.
func commit(dir string) error {
	directory, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(directory.Sync(), directory.Close())
}
