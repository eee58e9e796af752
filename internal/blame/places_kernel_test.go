package blame

import (
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/ext4test"
	"github.com/daybook-project/daybook/internal/needs"
)

// takePlaces gives all places in the arrays to others.
func takePlaces(t *testing.T, p *Probe) {
	t.Helper()
	takeAll(t, p, "task_places", programsTaskPlace{Pid: 1 << 30})
	takeAll(t, p, "journal_places", programsJournalPlace{Dev: 4711})
	full := p.maps.EndedCalls.MaxEntries() / 2
	if err := errors.Join(p.ended.variables.First.Set(full), p.ended.variables.Second.Set(full)); err != nil {
		t.Fatal(err)
	}
}

// variable is where a variable of the programs is in their memory, and its length.
func variable(t *testing.T, p *Probe, name string) (memory *ebpf.Memory, start, length int64) {
	t.Helper()
	spec, err := loadPrograms()
	if err != nil {
		t.Fatal(err)
	}
	if memory, err = p.variables.Memory(); err != nil {
		t.Fatal(err)
	}
	v := spec.Variables[name]
	return memory, int64(v.Offset), int64(v.Size())
}

// takeAll gives all places of an array to another.
func takeAll(t *testing.T, p *Probe, array string, other any) {
	t.Helper()
	memory, start, length := variable(t, p, array)
	bytes, err := binary.Append(nil, binary.NativeEndian, other)
	if err != nil {
		t.Fatal(err)
	}
	for at := int64(0); at < length; at += int64(len(bytes)) {
		if _, err := memory.WriteAt(bytes, start+at); err != nil {
			t.Fatal(err)
		}
	}
}

// waitsInMap counts the entries of a file system in the map of waits.
func waitsInMap(t *testing.T, p *Probe, dev uint32) (n int) {
	t.Helper()
	var key programsWaitKey
	var wait programsWait
	entries := p.maps.Waits.Iterate()
	for entries.Next(&key, &wait) {
		if key.Dev == dev {
			n++
		}
	}
	if err := entries.Err(); err != nil {
		t.Fatal(err)
	}
	return n
}

// What is known of tasks and journals, and of calls that have ended, is in the arrays or in
// the maps behind them.
func TestSyncsAreMeasuredWhereverTheirStateIsPlaced(t *testing.T) {
	for name, taken := range map[string]bool{"in arrays": false, "in maps": true} {
		t.Run(name, func(t *testing.T) {
			fs := ext4test.New(t, ext4test.Options{})
			p, err := Open()
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			p.stop() // nothing is read but by Collect
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
			if n := waitsInMap(t, p, fs.Dev()); (n > 0) != taken {
				t.Errorf("%d waits are in the map", n)
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

func TestCallsThatEndWhileTheyAreReadAreCountedOnce(t *testing.T) {
	fs := ext4test.New(t, ext4test.Options{})
	p, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	const tasks, calls = 4, 150
	failed := make(chan error, tasks)
	for task := range tasks {
		go func() {
			f, err := os.Create(filepath.Join(fs.Dir, strconv.Itoa(task)))
			if err == nil {
				defer f.Close()
			}
			for n := 0; n < calls && err == nil; n++ {
				if _, err = f.Write([]byte{1}); err == nil {
					err = f.Sync()
				}
			}
			failed <- err
		}()
	}
	var counted uint64
	read := func() {
		events, err := p.Collect()
		if err != nil {
			t.Fatal(err)
		}
		if events.Lost != 0 {
			t.Errorf("%d lost", events.Lost)
		}
		for call, histogram := range events.Calls {
			if call.Dev == fs.Dev() && call.Operation == Fsync {
				counted += histogram.Calls()
			}
		}
	}
	for ended := 0; ended < tasks; {
		select {
		case err := <-failed:
			if err != nil {
				t.Fatal(err)
			}
			ended++
		default:
			read()
		}
	}
	read()
	if counted != tasks*calls {
		t.Errorf("%d calls, want %d", counted, tasks*calls)
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
	memory, start, length := variable(t, p, "task_places")
	size := int64(binary.Size(programsTaskPlace{}))
	at := pid % uint32(length/size)
	bytes := make([]byte, size)
	var place programsTaskPlace
	var by uint32
	_, err = memory.ReadAt(bytes, start+int64(at)*size)
	if err == nil {
		_, err = binary.Decode(bytes, binary.NativeEndian, &place)
	}
	if err != nil || place.Pid == pid {
		t.Errorf("the place of the task that ended: %v, %v", place, err)
	}
	if err := p.maps.Taken.Lookup(at, &by); err == nil && by == pid {
		t.Error("the place is still taken")
	}
}
