package cgroup

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/blockdev/blockdevtest"
	"github.com/daybook-project/daybook/internal/needs"
)

// Cgroups that the tests make on the host have the prefix and the process ID of
// their test in their name, so that the next run finds those of a killed run.
const testPrefix = "daybook-cgroup-test-"

var recoverOnce sync.Once

// hostTree is the real v1 hierarchy of this host, without leftovers.
func hostTree(t testing.TB) *Tree {
	t.Helper()
	needs.Root(t)
	tree, err := Find()
	needs.That(t, err == nil && tree.Version() == V1, "cgroup v1 with blkio")
	recoverOnce.Do(func() {
		recoverCgroups(tree)
		recoverLoops()
	})
	return tree
}

// ownerGone reports whether the test process of a leftover has ended.
func ownerGone(name string) bool {
	pid, err := strconv.Atoi(strings.SplitN(strings.TrimPrefix(name, testPrefix), "-", 2)[0])
	return err == nil && unix.Kill(pid, 0) == unix.ESRCH
}

func recoverCgroups(tree *Tree) {
	left, _ := filepath.Glob(tree.root + "/" + testPrefix + "*")
	for _, dir := range left {
		if ownerGone(filepath.Base(dir)) {
			removeCgroups(dir)
		}
	}
}

// removeCgroups removes a cgroup and its descendants.
func removeCgroups(dir string) {
	_ = removeNested(dir) // cgroups in use stay
	unix.Rmdir(dir)
}

func recoverLoops() {
	files, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, file := range files {
		content, _ := os.ReadFile(file)
		backing := strings.TrimSuffix(strings.TrimSpace(string(content)), " (deleted)")
		if name := filepath.Base(backing); strings.HasPrefix(name, testPrefix) && ownerGone(name) {
			exec.Command("losetup", "-d", "/dev/"+strings.Split(file, "/")[3]).Run()
			os.Remove(backing)
		}
	}
}

func testName() string { return fmt.Sprintf("%s%d", testPrefix, os.Getpid()) }

// hostCgroup makes a cgroup for one test and returns its path.
func hostCgroup(t testing.TB, tree *Tree) string {
	t.Helper()
	name := testName() + "-" + strings.ReplaceAll(t.Name(), "/", "-")
	if err := os.Mkdir(tree.dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removeCgroups(tree.dir(name)) })
	return "/" + name
}

func makeCgroup(t testing.TB, tree *Tree, path string) {
	t.Helper()
	if err := os.MkdirAll(tree.dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
}

// testDisk is a small disk that the test may change: a loop device, or a guest's
// disk.
type testDisk struct {
	t    testing.TB
	name string
	dev  blockdev.Dev
}

func newLoopDisk(t testing.TB, scheduler string) testDisk {
	t.Helper()
	needs.Tool(t, "losetup")
	needs.Tool(t, "dd")
	backing, err := os.CreateTemp("", testName()+"-*.img")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(backing.Name()) })
	if err := backing.Truncate(64 << 20); err != nil {
		t.Fatal(err)
	}
	backing.Close()
	out, err := exec.Command("losetup", "--find", "--show", "--direct-io=on", backing.Name()).Output()
	needs.That(t, err == nil, "a free loop device")
	d := testDisk{t: t, name: filepath.Base(strings.TrimSpace(string(out)))}
	t.Cleanup(func() { exec.Command("losetup", "-d", "/dev/"+d.name).Run() })

	number, err := os.ReadFile("/sys/block/" + d.name + "/dev")
	if err != nil {
		t.Fatal(err)
	}
	if d.dev, err = blockdev.ParseDev(string(number)); err != nil {
		t.Fatal(err)
	}
	disk, err := blockdev.Lookup(d.name)
	if err != nil {
		t.Fatal(err)
	}
	err = blockdevtest.SetScheduler(t, disk, scheduler)
	needs.That(t, err == nil, "the scheduler "+scheduler)
	return d
}

func (d testDisk) use(scheduler string) {
	d.t.Helper()
	err := os.WriteFile("/sys/block/"+d.name+"/queue/scheduler", []byte(scheduler), 0)
	needs.That(d.t, err == nil, "the scheduler "+scheduler)
}

// write makes a process in a cgroup write to the disk with direct I/O.
func (d testDisk) write(tree *Tree, path string, kib int) {
	d.t.Helper()
	d.dd(tree, path, "if=/dev/zero", "of=/dev/"+d.name, "oflag=direct", "conv=notrunc", "bs=64k", fmt.Sprint("count=", kib/64))
}

// read makes a process in a cgroup read from the disk with direct I/O.
func (d testDisk) read(tree *Tree, path string, kib int) {
	d.t.Helper()
	d.dd(tree, path, "if=/dev/"+d.name, "of=/dev/null", "iflag=direct", "bs=64k", fmt.Sprint("count=", kib/64))
}

func (d testDisk) dd(tree *Tree, path string, arguments ...string) {
	d.t.Helper()
	script := `echo $$ > "$1" && shift && exec dd status=none "$@"`
	command := exec.Command("sh", append([]string{"-c", script, "sh", tree.dir(path) + "/cgroup.procs"}, arguments...)...)
	if out, err := command.CombinedOutput(); err != nil {
		d.t.Fatalf("dd in %s: %v: %s", path, err, out)
	}
}

func TestAKnownHierarchyIsFoundAgainWhenItIsGone(t *testing.T) {
	tree := hostTree(t)
	t.Cleanup(func() { found.Store(nil) })
	found.Store(Open(V2, t.TempDir())) // no cgroup.procs: nothing is mounted there
	first, err := Known()
	if err != nil || first.Root() != tree.Root() || first.Version() != tree.Version() {
		t.Fatalf("%+v, %v; want %+v", first, err, tree)
	}
	if again, err := Known(); err != nil || again != first {
		t.Errorf("read again: %+v, %v", again, err)
	}
}
