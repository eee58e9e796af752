package judge

import (
	"math"
	"testing"

	"github.com/daybook-project/daybook/internal/control/law"
)

// syncing is what a writer that calls fsync did in a step of half a second: it waits for
// the disk a part of the time, and for a commit in the rest.
func syncing(id string, ideal, charged, hidden, busy float64) law.Observation {
	return law.Observation{ID: id, Ideal: ideal, Weight: ideal, OtherBytes: charged, JournalBytes: hidden,
		BusySeconds: busy, ForcedCommits: 1, CommitSeconds: 0.25}
}

func TestAShareThatIsMissedIsSeenWhateverTheWeights(t *testing.T) {
	idle := func(o law.Observation) law.Observation {
		o.BusySeconds, o.ForcedCommits, o.CommitSeconds = 0.1, 0, 0
		return o
	}
	for _, test := range []struct {
		name     string
		siblings []law.Observation
		lack     float64
		who      string
		excess   float64
		whose    string
	}{
		{"all come out", []law.Observation{syncing("a", 500, 50, 0, 0.3), syncing("b", 300, 30, 0, 0.3), syncing("c", 200, 10, 10, 0.3)}, 0, "", 0, ""},
		{"writers that wait for commits", []law.Observation{syncing("a", 500, 40, 0, 0.3), syncing("b", 300, 30, 0, 0.3), syncing("c", 200, 14, 16, 0.3)}, 0.1, "a", 0.1, "c"},
		{"it wants no more", []law.Observation{idle(syncing("a", 500, 40, 0, 0)), syncing("b", 300, 36, 0, 0.3), syncing("c", 200, 12, 12, 0.3)}, 0, "", 0, ""},
		{"what others have too much is hidden", []law.Observation{syncing("a", 500, 40, 0, 0.3), syncing("b", 300, 24, 0, 0.3), syncing("c", 200, 2, 34, 0.3)}, 0, "", 0, ""},
		{"only a part of it could be held back", []law.Observation{syncing("a", 500, 40, 0, 0.3), syncing("b", 300, 30, 0, 0.3), syncing("c", 200, 6, 24, 0.3)}, 0.055, "a", 0.04, "c"},
		{"one of them is no measurement", []law.Observation{syncing("a", 500, math.NaN(), 0, 0.3), syncing("b", 300, 90, 0, 0.3)}, -1, "", 0, ""},
		{"nobody did anything", []law.Observation{syncing("a", 500, 0, 0, 0), syncing("b", 300, 0, 0, 0)}, -1, "", 0, ""},
		{"only one did anything", []law.Observation{syncing("a", 500, 90, 10, 0.3), idle(syncing("b", 300, 0, 0, 0))}, -1, "", 0, ""},
		{"only one did anything, and another wants to", []law.Observation{syncing("a", 500, 90, 10, 0.3), syncing("b", 300, 0, 0, 0.3)}, 0.375, "b", 0.375, "a"},
		{"two lack a little each", []law.Observation{syncing("a", 500, 46, 0, 0.3), syncing("b", 300, 26, 0, 0.3), syncing("c", 200, 12, 16, 0.3)}, 0.04, "a", 0.08, "c"},
	} {
		var w Shortfall
		for step := range 10 {
			if ended := w.Add(0.5, test.siblings); ended != (step == 9) {
				t.Fatalf("%s: the window ended in step %d", test.name, step)
			}
		}
		if math.Abs(w.Lack-test.lack) > 0.005 || w.Short != test.who {
			t.Errorf("%s: %q lacks %.3f; want %q and %.3f", test.name, w.Short, w.Lack, test.who, test.lack)
		}
		if math.Abs(w.Excess-test.excess) > 0.005 || w.Greedy != test.whose {
			t.Errorf("%s: %q has %.3f too much; want %q and %.3f", test.name, w.Greedy, w.Excess, test.whose, test.excess)
		}
	}
}

