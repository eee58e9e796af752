package meter

import (
	"math"
	"testing"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/blame"
)

// Two cgroups of one container are one line, as waiters and as culprits.
func TestWaitsOfCgroupsBecomeThoseOfContainers(t *testing.T) {
	const sda, other = 8 << 20, 9 << 20
	unitOf := func(id uint64) string { return map[uint64]string{10: "/db", 11: "/db", 20: "/web"}[id] }
	nameOf := func(path string) string { return path[1:] }
	waiter := func(dev uint32, cgroup uint64, bucket blame.Bucket, culprits ...blame.Culprit) blame.Waiter {
		w := blame.Waiter{Call: blame.Call{Dev: dev, Cgroup: cgroup, Operation: blame.Fsync}, Calls: blame.Histogram{bucket: 2}, Culprits: culprits}
		for _, c := range culprits {
			w.Nanoseconds[c.Cause] += c.Nanoseconds
		}
		return w
	}
	got := mergeWaiters([]blame.Waiter{
		waiter(sda, 10, 100, blame.Culprit{Cgroup: 20, Cause: blame.Log, Nanoseconds: 3e9}, blame.Culprit{Cgroup: 11, Cause: blame.Log, Nanoseconds: 1e9}),
		waiter(sda, 11, 101, blame.Culprit{Cgroup: 10, Cause: blame.Log, Nanoseconds: 1e9}, blame.Culprit{Cgroup: blame.Nobody, Cause: blame.Flush, Nanoseconds: 5e8}),
		waiter(sda, 20, 90, blame.Culprit{Cgroup: 20, Cause: blame.OwnData, Nanoseconds: 1e9}),
		waiter(other, 10, 100, blame.Culprit{Cgroup: 20, Cause: blame.Log, Nanoseconds: 9e9}), // not observed
	}, map[uint32]string{sda: "sda"}, unitOf, nameOf)
	if len(got) != 2 || got[0].Cgroup != "/db" || got[1].Cgroup != "/web" {
		t.Fatalf("waiters %+v", got)
	}
	db := got[0]
	if db.Name != "db" || db.Device != "sda" || db.Operation != "fsync" || db.Calls != 4 || db.WaitSeconds != 5.5 {
		t.Errorf("got %+v", db)
	}
	want := []account.Culprit{{Cgroup: "/web", Name: "web", Seconds: 3, Cause: "log"}, {Cgroup: "/db", Name: "db", Seconds: 2, Cause: "log"}, {Seconds: 0.5, Cause: "flush"}}
	for i := range want {
		if i >= len(db.Culprits) || db.Culprits[i] != want[i] {
			t.Errorf("culprits %+v; want %+v", db.Culprits, want)
			break
		}
	}
	if db.Phases["log"] != 5 || db.Phases["flush"] != 0.5 || len(db.Phases) != len(account.WaitPhases) {
		t.Errorf("phases %v", db.Phases)
	}
	if len(db.Histogram) != 2 || db.Histogram[0].Calls != 2 || db.P99Seconds <= db.P50Seconds || math.Abs(db.Histogram[0].UpperSeconds-db.P50Seconds) > 1e-9 {
		t.Errorf("histogram %+v, p50 %g, p99 %g", db.Histogram, db.P50Seconds, db.P99Seconds)
	}
}

func TestPhasesOfSamplesAreThoseOfBlame(t *testing.T) {
	names := blame.PhaseNames()
	for i, name := range account.WaitPhases {
		if names[i] != name {
			t.Errorf("phase %d is %q in samples, %q in blame", i, name, names[i])
		}
	}
	if len(names) != len(account.WaitPhases) {
		t.Errorf("%d phases; want %d", len(account.WaitPhases), len(names))
	}
}
