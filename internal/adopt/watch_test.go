package adopt

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/container"
	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/internal/filelock"
)

// watching is a watch of one entry, whose looks come when the test wants them.
type watching struct {
	*Watch
	r     *rig
	entry *watched
}

func (r *rig) watch(k *Keeper, entry Entry) watching {
	entry.Mountpoint = r.fs.Dir
	w := NewWatch(k, []Entry{entry}, r.log())
	return watching{w, r, w.entries[0]}
}

// look resolves the entry again, and keeps it.
func (w watching) look() error {
	w.entry.resolved, w.began = time.Time{}, time.Now()
	return w.once(background(), w.entry)
}

func (w watching) want(what, at string) {
	w.r.t.Helper()
	if err := w.look(); err != nil {
		w.r.t.Fatalf("%s: %v", what, err)
	}
	w.r.wantAt(what, at)
}

// hide mounts something over the file system, so that it cannot be found by its mount point.
func (r *rig) hide() (show func()) {
	r.t.Helper()
	if err := unix.Mount("daybook-test", r.fs.Dir, "tmpfs", 0, ""); err != nil {
		r.t.Fatal(err)
	}
	hidden := true
	show = func() {
		if hidden {
			hidden = false
			if err := unix.Unmount(r.fs.Dir, 0); err != nil {
				r.t.Error(err)
			}
		}
	}
	r.t.Cleanup(show)
	return show
}

// Otherwise the thread would stay in the cgroup of a container that ends meanwhile.
func TestAJournalIsReleasedAtTheEndOfItsContainerThoughTheEntryCannotBeResolved(t *testing.T) {
	r := newRig(t)
	c := r.container("db")
	w := r.watch(r.keeper(), Entry{Cgroups: []string{c.path}})
	w.want("placed", r.journalOf(c.path))
	show := r.hide()
	if err := w.look(); !errors.Is(err, ErrUnsupported) {
		t.Errorf("hidden: %v", err)
	}
	show()
	r.wantAt("hidden", r.journalOf(c.path))
	show = r.hide()
	c.stop()
	if err := w.look(); !errors.Is(err, ErrUnsupported) || !errors.Is(err, ErrDeserted) {
		t.Errorf("ended while it is hidden: %v", err)
	}
	if err := r.tree.Remove(c.path); err != nil {
		t.Errorf("its cgroup cannot be removed: %v", err)
	}
	show()
	r.wantAt("ended", "/")
}

// To look for mounts, containers and threads reads much: what is missing is not looked for more
// often than what is there.
func TestWhatIsMissingIsLookedForFromTimeToTime(t *testing.T) {
	r := newRig(t)
	k := r.keeper()
	for _, w := range []watching{
		r.watch(k, Entry{Containers: []string{"daybook-test-none"}}),
		r.watch(k, Entry{Containers: []string{"daybook-test-none", "daybook-test-nor-this"}}),
	} {
		if err := w.look(); !errors.Is(err, ErrNoContainer) {
			t.Errorf("%q: %v", w.entry.Containers, err)
		}
		at := w.entry.resolved
		if err := w.once(t.Context(), w.entry); !errors.Is(err, ErrNoContainer) || at.IsZero() || w.entry.resolved != at {
			t.Errorf("%q: looked for %v, and again %v: %v", w.entry.Containers, at, w.entry.resolved, err)
		}
	}
	if kept := k.Kept(); len(kept) > 0 {
		t.Errorf("%q are placed without a container", kept)
	}
}

