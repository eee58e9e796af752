package law

import "testing"

func TestWhoWaitsForRequestsFlushesAndCommits(t *testing.T) {
	const seconds = 0.5
	for _, test := range []struct {
		name string
		o    Observation
		want float64
	}{
		{"nothing", Observation{}, 0},
		{"requests", Observation{BusySeconds: 0.2}, 0.2},
		{"a device on several disks", Observation{BusySeconds: 0.1, StackedSeconds: 0.4, OtherBytes: 1}, 0.4},
		{"requests, and such a device for less", Observation{BusySeconds: 0.2, StackedSeconds: 0.1, OtherBytes: 1}, 0.2},
		{"such a device, but others of its disks", Observation{StackedSeconds: 0.4}, 0},
		{"flushes", Observation{FlushSeconds: 0.25}, 0.25},
		{"requests, then flushes", Observation{BusySeconds: 0.25, FlushSeconds: 0.125}, 0.375},
		{"several flushes at a time", Observation{BusySeconds: 0.25, FlushSeconds: 3}, 0.5},
		{"a flush that began long ago", Observation{FlushSeconds: 3}, 0.5},
		{"a commit that another started", Observation{BusySeconds: 0.125, CommitSeconds: 0.25}, 0.125},
		{"its own commit", Observation{BusySeconds: 0.125, CommitSeconds: 0.25, ForcedCommits: 1}, 0.375},
		{"all three", Observation{BusySeconds: 0.125, FlushSeconds: 0.125, CommitSeconds: 0.125, ForcedCommits: 1}, 0.375},
	} {
		w := NewWaiting()
		test.o.Ideal, test.o.Weight = 100, 100
		if got, _ := w.In(test.o, seconds); got != test.want {
			t.Errorf("%s: waited %g s of %g; want %g", test.name, got, seconds, test.want)
		}
	}
}

// A commit can be one that another container needs, which waits for it all the time.
func TestWaitingForCommitsIsNotItsOwn(t *testing.T) {
	w := NewWaiting()
	o := Observation{Ideal: 100, Weight: 100, BusySeconds: 0.125, FlushSeconds: 0.0625, CommitSeconds: 0.25, ForcedCommits: 1}
	if waited, own := w.In(o, 0.5); waited != 0.4375 || own != 0.1875 {
		t.Errorf("waited %g s, %g s of that for its own; want 0.4375 and 0.1875", waited, own)
	}
}
