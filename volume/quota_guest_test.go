package volume_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/awaittest"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/vm/vmtest"
	"github.com/daybook-project/daybook/volume"
)

// cpuQuota is a tenth of a processor: 10 ms of each 100 ms.
const cpuQuota = "10000 100000"

// waitBound is the longest accepted wait of a neighbour in an emulated guest: for a
// thread outside of the quota, and for one inside, which waits for some periods.
const waitBound, waitBoundInside = 3 * time.Second, 30 * time.Second

// insideFactor is how many times longer the median sync takes, at least, while the
// thread is inside. A test that does not see this measures nothing.
const insideFactor = 4

// quotaTimes are how long a neighbour on the volume of a container with a quota waits.
type quotaTimes struct{ fsyncMedian, fsync99, sync, freeze, detach time.Duration }

func (q quotaTimes) String() string {
	return fmt.Sprintf("fsync p50 %v, p99 %v; sync %v, freeze %v, detach %v", q.fsyncMedian, q.fsync99, q.sync, q.freeze, q.detach)
}

func (q quotaTimes) longest() time.Duration {
	return max(q.fsync99, q.sync, q.freeze, q.detach)
}

// A container that computes, writes and syncs has a tenth of a processor. A neighbour on
// the same volume syncs, and the host syncs, freezes and unmounts the volume. The thread
// is outside of the quota, unless it is in the container's own cgroup or the parent has
// the quota, which inspect reports.
func TestGuestQuotaOfAContainerAndTheJournalOfItsVolume(t *testing.T) {
	vmtest.Long(t)
	vmtest.InGuest(t, vmtest.Config{
		Disks: []string{"256M"}, Modules: "ext4,bfq,loop", Give: []string{"mke2fs"}, Fresh: true,
	}, func(t *testing.T) {
		pool := guestPool(t)
		if _, err := pool.Create(t.Context(), "db", volume.CreateOptions{SizeBytes: 64 << 20}); err != nil {
			t.Fatal(err)
		}
		tree, err := cgroup.Find()
		if err != nil {
			t.Fatal(err)
		}
		enableCPU(t, tree, "/")
		var outside time.Duration
		for _, s := range []quotaScenario{
			{"in the root cgroup", volume.PlaceNone, "", "/box", "/box", false},
			{"beside the container, which has the quota", volume.PlaceParent, "/daybook/db", "/daybook/db/box", "/daybook/db/box", false},
			{"below the parent, which has the quota", volume.PlaceParent, "/daybook/db", "/daybook/db/box", "/daybook/db", true},
			{"in the container, which has the quota", volume.PlaceContainer, "/box", "/box", "/box", true},
		} {
			times, limit := s.measure(t, pool, tree)
			t.Logf("the thread is %s: %v", s.name, times)
			if !s.inside {
				outside = times.fsyncMedian
				if limit != "" || times.longest() > waitBound {
					t.Errorf("%s: %v, and inspect says that %q limits the thread", s.name, times, limit)
				}
				continue
			}
			if limit != s.limited || times.longest() > waitBoundInside {
				t.Errorf("%s: %v, and inspect says that %q limits the thread", s.name, times, limit)
			}
			if times.fsyncMedian < insideFactor*outside {
				t.Errorf("%s: the median sync takes %v, outside %v", s.name, times.fsyncMedian, outside)
			}
		}
	})
}

type quotaScenario struct {
	name      string
	placement volume.Placement
	// cgroup is the parent or the container's own, container that of the load, and
	// limited the one with the quota.
	cgroup, container, limited string
	// inside: the thread is in the limited cgroup.
	inside bool
}

