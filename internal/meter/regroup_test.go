package meter

import (
	"context"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/journal"
)

func TestUnitsAreRecomputedWhenTheRulesChange(t *testing.T) {
	f := fakeTree{t, t.TempDir()}
	jobs, a, b := f.make("jobs"), f.make("jobs/a"), f.make("jobs/b")
	rule := "/jobs"
	u := newUnits(cgroup.Open(cgroup.V1, f.dir), plain{}, func(cgroup, _ string) (uint64, bool) {
		ok, _ := path.Match(rule, cgroup)
		return 100, ok
	})
	list := func() {
		t.Helper()
		if err := u.list(context.Background(), true); err != nil {
			t.Fatal(err)
		}
	}
	list()
	for _, step := range []struct{ rule, jobs, a, b string }{
		{"/jobs", "/jobs", "/jobs", "/jobs"},
		{"/jobs/*", "/jobs", "/jobs/a", "/jobs/b"},
		{"/jobs", "/jobs", "/jobs", "/jobs"},
		{"/jobs/a", "/jobs", "/jobs/a", "/jobs/b"},
	} {
		rule = step.rule
		u.regroup()
		list()
		if u.of(jobs) != step.jobs || u.of(a) != step.a || u.of(b) != step.b {
			t.Errorf("by %s the three are accounted as %s, %s, %s; want %+v", step.rule, u.of(jobs), u.of(a), u.of(b), step)
		}
		alive := map[string]bool{}
		u.alive(func(path string) { alive[path] = true })
		for _, path := range []string{step.jobs, step.a, step.b} {
			if _, named := u.byPath[path]; !named || !alive[path] {
				t.Errorf("by %s %s has no name or is not alive", step.rule, path)
			}
		}
		for path := range u.byPath {
			if !alive[path] && path != account.RootCgroup {
				t.Errorf("by %s %s is kept", step.rule, path)
			}
		}
	}
}

// written is what a runtime has written of its containers: their topmost cgroups.
type written map[string]bool

func (w written) Identify(path string) (top, name, runtime string) {
	for container := range w {
		if path == container || strings.HasPrefix(path, container+"/") {
			return container, "name of " + container, "lxc"
		}
	}
	return path, path, ""
}

// The cgroups below a container can be listed before its runtime has written that it is one.
func TestCgroupsBelowAContainerThatIsKnownLaterAreAccountedThere(t *testing.T) {
	f := fakeTree{t, t.TempDir()}
	ids := []uint64{f.make("c"), f.make("c/init"), f.make("c/init/job")}
	containers := written{}
	u := newUnits(cgroup.Open(cgroup.V1, f.dir), containers, nil)
	now := time.Now()
	last := now
	u.now = func() time.Time { return now }
	pass := func(time time.Duration) (moved bool) {
		t.Helper()
		now = now.Add(time)
		if err := u.list(context.Background(), true); err != nil {
			t.Fatal(err)
		}
		last, moved = u.rename(now, last)
		return moved
	}
	pass(time.Second)
	if u.of(ids[2]) != "/c/init/job" {
		t.Fatalf("it is accounted as %s", u.of(ids[2]))
	}
	containers["/c"] = true
	if !pass(5 * time.Minute) { // also with long intervals
		t.Error("nothing has moved")
	}
	for _, id := range ids {
		if got := u.of(id); got != "/c" {
			t.Errorf("a cgroup of the container is accounted as %s", got)
		}
	}
	if who := u.byPath["/c"]; len(u.byPath) != 2 || who.name != "name of /c" {
		t.Errorf("the units are %v", u.byPath)
	}
	// Not for ever: that would be work for each cgroup of the host.
	containers["/c/init"] = true
	delete(containers, "/c")
	if pass(time.Minute) {
		t.Error("a cgroup that was known for minutes has moved")
	}
}