func TestASiblingThatMissesOnceIsNoVerdict(t *testing.T) {
	var s Trust
	for n, step := range []struct {
		missed  Missed
		ignored bool
	}{
		{Missed{Lack: 0.06, Short: "a"}, false}, {Missed{Lack: 0.01}, false}, {Missed{Lack: 0.06, Short: "a"}, false},
		{Missed{Lack: 0.06, Short: "b"}, false}, {Missed{Lack: 0.06, Short: "b"}, true}, {Missed{Lack: 0.04, Short: "b"}, true},
		{Missed{Lack: 0.01}, true}, {Missed{Lack: 0.02}, true}, {Missed{Lack: -1}, true}, {Missed{}, true}, {Missed{}, true},
		{Missed{Lack: 0.01}, false},
		// One has too much, and others lack it in turn, or a part of it each.
		{Missed{0.06, "a", 0.06, "c"}, false}, {Missed{0.06, "b", 0.06, "c"}, true},
		{Missed{0.01, "a", 0.02, "c"}, true}, {Missed{0.02, "b", 0.04, "c"}, true}, {Missed{}, true}, {Missed{}, true}, {Missed{}, false},
		{Missed{0.03, "a", 0.06, "c"}, false}, {Missed{0.04, "a", 0.06, "d"}, false}, {Missed{0.03, "a", 0.03, "d"}, false},
		{Missed{0.03, "a", 0.06, "d"}, false}, {Missed{0.03, "b", 0.06, "d"}, true}, {Missed{}, true}, {Missed{}, true}, {Missed{}, false},
		// A window with a little less neither counts nor interrupts, if it is the same sibling's.
		{Missed{Lack: 0.06, Short: "a"}, false}, {Missed{Lack: 0.04, Short: "a"}, false}, {Missed{Lack: 0.04, Short: "a"}, false},
		{Missed{Lack: 0.06, Short: "a"}, true}, {Missed{}, true}, {Missed{}, true}, {Missed{}, false},
		{Missed{Lack: 0.06, Short: "a"}, false}, {Missed{Lack: 0.04, Short: "b"}, false}, {Missed{Lack: 0.06, Short: "a"}, false},
	} {
		if s.Take(NoEvidence, step.missed, Usual, 5); s.Ignored != step.ignored {
			t.Fatalf("step %d: ignored %v; want %v", n, s.Ignored, step.ignored)
		}
	}
}

// In the window in which a sibling begins, or has another ideal, the shares are not the law's work.
func TestAWindowInWhichASiblingBeginsIsFresh(t *testing.T) {
	window := func(a, ideal float64) []law.Observation {
		return []law.Observation{syncing("a", ideal, a, 0, 0.3), syncing("b", 300, 30, 0, 0.3)}
	}
	var w Shortfall
	for n, step := range []struct {
		a, ideal float64
		fresh    bool
	}{
		{0, 500, true}, {0, 500, false}, {40, 500, true}, {40, 500, false}, {40, 700, true}, {40, 700, false}, {0, 700, false}, {40, 700, true},
	} {
		for range 10 {
			w.Add(0.5, window(step.a, step.ideal))
		}
		if w.Fresh != step.fresh {
			t.Errorf("window %d: fresh %t; want %t", n, w.Fresh, step.fresh)
		}
	}
}

// What is due to a sibling that comes during a window cannot be said.
func TestAWindowOfWhichASiblingHadAPartIsPartial(t *testing.T) {
	var w Shortfall
	for n, step := range []struct {
		joins   int
		partial bool
	}{{0, false}, {6, true}, {0, false}} {
		for at := range 10 {
			siblings := []law.Observation{syncing("a", 500, 40, 0, 0.3)}
			if at >= step.joins {
				siblings = append(siblings, syncing(map[bool]string{true: "b", false: "c"}[n == 0], 500, 40, 0, 0.3))
			}
			w.Add(0.5, siblings)
		}
		if w.Partial != step.partial {
			t.Errorf("window %d: partial %t; want %t", n, w.Partial, step.partial)
		}
	}
}
