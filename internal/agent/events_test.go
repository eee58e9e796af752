package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/needs"
	"github.com/daybook-project/daybook/vm/vmtest"
)

func TestCgroupsThatTheKubeletMakesAndRemovesAreReported(t *testing.T) {
	needs.Root(t)
	tree, err := cgroup.Find()
	needs.That(t, err == nil, "a cgroup hierarchy with block I/O")
	checkEvents(t, tree)
}

func TestGuestCgroupsThatTheKubeletMakesAndRemovesAreReportedOnCgroupV2(t *testing.T) {
	vmtest.InGuest(t, vmtest.Config{OneKernel: true}, func(t *testing.T) {
		tree, err := cgroup.Find()
		if err != nil || tree.Version() != cgroup.V2 {
			t.Fatalf("%v, %v; want cgroup v2", tree, err)
		}
		checkEvents(t, tree)
	})
}

// checkEvents checks the events of cgroups, on either version.
func checkEvents(t *testing.T, tree *cgroup.Tree) {
	t.Helper()
	root := fmt.Sprintf("/daybook-test-events-%d", os.Getpid())
	dir := func(at string) string { return tree.Root() + root + at }
	remove := func() { _ = removeBelow(dir("")) }
	remove()
	t.Cleanup(remove)
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	add := func(at string) { t.Helper(); do(os.Mkdir(dir(at), 0o755)) }
	drop := func(at string) { t.Helper(); do(unix.Rmdir(dir(at))) }
	await := func(what string, holds func() bool) {
		t.Helper()
		for deadline := time.Now().Add(costPatience); !holds(); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s: not within %v", what, costPatience)
			}
		}
	}
	add("")
	roots := []string{"/none", root}
	e, err := watchCgroups(tree, roots)
	do(err)
	defer func() {
		if err := e.close(); err != nil {
			t.Error(err)
		}
	}()
	if e.sees() || e.take() {
		t.Error("without the kubelet's cgroups it sees new pods")
	}
	add("/kubepods")
	add("/kubepods/burstable")
	pod := "/kubepods/burstable/pod" + uidA
	add(pod)
	do(e.cover(roots))
	if !e.sees() || !e.covers(root+pod) || e.covers(root+"/kubepods/pod"+uidA) {
		t.Errorf("%+v", e.watches)
	}
	number := e.watches[root+pod]
	for _, step := range []struct {
		what  string
		do    func(string)
		at    string
		holds func() bool
	}{
		{what: "a container is made", do: add, at: pod + "/container"},
		{what: "a container is removed", do: drop, at: pod + "/container"},
		{what: "a pod is removed", do: drop, at: pod, holds: func() bool { return !e.covers(root + pod) }},
		{what: "a pod of the same name is made", do: add, at: pod, holds: func() bool { return e.covers(root+pod) && e.watches[root+pod] != number }},
		{what: "its container is made", do: add, at: pod + "/container"},
		{what: "its container is removed", do: drop, at: pod + "/container"},
		{what: "a class is made", do: add, at: "/kubepods/besteffort", holds: func() bool { return e.covers(root + "/kubepods/besteffort") }},
		{what: "a pod of it is made", do: add, at: "/kubepods/besteffort/pod" + uidB, holds: func() bool { return e.covers(root + "/kubepods/besteffort/pod" + uidB) }},
		{what: "a guaranteed pod is made", do: add, at: "/kubepods/pod" + uidB, holds: func() bool { return e.covers(root + "/kubepods/pod" + uidB) }},
		{what: "its container is made", do: add, at: "/kubepods/pod" + uidB + "/container"},
		{what: "its container is removed", do: drop, at: "/kubepods/pod" + uidB + "/container"},
		{what: "it is removed", do: drop, at: "/kubepods/pod" + uidB, holds: func() bool { return !e.covers(root + "/kubepods/pod" + uidB) }},
		{what: "another is removed", do: drop, at: "/kubepods/besteffort/pod" + uidB, holds: func() bool { return !e.covers(root + "/kubepods/besteffort/pod" + uidB) }},
	} {
		step.do(step.at)
		await(step.what, e.take)
		select {
		case <-e.woken():
		case <-time.After(costPatience):
			t.Fatalf("%s: nobody is woken", step.what)
		}
		if step.holds != nil && !step.holds() {
			t.Errorf("%s: %v", step.what, e.watches)
		}
	}
	// A cgroup that is removed unnoticed is not watched for ever.
	e.deaf.Store(true)
	drop(pod)
	add("/kubepods/burstable/pod" + uidB)
	await("the event is ignored", func() bool { do(e.cover(roots)); return !e.covers(root + pod) })
	if !e.covers(root + "/kubepods/burstable/pod" + uidB) {
		t.Error("a pod that was made unnoticed is not watched")
	}
	if len(e.watched) != len(e.watches) || len(e.watches) != 4 {
		t.Errorf("%v, %v; want kubepods, two classes and a pod", e.watched, e.watches)
	}
}

