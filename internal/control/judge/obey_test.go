package judge

import (
	"math"
	"testing"

	"github.com/daybook-project/daybook/internal/control/law"
)

// windowsOf repeats a step of half a second for a while and gives the verdicts.
func windowsOf(w *Obedience, seconds float64, step func(n int) []law.Observation) (verdicts []Verdict) {
	for n := range int(seconds / 0.5) {
		if v, ended := w.Add(0.5, step(n)); ended {
			verdicts = append(verdicts, v)
		}
	}
	return verdicts
}

// queued is a sibling that keeps requests outstanding, in a step of half a second.
func queued(id string, weight, bytes, requests float64) law.Observation {
	return law.Observation{ID: id, Ideal: weight, Weight: weight, OtherBytes: bytes, BusySeconds: min(0.5, requests/2)}
}

func TestWhetherWeightsAreFollowed(t *testing.T) {
	for _, test := range []struct {
		name string
		step func(n int) []law.Observation
		want Verdict
	}{
		{"followed", func(int) []law.Observation {
			return []law.Observation{queued("a", 500, 10e6, 8), queued("b", 300, 6.3e6, 8), queued("c", 200, 3.8e6, 8)}
		}, Follows},
		{"followed with hidden I/O", func(int) []law.Observation {
			a, b := queued("a", 500, 10e6, 8), queued("b", 500, 10e6, 1)
			b.JournalBytes = 20e6
			return []law.Observation{a, b}
		}, Follows},
		{"ignored", func(int) []law.Observation {
			return []law.Observation{queued("a", 510, 4.3e6, 8), queued("b", 310, 7e6, 8), queued("c", 180, 8.7e6, 8)}
		}, Ignores},
		{"equal where weights are not", func(int) []law.Observation {
			return []law.Observation{queued("a", 700, 5e6, 8), queued("b", 300, 5e6, 8)}
		}, Ignores},
		{"the one with little has no requests waiting", func(int) []law.Observation {
			return []law.Observation{queued("a", 500, 1e6, 0.5), queued("b", 500, 19e6, 8)}
		}, NoEvidence},
		{"the one with little pauses", func(n int) []law.Observation {
			a := queued("a", 500, 5e6, 16)
			if n%10 > 4 {
				a = queued("a", 500, 0, 0)
			}
			return []law.Observation{a, queued("b", 500, 15e6, 8)}
		}, NoEvidence},
		{"the one with little is starved for seconds", func(n int) []law.Observation {
			a := queued("a", 500, 0, 0) // its request waits, and is counted when it ends
			if n%6 == 5 {
				a = queued("a", 500, 6e6, 1)
				a.BusySeconds = 3
			}
			return []law.Observation{a, queued("b", 500, 9e6, 8)}
		}, Ignores},
		{"bursts of eight for an eighth of the time", func(int) []law.Observation {
			a := queued("a", 500, 1e6, 0)
			a.BusySeconds = 0.5 / 8
			return []law.Observation{a, queued("b", 500, 9e6, 8)}
		}, NoEvidence},
		{"one alone", func(int) []law.Observation {
			return []law.Observation{queued("a", 500, 20e6, 8), queued("b", 500, 0, 0)}
		}, NoEvidence},
		{"a kernel that notes no times", func(int) []law.Observation {
			return []law.Observation{queued("a", 500, 20e6, 0), queued("b", 500, 5e6, 0)}
		}, NoEvidence},
		{"nonsense", func(int) []law.Observation {
			return []law.Observation{queued("a", 500, math.NaN(), 8), queued("b", 500, -1, 8), queued("c", 0, 5e6, 8), queued("d", 1, 5, math.Inf(1))}
		}, NoEvidence},
	} {
		t.Run(test.name, func(t *testing.T) {
			verdicts := windowsOf(&Obedience{}, 20, test.step)
			if len(verdicts) != 4 {
				t.Fatalf("%d windows in 20 s; want 4", len(verdicts))
			}
			for n, v := range verdicts {
				if v != test.want {
					t.Errorf("window %d: %v; want %v", n, v, test.want)
				}
			}
		})
	}
}

// A long interval is a window of its own.
func TestAWindowCanBeOneStep(t *testing.T) {
	w := &Obedience{}
	o := []law.Observation{queued("a", 500, 10e6, 0), queued("b", 500, 90e6, 0)}
	o[0].BusySeconds, o[1].BusySeconds = 30, 30
	if v, ended := w.Add(30, o); !ended || v != Ignores {
		t.Errorf("got %v, %v; want a window that says ignores", v, ended)
	}
}

func TestTheVerdictTakesFifteenSeconds(t *testing.T) {
	var s Trust
	steps := []struct {
		v       Verdict
		ignored bool
	}{
		{Ignores, false}, {Ignores, false}, {Follows, false}, {Ignores, false}, {Ignores, false}, {NoEvidence, false},
		{Ignores, false}, {Ignores, false}, {Ignores, true}, {NoEvidence, true}, {Follows, true}, {Ignores, true},
		{Follows, true}, {Follows, true}, {NoEvidence, true}, {Follows, false}, {Follows, false}, {Ignores, false},
	}
	for n, step := range steps {
		before := s.Ignored
		if changed := s.Take(step.v, Missed{Lack: -1}, Usual, 5); s.Ignored != step.ignored || changed != (before != s.Ignored) {
			t.Fatalf("step %d: ignored %v, changed %v; want ignored %v", n, s.Ignored, changed, step.ignored)
		}
	}
}

// The law corrects weights that are not followed exactly. Then the shares come out, and limits
// would hold them no better.
func TestWeightsThatHoldTheSharesAreNotIgnored(t *testing.T) {
	var s Trust
	for n, step := range []struct {
		missed  Missed
		ignored bool
	}{
		{Missed{Lack: 0.03, Short: "a"}, false}, {Missed{Lack: 0.02}, false}, {Missed{}, false}, {Missed{Lack: 0.03}, false},
		{Missed{Lack: 0.04, Short: "a"}, false}, {Missed{Lack: 0.04, Short: "a"}, false}, {Missed{Lack: 0.01}, false},
		{Missed{Lack: 0.04, Short: "a"}, false}, {Missed{Lack: 0.01, Excess: 0.04, Greedy: "b"}, false}, {Missed{Lack: 0.04, Short: "b"}, true},
		{Missed{Lack: 0.01}, true}, {Missed{Lack: 0.01}, true}, {Missed{Lack: 0.01}, false},
	} {
		if s.Take(Ignores, step.missed, Usual, 5); s.Ignored != step.ignored {
			t.Fatalf("step %d: ignored %v; want %v", n, s.Ignored, step.ignored)
		}
	}
}
