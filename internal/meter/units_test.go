package meter

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/journal"
)

// plain treats every cgroup as its own container.
type plain struct{}

func (plain) Identify(path string) (top, name, runtime string) { return path, path, "" }

// fakeTree is a directory that resembles a cgroup hierarchy.
type fakeTree struct {
	t   *testing.T
	dir string
}

func (f fakeTree) make(path string) (id uint64) {
	f.t.Helper()
	if err := os.Mkdir(filepath.Join(f.dir, path), 0o755); err != nil {
		f.t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(f.dir, path), &st); err != nil {
		f.t.Fatal(err)
	}
	return st.Ino
}

func TestCgroupThatCameAfterTheListIsFoundByItsEvents(t *testing.T) {
	f := fakeTree{t, t.TempDir()}
	f.make("leaf")
	u := newUnits(cgroup.Open(cgroup.V1, f.dir), plain{}, nil)
	if err := u.refresh(context.Background()); err != nil {
		t.Fatal(err)
	}
	// The first child of a leaf is not listed at once.
	child := f.make("leaf/child")
	if err := u.refresh(context.Background()); err != nil {
		t.Fatal(err)
	}
	for name, events := range map[string]journal.Events{
		"charged": {Writes: []journal.Write{{Charged: child}}},
		"owner":   {Writes: []journal.Write{{Charged: f.make("other"), Owner: child}}},
		"dirtied": {Commits: []journal.Commit{{Dirtied: map[uint64]int64{child: 1}}}},
		"calls":   {Calls: []journal.Call{{Cgroup: child}}},
	} {
		fresh := newUnits(cgroup.Open(cgroup.V1, f.dir), plain{}, nil)
		fresh.lister = u.lister
		if err := fresh.meet(context.Background(), events); err != nil {
			t.Fatal(err)
		}
		if got := fresh.of(child); got != "/leaf/child" {
			t.Errorf("%s: the new cgroup is accounted as %q", name, got)
		}
	}
}

// A user who nests cgroups deeper than they can be listed hides no I/O.
func TestCgroupThatIsNestedTooDeepIsAccountedToOneAboveIt(t *testing.T) {
	f := fakeTree{t, t.TempDir()}
	path, name := "", strings.Repeat("n", 200)
	for range 18 {
		path += "/" + name
		f.make(path)
	}
	if err := os.Rename(filepath.Join(f.dir, name), filepath.Join(f.dir, "user")); err != nil {
		t.Fatal(err)
	}
	above := "/user" + strings.TrimPrefix(path, "/"+name)
	// Its path is still short enough, but the whole path is not.
	deepest := f.make(above + "/in")
	below := filepath.Join(f.dir, "user")
	if err := os.MkdirAll(filepath.Join(f.dir, name+"/"+name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(below, filepath.Join(f.dir, name+"/"+name+"/user")); err != nil {
		t.Fatal(err)
	}
	u := newUnits(cgroup.Open(cgroup.V1, f.dir), plain{}, func(path, _ string) (uint64, bool) { return 100, path == "/"+name })
	if err := u.refresh(context.Background()); err != nil {
		t.Fatal(err)
	}
	if got := u.of(deepest); got != "/"+name || u.lister.Skipped() == 0 {
		t.Errorf("the deepest cgroup is accounted as %.20q, %d are skipped; want some, and the user's own", got, u.lister.Skipped())
	}
}

func TestRemovedCgroupKeepsItsPathForAWhile(t *testing.T) {
	f := fakeTree{t, t.TempDir()}
	id := f.make("job")
	u := newUnits(cgroup.Open(cgroup.V1, f.dir), plain{}, nil)
	now := time.Now()
	u.now = func() time.Time { return now }
	refresh := func() {
		t.Helper()
		if err := u.refresh(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	refresh()
	if err := os.Remove(filepath.Join(f.dir, "job")); err != nil {
		t.Fatal(err)
	}
	refresh()
	if got := u.of(id); got != "/job" {
		t.Errorf("just after its end it is accounted as %q", got)
	}
	u.alive(func(path string) {
		if path == "/job" {
			t.Error("it is reported as alive")
		}
	})
	for range 200 {
		refresh()
	}
	if got := u.of(id); got != "/job" {
		t.Errorf("after many lists in a short time it is accounted as %q", got)
	}
	now = now.Add(24 * time.Hour) // its last writes are of the interval that ends here
	refresh()
	if got := u.of(id); got != "/job" {
		t.Errorf("in a long interval after its end it is accounted as %q", got)
	}
	now = now.Add(time.Second)
	refresh()
	if got := u.of(id); got != account.EndedCgroups {
		t.Errorf("long after its end it is accounted as %q", got)
	}
	if _, known := u.byPath["/job"]; known {
		t.Error("its path is kept for ever")
	}
	if _, known := u.byPath[account.RootCgroup]; !known {
		t.Error("the root was forgotten with it")
	}
}
