// Package cgrouptest makes cgroups for tests. They are removed at the end of the test. If the
// test's process is killed, the next test that makes one removes them, in whatever package.
package cgrouptest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/awaittest"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/needs"
	"github.com/daybook-project/daybook/internal/procstat"
)

// prefix begins the names of all cgroups of tests. The process ID and the start time of the
// test's process follow: they say together whether it is still alive.
const prefix = "daybook-test-"

var recovery sync.Once

// Tree returns the hierarchy with block I/O, without what killed tests left in it. The test
// is skipped if there is none.
func Tree(t testing.TB) *cgroup.Tree {
	t.Helper()
	needs.Root(t)
	tree, err := cgroup.Find()
	needs.That(t, err == nil, fmt.Sprint("a cgroup hierarchy with block I/O: ", err))
	recovery.Do(func() { removeThoseOfTheDead(t, tree) })
	return tree
}

// Path is the path of a cgroup of this process. No other process uses a path that begins
// with it.
func Path(t testing.TB, label string) string {
	t.Helper()
	own, err := procstat.Read(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	return pathOf(own, label)
}

// pathOf is the path of a cgroup of this process, whose state is given.
func pathOf(own procstat.Stat, label string) string {
	return fmt.Sprintf("/%s%d-%d-%s", prefix, os.Getpid(), own.StartTicks, label)
}

// New makes a cgroup for a test, and returns its path.
func New(t testing.TB, tree *cgroup.Tree, label string) string {
	t.Helper()
	path := Path(t, label)
	Make(t, tree, path)
	return path
}

// Make makes a cgroup at a Path or below until the end of the test. Then no process may be
// left in it.
func Make(t testing.TB, tree *cgroup.Tree, path string) {
	t.Helper()
	if err := tree.Make(path); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := tree.Remove(path)
		// A process that was killed may leave it late on a busy host.
		for deadline := time.Now().Add(awaittest.Patience); errors.Is(err, cgroup.ErrInUse) && time.Now().Before(deadline); {
			err = tree.Remove(path)
		}
		if err != nil {
			t.Error(err)
		}
	})
}

// alive reports whether the process that made a cgroup runs. The name is one of Path.
func alive(name string) bool {
	fields := strings.SplitN(strings.TrimPrefix(name, prefix), "-", 3)
	if len(fields) < 3 {
		return true // not a name of this package
	}
	pid, err1 := strconv.Atoi(fields[0])
	made, err2 := strconv.ParseUint(fields[1], 10, 64)
	if err1 != nil || err2 != nil {
		return true
	}
	now, err := procstat.Read(pid)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return false
	}
	return err != nil || !now.Ended() && now.StartTicks == made
}

// removeThoseOfTheDead kills what killed tests left running, and removes their cgroups.
func removeThoseOfTheDead(t testing.TB, tree *cgroup.Tree) {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(tree.Root(), prefix+"*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range left {
		if alive(filepath.Base(dir)) {
			continue
		}
		// A shell may start another program meanwhile.
		for range 100 {
			clear(tree, strings.TrimPrefix(dir, tree.Root()))
			if _, err = os.Stat(dir); err != nil {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Logf("%s of a killed test: removed %t", dir, errors.Is(err, os.ErrNotExist))
	}
}

// clear removes a cgroup with its children. Threads of journals go to the root.
func clear(tree *cgroup.Tree, path string) {
	entries, _ := os.ReadDir(tree.Root() + path)
	for _, entry := range entries {
		if entry.IsDir() {
			clear(tree, path+"/"+entry.Name())
		}
	}
	pids, _ := tree.Processes(path)
	for _, pid := range pids {
		_ = unix.Kill(pid, unix.SIGKILL) // a kernel thread ignores it
		_ = tree.Move(pid, "/")          // a process that ends stays in it for a while
	}
	_ = unix.Rmdir(tree.Root() + path)
}