// removeBelow removes a cgroup and all below.
func removeBelow(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, entry := range entries {
		if entry.IsDir() {
			err = errors.Join(err, removeBelow(filepath.Join(dir, entry.Name())))
		}
	}
	return errors.Join(err, unix.Rmdir(dir))
}

// What is not known for certain is asked at each interval.
func TestTheRuntimeIsAskedAfterAChangeAndFromTimeToTime(t *testing.T) {
	start := time.Now()
	for _, c := range []struct {
		asked, changed    time.Duration // before now; 0: never
		answered, certain bool
		want              bool
	}{
		{0, 0, false, false, true},
		{time.Second, 0, false, true, true},
		{time.Second, 0, true, false, true},
		{time.Second, 0, true, true, false},
		{9 * time.Second, 0, true, true, false},
		{10 * time.Second, 0, true, true, true},
		{time.Second, 2 * time.Second, true, true, true},
		{time.Second, 9 * time.Second, true, true, true},
		{time.Second, 10 * time.Second, true, true, false},
	} {
		l := newListing()
		l.answered = c.answered
		for at, ago := range map[*time.Time]time.Duration{&l.asked: c.asked, &l.changed: c.changed} {
			if ago > 0 {
				*at = start.Add(-ago)
			}
		}
		if got := l.due(start, c.certain); got != c.want {
			t.Errorf("%+v: due is %t", c, got)
		}
	}
}

// An agent that sleeps until something happens: its clock jumps, so that only an event, or
// the list from time to time, makes it ask the runtime again.
func TestAnAgentAsksTheRuntimeOnlyAfterAnEventAndFromTimeToTime(t *testing.T) {
	const afterChange, pause = time.Hour, 1000 * time.Hour
	for _, lost := range []bool{false, true} {
		t.Run(fmt.Sprint("events are lost ", lost), func(t *testing.T) {
			r := newRig(t, false)
			r.root = "/" + r.Name
			r.config.CgroupRoot = r.root
			d := r.disk("a")
			p := r.start("db", "burstable", d, nil)
			clock := &jumpingClock{}
			a, stop := r.agentWith(func(a *Agent) { a.now, a.listing.afterChange, a.listing.pause = clock.now, afterChange, pause })
			r.awaitLong("the agent places the journal", func() bool { return p.has(d) })
			quiet := func() bool {
				clock.jump(2 * afterChange)
				begin := a.Report()
				r.awaitLong("rounds go on", func() bool { return a.Report().Rounds >= begin.Rounds+5 })
				return a.Report().Listings == begin.Listings
			}
			r.awaitLong("the agent no longer asks the runtime", quiet)
			if !p.has(d) {
				t.Errorf("the journal is in %s", d.at())
			}
			if lost {
				a.mu.Lock()
				a.events.deaf.Store(true)
				a.mu.Unlock()
			}
			p.stop()
			if lost {
				clock.jump(pause)
			}
			p.remove(podPatience)
			r.awaitLong("the agent releases the journal", func() bool { return d.at() == "/" })
			stop()
			r.wantReleased(d)
		})
	}
}

// Mounts are read again after a change, at once, and from time to time.
func TestMountsAreListedAgainAfterAChange(t *testing.T) {
	needs.Root(t)
	reads := 0
	table := newMountTable()
	read := table.read
	table.read = func() ([]blockdev.Mount, error) { reads++; return read() }
	defer table.close()
	now := time.Now()
	has := func(point string) bool {
		t.Helper()
		mounts, err := table.list(now)
		if err != nil {
			t.Fatal(err)
		}
		for _, mount := range mounts {
			if mount.Point == point {
				return true
			}
		}
		return false
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if has(dir) {
			t.Fatal("it is mounted")
		}
		if err := unix.Mount("daybook-test", dir, "tmpfs", 0, ""); err != nil {
			t.Fatal(err)
		}
		mounted := has(dir)
		if err := unix.Unmount(dir, 0); err != nil {
			t.Fatal(err)
		}
		if !mounted {
			t.Error("the mount is not found")
		}
	}
	// Other processes mount, too, but not all the time.
	for reads < 1000 {
		before := reads
		has(dir)
		if reads == before {
			break
		}
	}
	if reads == 1000 {
		t.Error("mounts are read again and again")
	}
	before := reads
	now = now.Add(listPause)
	if has(dir); reads != before+1 {
		t.Errorf("read %d times after %v; want once", reads-before, listPause)
	}
	// A failure is no empty list.
	table.read = func() ([]blockdev.Mount, error) { return nil, unix.EIO }
	now = now.Add(listPause)
	if _, err := table.list(now); !errors.Is(err, unix.EIO) {
		t.Error(err)
	}
	if _, err := table.list(now); !errors.Is(err, unix.EIO) {
		t.Errorf("again: %v", err)
	}
	table.read = read
	if _, err := table.list(now); err != nil {
		t.Error(err)
	}
}
