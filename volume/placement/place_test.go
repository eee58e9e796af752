package placement

import (
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/cgrouptest"
	"github.com/daybook-project/daybook/internal/needs"
)

// worker is a kernel thread that cannot be moved, as one that has not started.
func worker(t *testing.T) int {
	t.Helper()
	names, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		comm, err := os.ReadFile(name)
		if err == nil && strings.HasPrefix(string(comm), "kworker/0:") {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
			if err != nil {
				t.Fatal(err)
			}
			return pid
		}
	}
	needs.That(t, false, "the kernel's threads in /proc")
	return 0
}

// A killed mount can leave a thread of the same name, which cannot be moved, and then ends.
func TestAThreadThatCannotBeMovedYetIsLookedForAgain(t *testing.T) {
	tree := cgrouptest.Tree(t)
	at := cgrouptest.New(t, tree, "placed")
	child := exec.Command("sleep", "infinity")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = child.Process.Kill()
		_ = child.Wait()
	})
	pids := []int{worker(t), child.Process.Pid}
	if err := tree.Move(pids[0], at); !errors.Is(err, unix.EINVAL) {
		t.Fatalf("moving a kworker: %v; want %v", err, unix.EINVAL)
	}
	looked := 0
	thread := Thread{State: &Placed{Journal: at}, Log: slog.New(slog.DiscardHandler), PID: func() (int, error) {
		looked++
		return pids[min(looked-1, 1)], nil
	}}
	if err := thread.move(tree); err != nil {
		t.Fatal(err)
	}
	if now, err := tree.Of(child.Process.Pid); err != nil || now != at || looked != 2 {
		t.Errorf("looked for %d times; it is in %s, %v", looked, now, err)
	}
	none := errors.New("none")
	thread.PID = func() (int, error) { looked++; return 0, none }
	if err := thread.move(tree); !errors.Is(err, none) || looked != 3 {
		t.Errorf("looked for %d times: %v", looked, err)
	}
}
