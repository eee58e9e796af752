package journal

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/ext4test"
	"github.com/daybook-project/daybook/internal/needs"
)

// Requests that come eight at a time are outstanding together: the time with at
// least one of them is less than their sum.
func TestTheBusyTimeOfBurstsIsLessThanTheirSum(t *testing.T) {
	fio := needs.Tool(t, "fio")
	fs := ext4test.New(t, ext4test.Options{})
	file := filepath.Join(fs.Dir, "f")
	if err := os.WriteFile(file, make([]byte, 8<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	disk := fs.Disk.Dev.Kernel()
	unix.Sync()
	p, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := p.Observe([]uint32{disk}); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name      string
		arguments []string
		// atLeast is the sum of times divided by the busy time.
		atLeast float64
	}{
		{"one after the other", []string{"--iodepth=1"}, 0.99},
		{"bursts of eight", []string{"--iodepth=8", "--iodepth_batch_submit=8", "--iodepth_batch_complete_min=8",
			"--thinktime=20ms", "--thinktime_blocks=8"}, 1.5},
	} {
		// On a busy host the disk may serve a request before the next one of its
		// burst is there.
		for tries := 0; ; tries++ {
			collect(t, p)
			begin := time.Now()
			command := exec.Command(fio, append([]string{"--name=r", "--filename=" + file, "--rw=randread", "--bs=64k", "--direct=1", "--ioengine=libaio",
				"--time_based", "--runtime=1", "--output=/dev/null"}, test.arguments...)...)
			if out, err := command.CombinedOutput(); err != nil {
				t.Fatalf("fio: %v: %s", err, out)
			}
			var sum, busy time.Duration
			for _, w := range collect(t, p).Writes {
				if w.Disk != disk {
					continue
				}
				switch w.Kind {
				case KindOutstanding:
					sum += time.Duration(w.Bytes)
				case KindBusy:
					busy += time.Duration(w.Bytes)
				}
			}
			took := time.Since(begin)
			t.Logf("%s: busy for %v of %v, requests outstanding for %v together", test.name, busy, took, sum)
			if busy <= 0 || busy > took || sum.Seconds() < 0.99*busy.Seconds() || sum > 9*busy {
				t.Errorf("%s: busy for %v of %v, requests outstanding for %v together", test.name, busy, took, sum)
			}
			if sum.Seconds() >= test.atLeast*busy.Seconds() {
				break
			}
			if tries == 4 {
				t.Errorf("%s: want at least %.2f times the busy time", test.name, test.atLeast)
				break
			}
		}
	}
}

// fdatasync of a file that was only overwritten has nothing to commit. It flushes the disk's
// cache, and its caller waits for that.
func TestFlushesThatASyncWaitsForAreTimed(t *testing.T) {
	fs := ext4test.New(t, ext4test.Options{})
	name := filepath.Join(fs.Dir, "f")
	if err := os.WriteFile(name, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	unix.Sync()
	file, err := os.OpenFile(name, os.O_RDWR|unix.O_DIRECT, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	page := onePage(t)
	p, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := p.Observe([]uint32{fs.Disk.Dev.Kernel()}); err != nil {
		t.Fatal(err)
	}
	const calls = 50
	for _, syncs := range []bool{false, true} {
		collect(t, p)
		begin := time.Now()
		for n := range int64(calls) {
			if _, err := file.WriteAt(page, n*4096); err != nil {
				t.Fatal(err)
			}
			if syncs {
				if err := unix.Fdatasync(int(file.Fd())); err != nil {
					t.Fatal(err)
				}
			}
		}
		took := time.Since(begin)
		var flushed, busy time.Duration
		for _, w := range collect(t, p).Writes {
			switch {
			case w.Disk != fs.Disk.Dev.Kernel():
			case w.Kind == KindFlush:
				flushed += time.Duration(w.Bytes)
			case w.Kind == KindBusy:
				busy += time.Duration(w.Bytes)
			}
		}
		t.Logf("syncs: %v; %v in flushes, %v in requests, of %v", syncs, flushed, busy, took)
		if flushed > 0 != syncs || flushed+busy > took {
			t.Errorf("syncs: %v; %v in flushes, %v in requests, of %v", syncs, flushed, busy, took)
		}
	}
}

// onePage returns memory of the size and alignment that direct I/O needs.
func onePage(t *testing.T) []byte {
	t.Helper()
	page, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Munmap(page); err != nil {
			t.Error(err)
		}
	})
	return page
}
