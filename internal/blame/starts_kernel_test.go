package blame

import (
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/awaittest"
	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/internal/ext4test"
	"github.com/daybook-project/daybook/internal/needs"
)

// FIFREEZE and FITHAW, include/uapi/linux/fs.h.
const (
	fiFreeze = 0xc0045877
	fiThaw   = 0xc0045878
)

// taskOf is what the programs know of a task that has a place in the array.
func taskOf(t *testing.T, p *Probe, pid uint32) programsTask {
	t.Helper()
	memory, start, length := variable(t, p, "task_places")
	size := int64(binary.Size(programsTaskPlace{}))
	bytes := make([]byte, size)
	var place programsTaskPlace
	_, err := memory.ReadAt(bytes, start+int64(pid)%(length/size)*size)
	if err == nil {
		_, err = binary.Decode(bytes, binary.NativeEndian, &place)
	}
	if err != nil {
		t.Fatal(err)
	}
	if place.Pid != pid {
		return programsTask{}
	}
	return place.Task
}

// startOf is since when a task is about to start a handle, in the array or in the map; 0: it
// is not.
func startOf(t *testing.T, p *Probe, pid uint32) uint64 {
	t.Helper()
	if from := taskOf(t, p, pid).HandleFrom; from != 0 {
		return from
	}
	var state programsTask
	if err := p.maps.Tasks.Lookup(pid, &state); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		t.Fatal(err)
	}
	return state.HandleFrom
}

// noCheckpointRuns waits until none does: others on the host may checkpoint, for a moment.
func noCheckpointRuns(t *testing.T, p *Probe) {
	t.Helper()
	memory, start, length := variable(t, p, "checkpoints")
	bytes := make([]byte, length)
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if _, err := memory.ReadAt(bytes, start); err != nil {
			t.Fatal(err)
		}
		n := int32(binary.NativeEndian.Uint32(bytes))
		if n == 0 {
			return
		}
		if time.Since(began) > 30*time.Second {
			t.Fatalf("%d checkpoints run", n)
		}
	}
}

// checkpointing makes a task one of the map that checkpoints.
func checkpointing(t *testing.T, p *Probe, pid uint32) {
	t.Helper()
	if err := p.maps.Tasks.Put(pid, programsTask{Checkpointing: 1}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"any_task", "checkpoints"} {
		memory, start, _ := variable(t, p, name)
		if _, err := memory.WriteAt(binary.NativeEndian.AppendUint32(nil, 1), start); err != nil {
			t.Fatal(err)
		}
	}
}

