package blame

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/internal/ext4test"
	"github.com/daybook-project/daybook/internal/needs"
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

// An unmount checkpoints, and starts no handle after it. While a checkpoint counts as running,
// each start of a handle on the host is measured.
func TestTheCheckpointOfAnUnmountEndsWithItsTask(t *testing.T) {
	tool := needs.Tool(t, "umount")
	fs := ext4test.New(t, ext4test.Options{})
	p, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	running := func() int32 {
		t.Helper()
		memory, start, length := variable(t, p, "checkpoints")
		bytes := make([]byte, length)
		if _, err := memory.ReadAt(bytes, start); err != nil {
			t.Fatal(err)
		}
		return int32(binary.NativeEndian.Uint32(bytes))
	}
	if err := os.WriteFile(filepath.Join(fs.Dir, "f"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(tool, fs.Dir).CombinedOutput(); err != nil {
		t.Fatalf("umount: %v: %s", err, out)
	}
	began := time.Now() // others on the host may checkpoint, for a moment
	for running() != 0 && time.Since(began) < 30*time.Second {
		time.Sleep(10 * time.Millisecond)
	}
	if n := running(); n != 0 {
		t.Errorf("%d checkpoints run", n)
	}
}
