package law

import (
	"fmt"
	"math"
	"testing"
)

// A debt of one interval is repaid slowly, so that the shares of the next one are
// right. Here a burst takes more than the share. A step in which nobody does anything
// deletes no debt.
func TestArrearsAreRepaidSlowly(t *testing.T) {
	for _, pauses := range []bool{false, true} {
		t.Run(fmt.Sprint("pauses ", pauses), func(t *testing.T) { repayArrears(t, pauses) })
	}
}

func repayArrears(t *testing.T, pauses bool) {
	t.Helper()
	const diskBytesPerSecond, step = 60e6, 0.5
	law := NewFeedback(BFQRange)
	weights := []float64{700, 300}
	var interval, lowest, mean float64
	run := func(seconds, writeback float64, watch bool) {
		for passed := 0.0; passed < seconds; passed += step {
			governed := (0.95 - writeback) * diskBytesPerSecond * step
			charged := governed * weights[1] / (weights[0] + weights[1])
			hidden := (0.05 + writeback) * diskBytesPerSecond * step
			copy(weights, law.Next(step, []Observation{
				{ID: "a", Ideal: 700, Weight: weights[0], OtherBytes: governed - charged},
				{ID: "b", Ideal: 300, Weight: weights[1], OtherBytes: charged, JournalBytes: hidden, WritebackBytes: writeback * diskBytesPerSecond * step},
			}))
			if watch {
				share := (charged + hidden) / (diskBytesPerSecond * step)
				mean += share * step
				if interval += share * step; math.Mod(passed+step, 5) == 0 {
					lowest, interval = math.Min(lowest, interval/5), 0
				}
			}
		}
	}
	run(60, 0, false)
	run(5, 0.4, false) // b gets 45 % or more, whatever its weight
	if pauses {
		copy(weights, law.Next(step, []Observation{{ID: "a", Ideal: 700, Weight: weights[0]}, {ID: "b", Ideal: 300, Weight: weights[1]}}))
	}
	lowest = 1
	run(60, 0, true)
	if lowest < 0.25 {
		t.Errorf("repaying, b falls to %.1f %% in an interval; want at least 25 %%", 100*lowest)
	}
	if mean /= 60; mean > 0.296 {
		t.Errorf("b has %.2f %% in the minute after; it was to repay more", 100*mean)
	}
}
