package control

import (
	"math"
	"testing"
)

// windowsOf repeats a step of half a second for a while and gives the verdicts.
func windowsOf(w *obedience, seconds float64, step func(n int) []Observation) (verdicts []verdict) {
	for n := range int(seconds / 0.5) {
		if v, ended := w.add(0.5, step(n)); ended {
			verdicts = append(verdicts, v)
		}
	}
	return verdicts
}

// queued is a sibling that keeps requests outstanding, in a step of half a second.
func queued(id string, weight, bytes, requests float64) Observation {
	return Observation{ID: id, Ideal: weight, Weight: weight, OtherBytes: bytes, BusySeconds: min(0.5, requests/2)}
}

func TestWhetherWeightsAreFollowed(t *testing.T) {
	for _, test := range []struct {
		name string
		step func(n int) []Observation
		want verdict
	}{
		{"followed", func(int) []Observation {
			return []Observation{queued("a", 500, 10e6, 8), queued("b", 300, 6.3e6, 8), queued("c", 200, 3.8e6, 8)}
		}, follows},
		{"followed with hidden I/O", func(int) []Observation {
			a, b := queued("a", 500, 10e6, 8), queued("b", 500, 10e6, 1)
			b.JournalBytes = 20e6
			return []Observation{a, b}
		}, follows},
		{"ignored", func(int) []Observation {
			return []Observation{queued("a", 510, 4.3e6, 8), queued("b", 310, 7e6, 8), queued("c", 180, 8.7e6, 8)}
		}, ignores},
		{"equal where weights are not", func(int) []Observation {
			return []Observation{queued("a", 700, 5e6, 8), queued("b", 300, 5e6, 8)}
		}, ignores},
		{"the one with little has no requests waiting", func(int) []Observation {
			return []Observation{queued("a", 500, 1e6, 0.5), queued("b", 500, 19e6, 8)}
		}, noEvidence},
		{"the one with little pauses", func(n int) []Observation {
			a := queued("a", 500, 5e6, 16)
			if n%10 > 4 {
				a = queued("a", 500, 0, 0)
			}
			return []Observation{a, queued("b", 500, 15e6, 8)}
		}, noEvidence},
		{"the one with little is starved for seconds", func(n int) []Observation {
			a := queued("a", 500, 0, 0) // its request waits, and is counted when it ends
			if n%6 == 5 {
				a = queued("a", 500, 6e6, 1)
				a.BusySeconds = 3
			}
			return []Observation{a, queued("b", 500, 9e6, 8)}
		}, ignores},
		{"bursts of eight for an eighth of the time", func(int) []Observation {
			a := queued("a", 500, 1e6, 0)
			a.BusySeconds = 0.5 / 8
			return []Observation{a, queued("b", 500, 9e6, 8)}
		}, noEvidence},
		{"one alone", func(int) []Observation { return []Observation{queued("a", 500, 20e6, 8), queued("b", 500, 0, 0)} }, noEvidence},
		{"a kernel that notes no times", func(int) []Observation {
			return []Observation{queued("a", 500, 20e6, 0), queued("b", 500, 5e6, 0)}
		}, noEvidence},
		{"nonsense", func(int) []Observation {
			return []Observation{queued("a", 500, math.NaN(), 8), queued("b", 500, -1, 8), queued("c", 0, 5e6, 8), queued("d", 1, 5, math.Inf(1))}
		}, noEvidence},
	} {
		t.Run(test.name, func(t *testing.T) {
			verdicts := windowsOf(&obedience{}, 20, test.step)
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
	w := &obedience{}
	o := []Observation{queued("a", 500, 10e6, 0), queued("b", 500, 90e6, 0)}
	o[0].BusySeconds, o[1].BusySeconds = 30, 30
	if v, ended := w.add(30, o); !ended || v != ignores {
		t.Errorf("got %v, %v; want a window that says ignores", v, ended)
	}
}

func TestTheVerdictTakesFifteenSeconds(t *testing.T) {
	var s trust
	steps := []struct {
		v       verdict
		ignored bool
	}{
		{ignores, false}, {ignores, false}, {follows, false}, {ignores, false}, {ignores, false}, {noEvidence, false},
		{ignores, false}, {ignores, false}, {ignores, true}, {noEvidence, true}, {follows, true}, {ignores, true},
		{follows, true}, {follows, true}, {noEvidence, true}, {follows, false}, {follows, false}, {ignores, false},
	}
	for n, step := range steps {
		before := s.ignored
		if changed := s.take(step.v, missed{lack: -1}, 5); s.ignored != step.ignored || changed != (before != s.ignored) {
			t.Fatalf("step %d: ignored %v, changed %v; want ignored %v", n, s.ignored, changed, step.ignored)
		}
	}
}