// The cgroup of the journal of a file system that is not mounted now is removed, too, when the
// container ends: a cgroup with a child cannot be removed.
func TestAContainerEndsWhileItsFileSystemIsNotMounted(t *testing.T) {
	r := newRig(t)
	c := r.container("db")
	w := r.watch(r.keeper(), Entry{Cgroups: []string{c.path}})
	w.want("placed", r.journalOf(c.path))
	unmount := func() {
		t.Helper()
		if err := ext4.Unmount(background(), r.fs.Dir); err != nil {
			t.Fatal(err)
		}
		// Its thread has ended, and is not looked for.
		if err := w.look(); !errors.Is(err, ErrNotMounted) || errors.Is(err, ext4.ErrNoJournal) {
			t.Errorf("unmounted: %v", err)
		}
	}
	mount := func() {
		t.Helper()
		if err := ext4.Mount(r.fs.Disk.Node(), r.fs.Dir, ext4.MountOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	unmount()
	mount()
	w.want("mounted again", r.journalOf(c.path))
	unmount()
	c.stop()
	if err := w.look(); !IsUnmounted(err) || !errors.Is(err, ErrDeserted) {
		t.Errorf("ended: %v", err)
	}
	if err := r.tree.Remove(c.path); err != nil {
		t.Errorf("its cgroup cannot be removed: %v", err)
	}
	mount()
	if err := w.look(); !errors.Is(err, ErrDeserted) {
		t.Errorf("mounted, without a container: %v", err)
	}
	r.wantAt("without a container", "/")
}

// A cgroup that is named twice is one user, whose weight the journal is under.
func TestAContainerThatIsNamedTwiceIsOne(t *testing.T) {
	r := newRig(t)
	c := r.container("db")
	k := r.keeper()
	w := r.watch(k, Entry{Cgroups: []string{c.path, c.path}})
	w.want("named twice", r.journalOf(c.path))
	if s := k.Status(); len(s) != 1 || s[0].Neutral || s[0].Cgroup != c.path {
		t.Errorf("%+v", s)
	}
}

// Two mount points can have one file system, as with a bind mount. Its journal would go from one
// container to the other and back, at each look.
func TestAFileSystemThatTwoEntriesNameBelongsToTheFirst(t *testing.T) {
	r := newRig(t)
	bind, loop := t.TempDir(), r.filesystem().Name
	if err := unix.Mount(r.fs.Dir, bind, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(bind, 0); err != nil {
			t.Error(err)
		}
	})
	first, second := r.container("first"), r.container("second")
	k := r.keeper()
	w := NewWatch(k, []Entry{{Mountpoint: r.fs.Dir, Cgroups: []string{first.path}}, {Mountpoint: bind, Cgroups: []string{second.path}}}, r.log())
	w.began = time.Now()
	for range 2 {
		if err := w.once(background(), w.entries[0]); err != nil {
			t.Error(err)
		}
		if err := w.once(background(), w.entries[1]); err == nil || !strings.Contains(err.Error(), r.fs.Dir) {
			t.Errorf("the second entry: %v; want that the first one has the file system", err)
		}
		r.wantAt("after both", r.journalOf(first.path))
	}
	// It is the second's once it is mounted there alone.
	pid, _, err := r.filesystem().threads()
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Unmount(r.fs.Dir, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Mount(bind, r.fs.Dir, "", unix.MS_BIND, ""); err != nil {
			t.Error(err)
		}
	})
	for range 3 {
		for _, entry := range w.entries {
			entry.resolved = time.Time{}
		}
		if err := w.once(background(), w.entries[0]); !errors.Is(err, ErrNotMounted) {
			t.Errorf("the first entry is not mounted: %v", err)
		}
		if err := w.once(background(), w.entries[1]); err != nil {
			t.Error(err)
		}
		if err := w.once(background(), w.entries[0]); !errors.Is(err, ErrNotMounted) {
			t.Errorf("the first entry is not mounted: %v", err)
		}
		if at, err := r.tree.Of(pid); err != nil || at != second.path+"/journal-"+loop {
			t.Errorf("the journal's thread is in %q, %v; want it with the second", at, err)
		}
	}
}

// On a host with many containers, a list of them takes longer than WatchInterval.
func TestAllEntriesShareOneLookAtTheHost(t *testing.T) {
	r := newRig(t)
	var entries []Entry
	for range 50 {
		entries = append(entries, Entry{Mountpoint: r.fs.Dir, Containers: []string{"daybook-test-none", "daybook-test-nor-this"}})
	}
	w := NewWatch(r.keeper(), entries, r.log())
	lists, looks := 0, 0
	list, look := w.survey.list, w.survey.look
	w.survey.list = func(ctx context.Context) ([]container.Identity, error) { lists++; return list(ctx) }
	w.survey.look = func() (map[blockdev.Dev][]string, error) { looks++; return look() }
	resolved := func(*watched, error) {}
	w.round(t.Context(), resolved)
	if lists != 1 || looks != 1 {
		t.Errorf("cgroups were listed %d times, and processes %d times; want once", lists, looks)
	}
	for _, c := range []struct {
		later        time.Duration
		lists, looks int
	}{{-time.Hour, 1, 1}, {resolveInterval, 2, 1}, {usersInterval, 3, 2}} {
		// However long the round before took.
		now := time.Now()
		for _, entry := range w.entries {
			entry.resolved = now.Add(-c.later)
		}
		w.survey.listed = now.Add(-c.later)
		w.survey.looked = now.Add(-c.later)
		w.round(t.Context(), resolved)
		if lists != c.lists || looks != c.looks {
			t.Errorf("%v later: %d and %d times; want %d and %d", c.later, lists, looks, c.lists, c.looks)
		}
	}
}

// A placement that fails makes and removes a record, so it is not tried 20 times a second.
func TestAPlacementThatFailsIsTriedAgainWithTheNextLook(t *testing.T) {
	r := newRig(t)
	c := r.container("db")
	w := NewWatch(r.keeper(), []Entry{{Mountpoint: r.fs.Dir, Cgroups: []string{c.path}}}, r.log())
	lock, err := r.store().lock(r.filesystem().Name) // another keeper has it
	if err != nil {
		t.Fatal(err)
	}
	round := func() (err error) {
		w.round(t.Context(), func(_ *watched, failure error) { err = failure })
		return err
	}
	var held *filelock.HeldError
	if err := round(); !errors.As(err, &held) {
		t.Errorf("%v; want that it is held", err)
	}
	lock.Release()
	w.entries[0].resolved = time.Now().Add(time.Hour)
	if err := round(); !errors.As(err, &held) {
		t.Errorf("before the next look: %v", err)
	}
	w.entries[0].resolved = time.Time{}
	if err := round(); err != nil {
		t.Errorf("at the next look: %v", err)
	}
	r.wantAt("at the next look", r.journalOf(c.path))
}
