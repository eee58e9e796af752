package law

import (
	"math"
	"testing"
)

// Of the debt of a long pause, most is of intervals that are over.
func TestWhatAPauseGaveTooMuchIsRepaidSlowly(t *testing.T) {
	const diskBytesPerSecond = 40e6
	law := NewFeedback(BFQRange)
	weights := []float64{500, 500}
	step := func(seconds, logged float64) float64 {
		all := diskBytesPerSecond * seconds
		charged := (1 - logged) * all * weights[0] / (weights[0] + weights[1])
		copy(weights, law.Next(seconds, []Observation{
			{ID: "a", Ideal: 500, Weight: weights[0], OtherBytes: charged},
			{ID: "b", Ideal: 500, Weight: weights[1], OtherBytes: (1-logged)*all - charged, JournalBytes: logged * all},
		}))
		return charged / all
	}
	for range 40 {
		step(0.5, 0)
	}
	step(60, 0.3) // b begins to log in the pause, and goes on
	var worst, mean float64
	for range 12 { // a minute in intervals of 5 s
		var share float64
		for range 10 {
			share += step(0.5, 0.3) / 10
		}
		worst = math.Max(worst, math.Abs(share-0.5))
		mean += share / 12
	}
	t.Logf("after the pause: %.1f points off in the worst interval, a mean of %.3f", 100*worst, mean)
	if worst > 0.05 {
		t.Errorf("an interval after the pause is %.1f points off", 100*worst)
	}
	if mean < 0.501 {
		t.Errorf("the mean of the minute after is %.3f: nothing is repaid", mean)
	}
}

// An interval of up to an hour is allowed. A step is then longer than the time in which
// arrears are repaid.
func TestLongStepsDoNotRepayTooMuch(t *testing.T) {
	for _, seconds := range []float64{30, 60, 360} {
		disk := newSimDisk(4, 0.02, reader(500), metadataWriter(500, 4e6))
		out := steer(disk, NewFeedback(BFQRange), BFQRange, seconds, 60)
		var worst float64
		for _, shares := range out.intervals[10:] {
			worst = math.Max(worst, math.Abs(shares[0]-0.5))
		}
		t.Logf("steps of %.0f s: the worst is %.1f points off", seconds, 100*worst)
		if worst > 0.025 {
			t.Errorf("a step of %.0f s is %.1f points off", seconds, 100*worst)
		}
	}
}
