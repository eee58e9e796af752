package meter

import (
	"math"
	"testing"
)

func TestTargetSharesFollowTheTreeOfWeights(t *testing.T) {
	weights := map[string]float64{"/a": 300, "/docker": 100, "/docker/x": 70, "/docker/y": 30, "/solo": 100}
	got := targetShares([]string{"/", "/a", "/docker/x", "/docker/y", "/solo"}, func(p string) float64 { return weights[p] })
	want := map[string]float64{"/a": 0.6, "/docker/x": 0.14, "/docker/y": 0.06, "/solo": 0.2}
	if len(got) != len(want) {
		t.Errorf("shares for %d units, want %d: %v", len(got), len(want), got)
	}
	for unit, share := range want {
		if math.Abs(got[unit]-share) > 1e-12 {
			t.Errorf("%s: share %v, want %v", unit, got[unit], share)
		}
	}
}

func TestTargetSharesOfAUnitWithUnitsBelowItAddUpToOne(t *testing.T) {
	got := targetShares([]string{"/a", "/a/b", "/c"}, func(string) float64 { return 100 })
	var sum float64
	for _, share := range got {
		sum += share
	}
	if math.Abs(sum-1) > 1e-12 || got["/a"] != 0.25 || got["/a/b"] != 0.25 || got["/c"] != 0.5 {
		t.Errorf("shares %v, want /a and /a/b a quarter each and /c half", got)
	}
}
