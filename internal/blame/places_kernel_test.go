package blame

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/ext4test"
	"github.com/daybook-project/daybook/internal/needs"
)

// takePlaces gives all places in the arrays to others.
func takePlaces(t *testing.T, p *Probe) {
	t.Helper()
	for at := range p.maps.TaskPlaces.MaxEntries() {
		if err := p.maps.TaskPlaces.Put(at, programsTaskPlace{Pid: 1 << 30}); err != nil {
			t.Fatal(err)
		}
	}
	for at := range p.maps.JournalPlaces.MaxEntries() {
		if err := p.maps.JournalPlaces.Put(at, programsJournalPlace{Dev: 4711}); err != nil {
			t.Fatal(err)
		}
	}
}

// What is known of tasks and journals is in the arrays or in the maps behind them.
func TestSyncsAreMeasuredWhereverTheirStateIsPlaced(t *testing.T) {
	for name, taken := range map[string]bool{"in arrays": false, "in maps": true} {
		t.Run(name, func(t *testing.T) {
			fs := ext4test.New(t, ext4test.Options{})
			p, err := Open()
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			if taken {
				takePlaces(t, p)
			}
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			const calls = 9
			var measured time.Duration
			f, err := os.Create(filepath.Join(fs.Dir, "f"))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			for range calls {
				if _, err := f.Write(make([]byte, 4096)); err != nil {
					t.Fatal(err)
				}
				begin := time.Now()
				if err := f.Sync(); err != nil {
					t.Fatal(err)
				}
				measured += time.Since(begin)
			}
			events, err := p.Collect()
			if err != nil {
				t.Fatal(err)
			}
			var counted, own, committing, sum uint64
			var atLeast float64 // by the histogram
			for call, histogram := range events.Calls {
				if call.Dev == fs.Dev() && call.Operation == Fsync {
					counted += histogram.Calls()
					for bucket, n := range histogram {
						atLeast += bucket.lower() * float64(n)
					}
				}
			}
			for _, wait := range events.Waits {
				if wait.Dev != fs.Dev() || wait.Operation != Fsync {
					continue
				}
				for _, ns := range wait.Nanoseconds {
					sum += ns
				}
				own += wait.Nanoseconds[OwnData]
				committing += wait.Nanoseconds[Log] + wait.Nanoseconds[Flush]
			}
			if counted != calls {
				t.Errorf("%d calls, want %d", counted, calls)
			}
			// The phases add up to the time of the calls.
			if own == 0 || committing == 0 || own+committing > sum || float64(sum) < atLeast || sum > uint64(measured) {
				t.Errorf("waited %d ns for its data, %d ns for the log, %d ns in all, at least %.0f; the caller measured %v", own, committing, sum, atLeast, measured)
			}
			// Also without the others, another task can have the same place.
			var state programsTask
			if err := p.maps.Tasks.Lookup(uint32(unix.Gettid()), &state); taken && err != nil {
				t.Errorf("the task is not in the map: %v", err)
			}
		})
	}
}

func TestATaskThatEndsFreesItsPlace(t *testing.T) {
	tool := needs.Tool(t, "sync") // with a file it calls fsync
	fs := ext4test.New(t, ext4test.Options{})
	p, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	file := filepath.Join(fs.Dir, "f")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	command := exec.Command(tool, file)
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("sync: %v: %s", err, out)
	}
	events, err := p.Collect()
	if err != nil {
		t.Fatal(err)
	}
	var calls int
	for call := range events.Calls {
		if call.Dev == fs.Dev() && call.Operation == Fsync {
			calls++
		}
	}
	if calls != 1 {
		t.Fatalf("%d fsyncs were seen, want 1: %+v", calls, events.Calls)
	}
	pid := uint32(command.Process.Pid)
	at := pid % p.maps.TaskPlaces.MaxEntries()
	var place programsTaskPlace
	var by uint32
	if err := p.maps.TaskPlaces.Lookup(at, &place); err != nil || place.Pid == pid {
		t.Errorf("the place of the task that ended: %v, %v", place, err)
	}
	if err := p.maps.Taken.Lookup(at, &by); err == nil && by == pid {
		t.Error("the place is still taken")
	}
}
