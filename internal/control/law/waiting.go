package law

import (
	"math"
	"slices"
)

// Waiting knows for how long a sibling waits for the disk: while it has requests or flushes
// of the disk's cache outstanding and, if it calls fsync, while the journal commits. Then the
// requests are those of the journal's thread.
type Waiting struct {
	// idleSeconds is the time since one of its requests ended, unsyncedSeconds that
	// since a sync of its started a commit.
	idleSeconds, unsyncedSeconds float64
}

// NewWaiting is that of one whose syncs started no commit yet.
func NewWaiting() Waiting { return Waiting{unsyncedSeconds: WindowSeconds} }

// In is for how long, in seconds, it waited in a step, as far as that is known by now. own is
// that without commits, which can be those that others need.
func (w *Waiting) In(o Observation, seconds float64) (waited, own float64) {
	w.idleSeconds += seconds
	if busy := o.busySeconds(); o.Measured() && busy > 0 {
		// What ended now may have waited since the last one ended.
		waited = math.Min(busy, w.idleSeconds)
		w.idleSeconds = 0
	}
	if o.FlushSeconds > 0 {
		waited = math.Max(waited, math.Min(waited+o.FlushSeconds, seconds))
	}
	own = waited
	if w.unsyncedSeconds += seconds; o.ForcedCommits > 0 {
		w.unsyncedSeconds = 0
	}
	if o.CommitSeconds > 0 && w.unsyncedSeconds < WindowSeconds {
		// Both at once count once.
		waited = math.Max(waited, math.Min(waited+o.CommitSeconds, seconds))
	}
	return waited, own
}

// busySeconds is the time in which requests were outstanding, on the disk or on a device above it.
func (o Observation) busySeconds() float64 {
	if o.OtherBytes > 0 && o.StackedSeconds > o.BusySeconds {
		return o.StackedSeconds
	}
	return o.BusySeconds
}

// NoneEnded reports whether no request and no flush of any sibling ended in a step.
func NoneEnded(siblings []Observation) bool {
	return !slices.ContainsFunc(siblings, func(o Observation) bool { return o.OtherBytes > 0 || o.FlushSeconds > 0 })
}