// A runtime removes what it has written with the cgroups. The last writes reach the disk later.
func TestTheCgroupsOfAContainerThatEndsSoonStayInItsLine(t *testing.T) {
	f := fakeTree{t, t.TempDir()}
	ids := []uint64{f.make("c"), f.make("c/init")}
	containers := written{"/c": true}
	u := newUnits(cgroup.Open(cgroup.V1, f.dir), containers, nil)
	now := time.Now()
	last := now
	u.now = func() time.Time { return now }
	pass := func() (moved bool) {
		t.Helper()
		now = now.Add(renameInterval)
		if err := u.refresh(context.Background()); err != nil {
			t.Fatal(err)
		}
		last, moved = u.rename(now, last)
		return moved
	}
	pass()
	for _, path := range []string{"c/init", "c"} {
		if err := os.Remove(filepath.Join(f.dir, path)); err != nil {
			t.Fatal(err)
		}
	}
	delete(containers, "/c")
	if pass() {
		t.Error("its cgroups have moved")
	}
	for _, id := range ids {
		if got := u.of(id); got != "/c" {
			t.Errorf("a cgroup of the container that ended is accounted as %s", got)
		}
	}
}

func TestTheBookMovesRememberedAmountsWithTheRules(t *testing.T) {
	b := NewBook()
	b.remember(journal.Filesystem{Dev: 7}, "/jobs/a", 100)
	b.remember(journal.Filesystem{Dev: 7}, "/jobs/b", 300)
	b.remember(journal.Filesystem{Dev: 7}, account.RootCgroup, 50)
	b.remember(journal.Filesystem{Dev: 7}, account.EndedCgroups, 20)
	b.logged[7] = map[string]uint64{"/jobs/a": 5, account.RootCgroup: 6}
	b.carried[7] = map[string]uint64{"/jobs/a": 7, "/jobs/b": 8, account.EndedCgroups: 9}
	b.below[8] = &below{above: map[string]float64{"/jobs/a": 1, "/jobs/b": 2}, journal: map[string]float64{"/jobs/b": 3, account.RootCgroup: 4},
		owed: map[string]map[string]uint64{"/jobs/a": {"/jobs/a": 1, account.RootCgroup: 2}, "/jobs/b": {"/jobs/b": 4}, account.RootCgroup: {"/jobs/b": 8}}}
	b.move(func(path string) string {
		if path == account.RootCgroup || path == account.EndedCgroups {
			t.Errorf("asked for %s", path)
		}
		return "/jobs"
	})
	if d := b.dirtied[journal.Filesystem{Dev: 7}]; len(d) != 3 || d["/jobs"] != 400 || d[account.RootCgroup] != 50 || d[account.EndedCgroups] != 20 {
		t.Errorf("dirtied %v", d)
	}
	if l := b.logged[7]; len(l) != 2 || l["/jobs"] != 5 || l[account.RootCgroup] != 6 {
		t.Errorf("logged %v", l)
	}
	if c := b.carried[7]; len(c) != 2 || c["/jobs"] != 15 || c[account.EndedCgroups] != 9 {
		t.Errorf("carried %v", c)
	}
	if m := b.below[8]; len(m.above) != 1 || m.above["/jobs"] != 3 || len(m.journal) != 2 || m.journal["/jobs"] != 3 ||
		len(m.owed) != 2 || m.owed["/jobs"]["/jobs"] != 5 || m.owed["/jobs"][account.RootCgroup] != 2 || m.owed[account.RootCgroup]["/jobs"] != 8 {
		t.Errorf("below %+v", m)
	}
	devices := b.Account(Readings{Seconds: 1, Disks: []Disk{{Name: "d", Dev: 7}}, DiskOf: map[uint32]uint32{7: 7},
		Events: journal.Events{Writes: []journal.Write{{Disk: 7, Kind: journal.KindMetadata, Of: 7, Bytes: 4096, Charged: journal.RootCgroupID}}},
		UnitOf: func(uint64) string { return account.RootCgroup }})
	for _, c := range devices[0].Containers {
		if c.Cgroup == "/jobs/a" || c.Cgroup == "/jobs" && c.MetadataBytes == 0 {
			t.Errorf("accounted %+v", c)
		}
	}
}
