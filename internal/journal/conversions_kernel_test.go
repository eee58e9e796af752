package journal

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/ext4test"
	"github.com/daybook-project/daybook/internal/needs"
)

// The extents of new data are converted in a kernel thread. If a commit has begun
// meanwhile, that dirties a block. A program notes the start of each conversion, or the
// inode is read from what the thread works on.
func TestTheConversionOfExtentsIsForTheOwnerOfTheFile(t *testing.T) {
	for _, known := range []bool{true, false} {
		for name, write := range map[string]func(t *testing.T, file *os.File, owned func()){"buffered": writeBuffered, "direct": writeDirect} {
			t.Run(map[bool]string{true: "from the work/", false: "from the start/"}[known]+name, func(t *testing.T) {
				if !known {
					hideFunctions(t)
				}
				ownsConversions(t, known, write)
			})
		}
	}
}

func ownsConversions(t *testing.T, known bool, write func(t *testing.T, file *os.File, owned func())) {
	t.Helper()
	fs := ext4test.New(t, ext4test.Options{})
	p, err := open(func() (*ebpf.CollectionSpec, error) { return loadAttribution() })
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	var work uint64
	if err := p.objects.BufferedWork.Get(&work); err != nil {
		t.Fatal(err)
	}
	if (work != 0) != known {
		t.Errorf("the function is known: %t, want %t", work != 0, known)
	}
	path := filepath.Join(fs.Dir, "file")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	other, err := os.Create(filepath.Join(fs.Dir, "other"))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	syncFS(t, fs.Dir)
	collect(t, p)
	// On a fast disk the conversion is often over before the commit begins.
	const owner, attempts = 4711, 100
	var blocks int64
	for range attempts {
		// Each write makes its own cgroup the owner again.
		write(t, file, func() {
			setOwner(t, p, fs.Dev(), path, owner)
			_, err := other.Write([]byte("x"))
			if err := errors.Join(err, other.Sync()); err != nil {
				t.Fatal(err)
			}
		})
		syncFS(t, fs.Dir)
		for _, c := range collect(t, p).Commits {
			if c.Dev == fs.Dev() {
				blocks += c.Dirtied[owner]
			}
		}
		if blocks > 0 {
			return
		}
		if err := file.Truncate(0); err != nil {
			t.Fatal(err)
		}
	}
	t.Errorf("no block of a conversion is the owner's in %d attempts", attempts)
}

// writeBuffered writes out new data itself, so that only its conversion is in a kernel
// thread.
func writeBuffered(t *testing.T, file *os.File, owned func()) {
	t.Helper()
	const bytes = 256 << 10
	for n := range int64(200) {
		_, err := file.WriteAt(make([]byte, bytes), n*bytes)
		if err == nil {
			err = unix.SyncFileRange(int(file.Fd()), n*bytes, bytes, unix.SYNC_FILE_RANGE_WRITE)
		}
		if err != nil {
			t.Fatal(err)
		}
		owned()
	}
}

// writeDirect writes with asynchronous direct I/O into a part of a file that is reserved.
func writeDirect(t *testing.T, file *os.File, owned func()) {
	t.Helper()
	fio := needs.Tool(t, "fio")
	if err := unix.Fallocate(int(file.Fd()), 0, 0, 128<<20); err != nil {
		t.Fatal(err)
	}
	command := exec.Command(fio, "--name=w", "--filename="+file.Name(), "--rw=write", "--bs=64k", "--size=128m", "--direct=1",
		"--ioengine=libaio", "--iodepth=4", "--overwrite=0", "--fallocate=none", "--thinktime=1ms", "--thinktime_blocks=1", "--output=/dev/null")
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	for {
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
			return
		case <-time.After(0):
			owned()
		}
	}
}
