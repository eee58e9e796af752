package control

import (
	"math"
	"testing"
)

func TestThroughputIsWorthWhatItGivesEachByItsShare(t *testing.T) {
	groups := []Group{{Parent: "/", Members: []Member{{Cgroup: "/a", Ideal: 700}, {Cgroup: "/b", Ideal: 300}, {Cgroup: "/idle", Ideal: 1000}}}}
	rates := func(a, b float64) (t throughput) {
		t.add(bytesDone{all: a + b, each: map[string]float64{"/a": a, "/b": b, "/idle": 0}}, 1, 10)
		return t
	}
	for _, test := range []struct {
		name   string
		before throughput
		now    throughput
		ratio  float64
	}{
		{"as before", rates(70, 30), rates(70, 30), 1},
		{"all lose half", rates(60, 30), rates(30, 15), 0.5},
		{"ten times as much for 70 %, a tenth for 30 %", rates(1, 100), rates(10, 10), math.Pow(10, 0.7) * math.Pow(0.1, 0.3)},
		{"one had next to nothing: it counts as a thousandth of the disk", rates(1e-9, 100), rates(10, 10), math.Pow(100, 0.7) * math.Pow(0.1, 0.3)},
		{"one that did nothing before comes", rates(0, 100), rates(10, 10), 0.1},
		{"one has nothing", rates(50, 50), rates(0, 100), math.Pow(0.002, 0.7) * math.Pow(2, 0.3)},
	} {
		if before, now := worth(groups, test.before, test.now); math.Abs(now/before-test.ratio) > 1e-9*test.ratio {
			t.Errorf("%s: %g, and %g before; want a ratio of %g", test.name, now, before, test.ratio)
		}
	}
	if before, now := worth(groups, rates(0, 0), rates(0, 0)); before != 0 || now != 0 {
		t.Errorf("an idle disk is worth %g and %g; want 0", before, now)
	}
}

func TestContainersThatCameOrEndedAreWorthNothing(t *testing.T) {
	groups := []Group{{Parent: "/", Members: []Member{{Cgroup: "/a", Ideal: 100}, {Cgroup: "/new", Ideal: 100}}}}
	var before, now throughput
	before.add(bytesDone{all: 100, each: map[string]float64{"/a": 50, "/ended": 50}}, 1, 10)
	now.add(bytesDone{all: 100, each: map[string]float64{"/a": 25, "/new": 75}}, 1, 10)
	if a, b := worth(groups, before, now); math.Abs(b/a-0.5) > 1e-9 {
		t.Errorf("worth %g, and %g before; want half", b, a)
	}
}

// A database and a scanner in one slice: that the slice does less hides what the database has.
func TestTheInnermostContainersCount(t *testing.T) {
	groups := []Group{
		{Parent: "/", Members: []Member{{Cgroup: "/s", Ideal: 300}, {Cgroup: "/c", Ideal: 100}}},
		{Parent: "/s", Members: []Member{{Cgroup: "/s/db", Ideal: 200}, {Cgroup: "/s/scan", Ideal: 50}}},
	}
	shares := innermost(groups)
	for cgroup, want := range map[string]float64{"/c": 0.25, "/s/db": 0.75 * 0.8, "/s/scan": 0.75 * 0.2} {
		if math.Abs(shares[cgroup]-want) > 1e-9 || len(shares) != 3 {
			t.Errorf("%s: %g of the disk; want %g (of %v)", cgroup, shares[cgroup], want, shares)
		}
	}
	var before, now throughput
	before.add(bytesDone{all: 100, each: map[string]float64{"/s": 90, "/s/db": 1, "/s/scan": 89, "/c": 10}}, 1, 10)
	now.add(bytesDone{all: 30, each: map[string]float64{"/s": 20, "/s/db": 16, "/s/scan": 4, "/c": 10}}, 1, 10)
	a, b := worth(groups, before, now)
	if want := math.Pow(16, 0.6) * math.Pow(4.0/89, 0.15); math.Abs(b/a-want) > 1e-9 {
		t.Errorf("worth %g, and %g before; want a ratio of %g", b, a, want)
	}
}
