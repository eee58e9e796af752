package law

import (
	"math"
	"testing"
)

// A container with one request at a time pauses after each, beside two that always have
// four. With pauses up to 4 ms it has its share. With longer ones it does not wait for the
// disk in WantingPart of the time any more: docs/control-limits.md says what it gets then.
func TestShortPausesCostNoShare(t *testing.T) {
	const held = 4 // ms
	for _, pause := range []float64{0, 2, held, 6, 8} {
		d := newThrottledDisk(&simLoad{ideal: 500, depth: 4}, &simLoad{ideal: 300, depth: 1, thinkSeconds: pause / 1000}, &simLoad{ideal: 200, depth: 4})
		p := &d.model.Parameters
		p.FullStrokeSeekSeconds, p.TrackToTrackSeekSeconds, p.RotationalLatencySeconds = 0, 0, 0
		shares, rate, free := limitThrottled(d, NewLimitLaw(), 60, 240)
		t.Logf("pauses of %.0f ms: shares %.3f, %.1f MB/s, steps without a limit %v", pause, shares, rate/1e6, free)
		if off := math.Abs(shares[1] - 0.3); off > 0.01 && pause <= held {
			t.Errorf("pauses of %.0f ms: %.1f %% of the bytes, want 30", pause, 100*shares[1])
		}
	}
}
