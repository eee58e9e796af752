package adopt

import (
	"log/slog"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/volume/placement"
)

// newRecord writes a record of a file system that does not exist.
func newRecord(t *testing.T, s Store, change func(r *Record)) (name string) {
	t.Helper()
	r := Record{Format: recordFormat, Name: "loop77", Device: "7:77", Placed: placement.Placed{Placement: placement.None}}
	change(&r)
	if err := s.write(r); err != nil {
		t.Fatal(err)
	}
	return r.Name
}

// A living keeper's record is not what a dead one has left. One that another process has locked
// for a moment may be.
func TestAGuardianWaitsOnlyForRecordsThatItsKeeperMayHaveLeft(t *testing.T) {
	const dead = 4194305 // more than the largest process ID
	hour := time.Hour
	for what, c := range map[string]struct {
		lockedBefore time.Duration // the last write of the record
		keeper       int
		change       func(r *Record)
		want         bool
	}{
		"another keeper's":            {hour, dead, func(*Record) {}, false},
		"locked after the last write": {-hour, dead, func(*Record) {}, true},
		"at the same time":            {0, dead, func(*Record) {}, true},
		"its own, not dead yet":       {hour, os.Getpid(), func(*Record) {}, true},
		"another process undoes it":   {hour, dead, func(r *Record) { r.Leaving = true }, true},
		"once":                        {-hour, dead, func(r *Record) { r.Once = true }, false},
		"once, a process undoes it":   {hour, dead, func(r *Record) { r.Once, r.Leaving = true, true }, true},
	} {
		s, err := Open(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		name := newRecord(t, s, c.change)
		lock, err := s.lock(name)
		if err != nil {
			t.Fatal(err)
		}
		written := time.Now()
		for path, at := range map[string]time.Time{s.recordPath(name): written, s.lockPath(name): written.Add(-c.lockedBefore)} {
			if err := os.Chtimes(path, at, at); err != nil {
				t.Fatal(err)
			}
		}
		if got := s.mayBeLeft(name, c.keeper); got != c.want {
			t.Errorf("%s: %v, want %v", what, got, c.want)
		}
		if !c.want {
			began := time.Now()
			if err := undoLeft(s, c.keeper, slog.New(slog.DiscardHandler)); err != nil || time.Since(began) > heldPatience/2 {
				t.Errorf("%s: the guardian ends after %v, %v; want at once", what, time.Since(began), err)
			}
		}
		lock.Release()
		if s.mayBeLeft(name, c.keeper) == (what == "once") {
			t.Errorf("%s, released: want to retry it, unless it stays", what)
		}
	}
}

// A lock for a moment would make a keeper fail that places the journal just then.
func TestARecordThatStaysIsNotLocked(t *testing.T) {
	s, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	name := newRecord(t, s, func(r *Record) { r.Once = true })
	asking, err := os.OpenFile(s.lockPath(name), os.O_RDONLY|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer asking.Close()
	// Beside a process that asks for the holder, a lock fails, and its failure shows here.
	if err := unix.Flock(int(asking.Fd()), unix.LOCK_SH); err != nil {
		t.Fatal(err)
	}
	outcomes, held, err := s.undoAllAbandoned(t.Context(), false, slog.New(slog.DiscardHandler))
	if err != nil || len(outcomes) > 0 || len(held) > 0 {
		t.Errorf("%+v; locked: %q; %v", outcomes, held, err)
	}
	if _, err := s.Read(name); err != nil {
		t.Error(err)
	}
}