// measure returns the neighbour's times and the limit that inspect reports.
func (s quotaScenario) measure(t *testing.T, pool *volume.Pool, tree *cgroup.Tree) (times quotaTimes, limit string) {
	t.Helper()
	makeBox := func() {
		if err := tree.Make(s.container); err != nil {
			t.Fatal(err)
		}
	}
	if s.placement != volume.PlaceParent {
		makeBox()
	}
	target := filepath.Join(t.TempDir(), "db")
	if _, err := pool.Attach(t.Context(), "db", volume.AttachOptions{Target: target, Placement: s.placement, Cgroup: s.cgroup}); err != nil {
		t.Fatal(err)
	}
	if s.placement == volume.PlaceParent {
		enableCPU(t, tree, "/daybook")
		enableCPU(t, tree, "/daybook/db")
		makeBox()
	}
	setFile(t, filepath.Join(tree.Root(), s.limited, "cpu.max"), cpuQuota)
	stop := computeAndSync(t, tree, s.container, target)
	times = neighbourTimes(t, target)
	status, err := pool.Inspect(t.Context(), "db")
	if err != nil {
		t.Fatal(err)
	}
	stop()
	if s.placement == volume.PlaceParent {
		if err := tree.Remove(s.container); err != nil {
			t.Error(err)
		}
	}
	times.detach = took(t, func() error { return pool.Detach(t.Context(), "db") })
	if s.placement != volume.PlaceParent {
		if err := tree.Remove(s.container); err != nil {
			t.Error(err)
		}
	}
	return times, status.JournalProcessorLimit
}

func enableCPU(t *testing.T, tree *cgroup.Tree, at string) {
	t.Helper()
	setFile(t, filepath.Join(tree.Root(), at, "cgroup.subtree_control"), "+cpu")
}

func setFile(t *testing.T, path, value string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(value), 0); err != nil {
		t.Fatal(err)
	}
}

// computeAndSync runs processes in a cgroup that use more than its quota: two compute,
// one makes directories and syncs them.
func computeAndSync(t *testing.T, tree *cgroup.Tree, at, target string) (stop func()) {
	t.Helper()
	procs := filepath.Join(tree.Root(), at, "cgroup.procs")
	var all []*exec.Cmd
	for _, script := range []string{
		"while :; do :; done", "while :; do :; done",
		`i=0; while mkdir "$1/box$i" && sync -f "$1"; do i=$((i+1)); done`,
	} {
		command := exec.Command("sh", "-c", `echo $$ > "$0"; `+script, procs, target)
		command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		all = append(all, command)
	}
	stop = sync.OnceFunc(func() {
		for _, command := range all {
			_ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL)
			_ = command.Wait() // it was killed
		}
	})
	t.Cleanup(stop)
	awaittest.Until(t, awaittest.Patience, "the processes in "+at+" compute and sync", func() bool {
		pids, err := os.ReadFile(procs)
		_, err2 := os.Stat(filepath.Join(target, "box1"))
		return errors.Join(err, err2) == nil && len(strings.Fields(string(pids))) >= len(all)
	})
	return stop
}

// neighbourTimes syncs a file of its own from the root cgroup.
func neighbourTimes(t *testing.T, target string) (times quotaTimes) {
	t.Helper()
	file, err := os.Create(filepath.Join(target, "neighbour"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	var waits []time.Duration
	for range 40 {
		if _, err := file.Write(make([]byte, 4096)); err != nil {
			t.Fatal(err)
		}
		waits = append(waits, took(t, file.Sync))
	}
	slices.Sort(waits)
	times.fsyncMedian, times.fsync99 = waits[len(waits)/2], waits[len(waits)-1]
	fd := int(file.Fd())
	times.sync = took(t, func() error { return unix.Syncfs(fd) })
	times.freeze = took(t, func() error {
		if err := unix.IoctlSetInt(fd, fifreeze, 0); err != nil {
			return err
		}
		return unix.IoctlSetInt(fd, fithaw, 0)
	})
	return times
}

// include/uapi/linux/fs.h
const (
	fifreeze = 0xC0045877
	fithaw   = 0xC0045878
)

func took(t *testing.T, do func() error) time.Duration {
	t.Helper()
	begin := time.Now()
	if err := do(); err != nil {
		t.Fatal(err)
	}
	return time.Since(begin).Round(time.Millisecond)
}
