package control

import (
	"math"
	"testing"
)

func TestThroughputIsWorthWhatItGivesEachByItsShare(t *testing.T) {
	members := []Member{{Cgroup: "/a", Ideal: 700}, {Cgroup: "/b", Ideal: 300}, {Cgroup: "/idle", Ideal: 1000}}
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
		{"one had nothing: it counts as a thousandth of the disk", rates(0, 100), rates(10, 10), math.Pow(100, 0.7) * math.Pow(0.1, 0.3)},
		{"one has nothing", rates(50, 50), rates(0, 100), math.Pow(0.002, 0.7) * math.Pow(2, 0.3)},
	} {
		if before, now := worth(members, test.before, test.now); math.Abs(now/before-test.ratio) > 1e-9*test.ratio {
			t.Errorf("%s: %g, and %g before; want a ratio of %g", test.name, now, before, test.ratio)
		}
	}
	if before, now := worth(members, rates(0, 0), rates(0, 0)); before != 0 || now != 0 {
		t.Errorf("an idle disk is worth %g and %g; want 0", before, now)
	}
}
