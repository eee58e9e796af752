package volume_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
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

// cpuQuota is a tenth of a processor: 10 ms of each 100 ms. With almostNothing, 1 ms of each
// second, a container runs so rarely that syncs end in between on a busy host, too.
const cpuQuota, almostNothing = "10000 100000", "1000 1000000"

// quotaTimes are how long a neighbour on the volume of a container with a quota waits.
type quotaTimes struct{ fsyncMedian, fsync99, sync, freeze, detach time.Duration }

func (q quotaTimes) String() string {
	return fmt.Sprintf("fsync p50 %v, p99 %v; sync %v, freeze %v, detach %v", q.fsyncMedian, q.fsync99, q.sync, q.freeze, q.detach)
}

// A container that computes, writes and syncs has a tenth of a processor. A neighbour on
// the same volume syncs, and the host syncs, freezes and unmounts the volume. The thread
// is outside of the quota, unless it is in the container's own cgroup or the parent has
// the quota, which inspect reports. From outside, syncs end while what has the quota does not
// run; inside, each waits until it runs again. How long that takes depends on the host: the
// times are logged only.
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
		for _, s := range []quotaScenario{
			{"in the root cgroup", volume.PlaceNone, "", "/box", "/box", false},
			{"beside the container, which has the quota", volume.PlaceParent, "/daybook/db", "/daybook/db/box", "/daybook/db/box", false},
			{"below the parent, which has the quota", volume.PlaceParent, "/daybook/db", "/daybook/db/box", "/daybook/db", true},
			{"in the container, which has the quota", volume.PlaceContainer, "/box", "/box", "/box", true},
		} {
			times, limit := s.measure(t, pool, tree)
			t.Logf("the thread is %s: %v", s.name, times)
			want := ""
			if s.inside {
				want = s.limited
			}
			if limit != want {
				t.Errorf("%s: inspect says that %q limits the thread, want %q", s.name, limit, want)
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
	s.checkWhoWaits(t, filepath.Join(tree.Root(), s.limited), target)
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
	times.freeze = took(t, func() error { return freezeAndThaw(fd) })
	return times
}

// checkWhoWaits checks whether a neighbour's syncs end while the limited cgroup does not run.
func (s quotaScenario) checkWhoWaits(t *testing.T, limited, target string) {
	t.Helper()
	file, err := os.Create(filepath.Join(target, "neighbour"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	fd := int(file.Fd())
	syncs := []neighbourSync{
		{"fsync", 10, file.Sync},
		{"syncfs", 3, func() error { return unix.Syncfs(fd) }},
		{"freeze", 3, func() error { return freezeAndThaw(fd) }},
	}
	// after returns how long the cgroup ran while the sync took place, and the number of periods.
	after := func(o neighbourSync) (ran time.Duration, periods int) {
		if _, err := file.Write(make([]byte, 4096)); err != nil {
			t.Fatal(err)
		}
		ranBefore, periodsBefore := ranFor(t, limited)
		if err := o.do(); err != nil {
			t.Fatal(err)
		}
		ran, periods = ranFor(t, limited)
		return ran - ranBefore, periods - periodsBefore
	}
	if s.inside {
		count, all := 0, 0
		for _, o := range syncs {
			for range o.count {
				ran, periods := after(o)
				if ran == 0 {
					t.Errorf("%s: %s ended while %s did not run", s.name, o.name, s.limited)
				}
				count, all = count+1, all+periods
			}
		}
		t.Logf("%s: %d syncs took %d periods of the quota", s.name, count, all)
		if all < count {
			t.Errorf("%s: %d syncs took %d periods of the quota, want one for each at least", s.name, count, all)
		}
		return
	}
	setFile(t, filepath.Join(limited, "cpu.max"), almostNothing)
	defer setFile(t, filepath.Join(limited, "cpu.max"), cpuQuota)
	for _, o := range syncs {
		// Those for which the container was stopped in a call that the commit waits for do not count.
		free, all := 0, 0
		awaittest.Until(t, awaittest.Patience, fmt.Sprintf("%s: %s ends %d times while %s does not run", s.name, o.name, o.count, s.limited), func() bool {
			if ran, _ := after(o); ran == 0 {
				free++
			}
			all++
			return free == o.count
		})
		t.Logf("%s: %d of %d %s ended while %s did not run", s.name, free, all, o.name, s.limited)
	}
}

// neighbourSync is a way to sync, and how many of it must end while a cgroup does not run.
type neighbourSync struct {
	name  string
	count int
	do    func() error
}

func freezeAndThaw(fd int) error {
	if err := unix.IoctlSetInt(fd, fifreeze, 0); err != nil {
		return err
	}
	return unix.IoctlSetInt(fd, fithaw, 0)
}

// ranFor returns how long a cgroup has run, and the number of its periods.
func ranFor(t *testing.T, dir string) (ran time.Duration, periods int) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "cpu.stat"))
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]int{}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if values[name], err = strconv.Atoi(value); err != nil {
			t.Fatal(err)
		}
	}
	if values["usage_usec"] == 0 || values["nr_periods"] == 0 {
		t.Fatalf("%s: cpu.stat has %q", dir, text)
	}
	return time.Duration(values["usage_usec"]) * time.Microsecond, values["nr_periods"]
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
