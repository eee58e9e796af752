package cgroup

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/needs"
)

// The threads in a threaded cgroup are those of processes that a cgroup above lists; its own
// cgroup.procs cannot be read.
func TestAThreadedCgroupBelowHasNoProcessesOfItsOwn(t *testing.T) {
	needs.Root(t)
	mountinfo, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	mounts := parseMountinfo(string(mountinfo))
	i := slices.IndexFunc(mounts, func(m blockdev.Mount) bool { return m.Type == "cgroup2" && m.Root == "/" })
	needs.That(t, i >= 0, "cgroup v2")
	tree := Open(V2, mounts[i].Point)
	top := fmt.Sprintf("/%s%d-threaded", testPrefix, os.Getpid())
	app, threads := top+"/app", top+"/app/threads"
	for _, at := range []string{top, app, threads} {
		if err := tree.Make(at); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := tree.Remove(at); err != nil {
				t.Error(err)
			}
		})
	}
	sleeper := exec.Command("sleep", "1000")
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = sleeper.Process.Kill()
		_ = sleeper.Wait()
	})
	pid := sleeper.Process.Pid
	if err := tree.Move(pid, app); err != nil {
		t.Fatal(err)
	}
	for _, w := range []struct{ file, text string }{{"cgroup.type", "threaded"}, {"cgroup.threads", strconv.Itoa(pid)}} {
		if err := os.WriteFile(filepath.Join(tree.Root()+threads, w.file), []byte(w.text), 0); err != nil {
			t.Fatal(err)
		}
	}
	if pids, err := tree.Processes(threads); !errors.Is(err, unix.EOPNOTSUPP) {
		t.Fatalf("a threaded cgroup has the processes %d, %v", pids, err)
	}
	if pids, err := tree.ProcessesBelow(top); err != nil || !slices.Equal(pids, []int{pid}) {
		t.Errorf("%d, %v; want %d", pids, err, pid)
	}
}