// jbd2 reports no start of a handle of a file system without a journal. What began there
// during a commit of another is no wait of the task's next handle.
func TestTheStartOfAHandleWithoutAJournalIsNoWaitOfTheNextHandle(t *testing.T) {
	without := ext4test.New(t, ext4test.Options{Make: ext4.MakeOptions{NoJournal: true}})
	with := ext4test.New(t, ext4test.Options{})
	p, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	stop, synced := make(chan bool), make(chan error)
	go func() {
		f, err := os.Create(filepath.Join(with.Dir, "synced"))
		if err != nil {
			synced <- err
			return
		}
		defer f.Close()
		for {
			select {
			case <-stop:
				synced <- err
				return
			default:
			}
			if err == nil {
				_, err = f.Write(make([]byte, 4096))
			}
			if err == nil {
				err = f.Sync()
			}
		}
	}()
	began := time.Now()
	for taskOf(t, p, uint32(unix.Gettid())).HandleFrom == 0 && time.Since(began) < 20*time.Second {
		path := filepath.Join(without.Dir, "f")
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Error(err)
			break
		}
		if err := os.Remove(path); err != nil {
			t.Error(err)
			break
		}
	}
	close(stop)
	if err := <-synced; err != nil {
		t.Fatal(err)
	}
	const passed = time.Second
	time.Sleep(passed)
	if taskOf(t, p, uint32(unix.Gettid())).HandleFrom == 0 {
		t.Fatal("no handle began during a commit")
	}
	if err := os.WriteFile(filepath.Join(with.Dir, "f"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	events, err := p.Collect()
	if err != nil {
		t.Fatal(err)
	}
	for call, histogram := range events.Calls {
		for bucket := range histogram {
			if call.Dev == with.Dev() && call.Operation == Handle && bucket.UpperSeconds() > passed.Seconds() {
				t.Errorf("a handle waited for about %.3g s", bucket.UpperSeconds())
			}
		}
	}
	for _, wait := range events.Waits {
		if wait.Dev == with.Dev() && wait.Operation == Handle && time.Duration(wait.Nanoseconds[Rest]) >= passed {
			t.Errorf("a handle waited for %v for no reason", time.Duration(wait.Nanoseconds[Rest]))
		}
	}
	if from := taskOf(t, p, uint32(unix.Gettid())).HandleFrom; from != 0 {
		t.Errorf("a handle has been about to start since %d ns", from)
	}
}

// A task that empties the log checkpoints, and starts no handle after it. While a checkpoint
// counts as running, each start of a handle on the host is measured. The task lives on, as
// those of a daemon do.
func TestATaskThatEmptiesTheLogWaitsForNoHandle(t *testing.T) {
	for name, empty := range map[string]func(dir string) error{
		"unmount": func(dir string) error { return unix.Unmount(dir, 0) },
		"remount": func(dir string) error { return unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, "") },
		"freeze": func(dir string) error {
			f, err := os.Open(dir)
			if err != nil {
				return err
			}
			defer f.Close()
			if err := unix.IoctlSetInt(int(f.Fd()), fiFreeze, 0); err != nil {
				return err
			}
			return unix.IoctlSetInt(int(f.Fd()), fiThaw, 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			fs := ext4test.New(t, ext4test.Options{})
			p, err := Open()
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			if err := os.WriteFile(filepath.Join(fs.Dir, "f"), []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
			thread, emptied, end := make(chan uint32, 1), make(chan error), make(chan bool)
			go func() {
				runtime.LockOSThread() // and the thread ends with this function
				thread <- uint32(unix.Gettid())
				emptied <- empty(fs.Dir)
				<-end
			}()
			defer close(end)
			if err := <-emptied; err != nil {
				t.Fatal(err)
			}
			noCheckpointRuns(t, p)
			if from := startOf(t, p, <-thread); from != 0 {
				t.Errorf("a handle has been about to start since %d ns", from)
			}
		})
	}
}

// If the journal fails, no handle follows a checkpoint, and the task lives on.
func TestACheckpointEndsWhenItsTaskStartsTheNextHandle(t *testing.T) {
	without := ext4test.New(t, ext4test.Options{Make: ext4.MakeOptions{NoJournal: true}})
	p, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	takePlaces(t, p)
	checkpointing(t, p, uint32(unix.Gettid()))
	if err := os.WriteFile(filepath.Join(without.Dir, "f"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	noCheckpointRuns(t, p)
}

// As for writeback, whose threads live on.
func TestACheckpointEndsWhenAKernelThreadStartsTheNextHandle(t *testing.T) {
	fs := ext4test.New(t, ext4test.Options{})
	p, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	takePlaces(t, p)
	awaittest.Until(t, time.Minute, "the checkpoint of a thread ends", func() bool {
		threads := kernelThreads(t)
		for _, pid := range threads {
			checkpointing(t, p, pid)
		}
		f, err := os.CreateTemp(fs.Dir, "")
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.Write(make([]byte, 4096))
		if err := errors.Join(err, unix.Syncfs(int(f.Fd())), f.Close()); err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(threads, func(pid uint32) bool {
			var state programsTask
			return p.maps.Tasks.Lookup(pid, &state) == nil && state.Checkpointing == 0
		})
	})
}

// kernelThreads are the workers, of which one writes a file system back.
func kernelThreads(t *testing.T) (pids []uint32) {
	t.Helper()
	names, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil || !strings.HasPrefix(string(text), "kworker/") {
			continue // gone, or another
		}
		pid, err := strconv.ParseUint(filepath.Base(filepath.Dir(name)), 10, 32)
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, uint32(pid))
	}
	needs.That(t, len(pids) > 0, "the kernel's threads in /proc")
	return pids
}

// What is known of a task is in the map if another one has its place in the array.
func TestACheckpointEndsWithItsTaskAlsoInTheMap(t *testing.T) {
	tool := needs.Tool(t, "sleep")
	p, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	command := exec.Command(tool, "1h")
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	takePlaces(t, p)
	checkpointing(t, p, uint32(command.Process.Pid))
	if err := command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = command.Wait() // it was killed
	noCheckpointRuns(t, p)
	var state programsTask
	if err := p.maps.Tasks.Lookup(uint32(command.Process.Pid), &state); !errors.Is(err, ebpf.ErrKeyNotExist) {
		t.Errorf("the task that ended is in the map: %v", err)
	}
}
