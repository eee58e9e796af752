package adopt

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// smallState gives a rig a state directory on a small disk. The functions fill and free it.
func smallState(r *rig) (fill, free func()) {
	r.t.Helper()
	if err := unix.Mount("daybook-test", r.state, "tmpfs", 0, "size=64k"); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if err := unix.Unmount(r.state, 0); err != nil {
			r.t.Error(err)
		}
	})
	path := filepath.Join(r.state, "filler")
	fill = func() {
		r.t.Helper()
		if err := os.WriteFile(path, make([]byte, 1<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
			r.t.Fatal(err)
		}
	}
	return fill, func() {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			r.t.Error(err)
		}
	}
}

// Otherwise the runtime could not remove the cgroup of the container until the disk has space.
func TestTheJournalLeavesItsContainerAlsoIfTheDiskOfTheRecordsIsFull(t *testing.T) {
	r := newRig(t)
	fill, free := smallState(r)
	defer free() // before the keeper ends
	c := r.container("db")
	k := r.keeper()
	w := Wanted{Filesystem: r.filesystem(), Cgroup: c.path}
	r.keep(k, w)
	fill()
	c.stop()
	for range 2 {
		if err := k.Keep(t.Context(), w); !errors.Is(err, ErrDeserted) || !errors.Is(err, unix.ENOSPC) {
			t.Errorf("full: %v", err)
		}
		r.wantAt("full", "/")
	}
	// What is left is in the record, and the journal is placed again if the container starts again.
	if record, err := r.store().Read(w.Filesystem.Name); err != nil || record.Placed.Journal != r.journalOf(c.path) {
		t.Errorf("%+v, %v", record, err)
	}
	c.start()
	r.keep(k, w)
	r.wantAt("started again", r.journalOf(c.path))
	c.stop()
	free()
	if err := k.Keep(t.Context(), w); !errors.Is(err, ErrDeserted) || errors.Is(err, unix.ENOSPC) {
		t.Errorf("freed: %v", err)
	}
	if err := r.tree.Remove(c.path); err != nil {
		t.Error(err)
	}
	if names, err := r.store().Names(); err != nil || len(names) > 0 {
		t.Errorf("records are left: %q, %v", names, err)
	}
}

// A change that cannot be recorded moves nothing: in the root cgroup, no weight holds the journal.
func TestTheJournalStaysWithARunningContainerIfTheDiskOfTheRecordsIsFull(t *testing.T) {
	r := newRig(t)
	fill, free := smallState(r)
	defer free()
	c, other := r.container("db"), r.container("other")
	k := r.keeper()
	w := Wanted{Filesystem: r.filesystem(), Cgroup: c.path}
	r.keep(k, w)
	fill()
	moved := w
	moved.Cgroup = other.path
	for range 2 {
		if err := k.Keep(t.Context(), moved); !errors.Is(err, unix.ENOSPC) {
			t.Errorf("full: %v", err)
		}
		r.wantAt("full", r.journalOf(c.path))
	}
	free()
	r.keep(k, moved)
	r.wantAt("freed", r.journalOf(other.path))
}

func TestTheGuardianFinishesWhatItsKeeperCouldNotOnAFullDisk(t *testing.T) {
	r := newRig(t)
	fill, free := smallState(r)
	defer free()
	c := r.container("db")
	guardian, err := StartGuardian(r.state, r.log())
	if err != nil {
		t.Fatal(err)
	}
	k := NewKeeper(r.store(), r.log())
	r.keep(k, Wanted{Filesystem: r.filesystem(), Cgroup: c.path})
	fill()
	if err := k.Close(t.Context()); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("the keeper ends with %v", err)
	}
	r.wantAt("the keeper has ended", "/")
	ended := make(chan error, 1)
	go func() { ended <- guardian.Close() }()
	select {
	case err := <-ended:
		t.Errorf("the guardian ends while the disk is full: %v", err)
		ended <- nil
	case <-time.After(guardPause / 2): // it tries meanwhile
	}
	free()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	r.wantAt("freed", "/")
	if names, err := r.store().Names(); err != nil || len(names) > 0 {
		t.Errorf("records are left: %q, %v", names, err)
	}
}
