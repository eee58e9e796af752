package blame

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// bucketByFloat is the rule of bucket_of() in bpf/waits.h, by floating point.
func bucketByFloat(ns uint64) Bucket {
	power := math.Floor(math.Log2(float64(ns)))
	switch {
	case ns < 1<<firstPower:
		return 0
	case power >= lastPower:
		return lastBucket
	}
	step := math.Floor((float64(ns)/math.Exp2(power) - 1) * 8)
	return Bucket(1 + (power-firstPower)*8 + step)
}

func TestBucketsAreAdjacentAndAtMostAnEighthWide(t *testing.T) {
	for b := Bucket(1); b < lastBucket; b++ {
		if b.lower() != (b - 1).upper() {
			t.Errorf("bucket %d begins at %g, the one before ends at %g", b, b.lower(), (b - 1).upper())
		}
		if width := b.upper()/b.lower() - 1; width <= 0 || width > 0.125 {
			t.Errorf("bucket %d is %g wide", b, width)
		}
	}
	if lastBucket.lower() != 1<<lastPower || Bucket(1).lower() != 1<<firstPower {
		t.Errorf("the buckets go from %g to %g", Bucket(1).lower(), lastBucket.lower())
	}
}

func TestATimeIsInItsBucket(t *testing.T) {
	for power := range 64 {
		for _, from := range []uint64{0, 1, 1 << power >> 3, 1 << power >> 1} {
			for _, ns := range []uint64{1<<power + from, 1<<power + from - 1} {
				b := bucketOf(ns)
				// Floating point has no exact logarithm of times that never occur.
				if ns > 0 && ns < 1<<50 && b != bucketByFloat(ns) {
					t.Errorf("%d ns is in bucket %d, want %d", ns, b, bucketByFloat(ns))
				}
				if b > lastBucket || b != 0 && float64(ns) < b.lower() || b != lastBucket && float64(ns) >= b.upper() {
					t.Errorf("%d ns is in bucket %d, from %g to %g", ns, b, b.lower(), b.upper())
				}
			}
		}
	}
}

func TestQuantilesAreTheCallsWithinABucket(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		h := make(Histogram)
		var calls []float64
		for range 1 + random.IntN(500) {
			ns := uint64(math.Exp(random.Float64()*15)*1000) + 1024
			h[bucketByFloat(ns)]++
			calls = append(calls, float64(ns)/1e9)
		}
		slices.Sort(calls)
		for _, q := range []float64{0, 0.01, 0.5, 0.9, 0.99, 1} {
			want := calls[max(int(math.Ceil(q*float64(len(calls))))-1, 0)]
			if got := h.Quantile(q); got < want/1.126 || got > want*1.126 {
				t.Fatalf("quantile %g of %d calls is %g; want %g", q, len(calls), got, want)
			}
		}
		if h.Calls() != uint64(len(calls)) {
			t.Errorf("%d calls; want %d", h.Calls(), len(calls))
		}
	}
}

func TestQuantileOfNoCallsIsZero(t *testing.T) {
	for _, h := range []Histogram{nil, {}, {3: 0}} {
		if got := h.Quantile(0.5); got != 0 {
			t.Errorf("%v: %g", h, got)
		}
	}
	if got := (Histogram{lastBucket: 1}).Quantile(0.5); got != math.Exp2(lastPower)/1e9 {
		t.Errorf("a call without an upper bound took %g s", got)
	}
}
