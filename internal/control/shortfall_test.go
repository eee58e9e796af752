package control

import (
	"math"
	"testing"
)

// syncing is what a writer that calls fsync did in a step of half a second: it waits for
// the disk a part of the time, and for a commit in the rest.
func syncing(id string, ideal, charged, hidden, busy float64) Observation {
	return Observation{ID: id, Ideal: ideal, Weight: ideal, OtherBytes: charged, JournalBytes: hidden,
		BusySeconds: busy, ForcedCommits: 1, CommitSeconds: 0.25}
}

func TestAShareThatIsMissedIsSeenWhateverTheWeights(t *testing.T) {
	idle := func(o Observation) Observation {
		o.BusySeconds, o.ForcedCommits, o.CommitSeconds = 0.1, 0, 0
		return o
	}
	for _, test := range []struct {
		name     string
		siblings []Observation
		lack     float64
		who      string
		excess   float64
		whose    string
	}{
		{"all come out", []Observation{syncing("a", 500, 50, 0, 0.3), syncing("b", 300, 30, 0, 0.3), syncing("c", 200, 10, 10, 0.3)}, 0, "", 0, ""},
		{"writers that wait for commits", []Observation{syncing("a", 500, 40, 0, 0.3), syncing("b", 300, 30, 0, 0.3), syncing("c", 200, 14, 16, 0.3)}, 0.1, "a", 0.1, "c"},
		{"it wants no more", []Observation{idle(syncing("a", 500, 40, 0, 0)), syncing("b", 300, 36, 0, 0.3), syncing("c", 200, 12, 12, 0.3)}, 0, "", 0, ""},
		{"what others have too much is hidden", []Observation{syncing("a", 500, 40, 0, 0.3), syncing("b", 300, 24, 0, 0.3), syncing("c", 200, 2, 34, 0.3)}, 0, "", 0, ""},
		{"only a part of it could be held back", []Observation{syncing("a", 500, 40, 0, 0.3), syncing("b", 300, 30, 0, 0.3), syncing("c", 200, 6, 24, 0.3)}, 0.055, "a", 0.04, "c"},
		{"one of them is no measurement", []Observation{syncing("a", 500, math.NaN(), 0, 0.3), syncing("b", 300, 90, 0, 0.3)}, -1, "", 0, ""},
		{"nobody did anything", []Observation{syncing("a", 500, 0, 0, 0), syncing("b", 300, 0, 0, 0)}, -1, "", 0, ""},
		{"only one did anything", []Observation{syncing("a", 500, 90, 10, 0.3), idle(syncing("b", 300, 0, 0, 0))}, -1, "", 0, ""},
		{"only one did anything, and another wants to", []Observation{syncing("a", 500, 90, 10, 0.3), syncing("b", 300, 0, 0, 0.3)}, 0.375, "b", 0.375, "a"},
		{"two lack a little each", []Observation{syncing("a", 500, 46, 0, 0.3), syncing("b", 300, 26, 0, 0.3), syncing("c", 200, 12, 16, 0.3)}, 0.04, "a", 0.08, "c"},
	} {
		var w shortfall
		for step := range 10 {
			if ended := w.add(0.5, test.siblings); ended != (step == 9) {
				t.Fatalf("%s: the window ended in step %d", test.name, step)
			}
		}
		if math.Abs(w.lack-test.lack) > 0.005 || w.short != test.who {
			t.Errorf("%s: %q lacks %.3f; want %q and %.3f", test.name, w.short, w.lack, test.who, test.lack)
		}
		if math.Abs(w.excess-test.excess) > 0.005 || w.greedy != test.whose {
			t.Errorf("%s: %q has %.3f too much; want %q and %.3f", test.name, w.greedy, w.excess, test.whose, test.excess)
		}
	}
}

func TestASiblingThatMissesOnceIsNoVerdict(t *testing.T) {
	var s trust
	for n, step := range []struct {
		missed  missed
		ignored bool
	}{
		{missed{lack: 0.06, short: "a"}, false}, {missed{lack: 0.01}, false}, {missed{lack: 0.06, short: "a"}, false},
		{missed{lack: 0.06, short: "b"}, false}, {missed{lack: 0.06, short: "b"}, true}, {missed{lack: 0.04, short: "b"}, true},
		{missed{lack: 0.01}, true}, {missed{lack: 0.02}, true}, {missed{lack: -1}, true}, {missed{}, true}, {missed{}, true},
		{missed{lack: 0.01}, false},
		// One has too much, and others lack it in turn, or a part of it each.
		{missed{0.06, "a", 0.06, "c"}, false}, {missed{0.06, "b", 0.06, "c"}, true},
		{missed{0.01, "a", 0.02, "c"}, true}, {missed{0.02, "b", 0.04, "c"}, true}, {missed{}, true}, {missed{}, true}, {missed{}, false},
		{missed{0.03, "a", 0.06, "c"}, false}, {missed{0.04, "a", 0.06, "d"}, false}, {missed{0.03, "a", 0.04, "d"}, false},
		{missed{0.03, "a", 0.06, "d"}, false}, {missed{0.03, "b", 0.06, "d"}, true},
	} {
		if s.take(noEvidence, step.missed, 5); s.ignored != step.ignored {
			t.Fatalf("step %d: ignored %v; want %v", n, s.ignored, step.ignored)
		}
	}
}
