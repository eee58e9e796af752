package law

import "testing"

// In steps of a second, a sibling with a low weight is charged nothing in many of
// them. It must not count as idle and get its ideal weight.
func TestOneThatWaitsForItsSliceIsNotIdle(t *testing.T) {
	law := NewFeedback(BFQRange)
	weights := []float64{500, 500}
	observe := func(b float64) {
		next := law.Next(1, []Observation{
			{ID: "a", Ideal: 500, Weight: weights[0], OtherBytes: 20e6},
			{ID: "b", Ideal: 500, Weight: weights[1], OtherBytes: b, JournalBytes: 22e6},
		})
		copy(weights, next)
	}
	for range 12 {
		observe(6e6)
	}
	low := weights[1]
	if low >= 400 {
		t.Fatalf("b has weight %v: not held low", low)
	}
	for second := range 4 {
		observe(0)
		if weights[1] > 1.5*low {
			t.Fatalf("after %d s without its slice b has weight %v, before %v", second+1, weights[1], low)
		}
	}
	for range 4 {
		observe(0)
	}
	if weights[1] != 500 {
		t.Errorf("after 8 s without charged I/O b is idle, but has weight %v", weights[1])
	}
}
