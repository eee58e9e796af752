package blame

import (
	"cmp"
	"maps"
	"math"
	"math/bits"
	"slices"
)

// Histogram has the number of calls in each bucket that is not empty. The buckets
// are log-linear: 8 of equal width for each power of two from 1024 ns to 2^37 ns
// (137 s), one below and one above. A bucket is at most 12.5 % wide.
type Histogram map[Bucket]uint64

// Bucket is the index of a bucket. bpf/waits.h has the same rule.
type Bucket uint16

const (
	firstPower = 10
	lastPower  = 37
	stepsLog2  = 3
	lastBucket = Bucket(1 + (lastPower-firstPower)<<stepsLog2)
)

// bucketOf is the bucket of a time.
func bucketOf(ns uint64) Bucket {
	power := bits.Len64(ns) - 1
	switch {
	case power < firstPower:
		return 0
	case power >= lastPower:
		return lastBucket
	}
	return Bucket(1 + (power-firstPower)<<stepsLog2 + int(ns>>(power-stepsLog2)&(1<<stepsLog2-1)))
}

// lower is the smallest value in a bucket, in nanoseconds.
func (b Bucket) lower() float64 {
	if b == 0 {
		return 0
	}
	step := min(b, lastBucket) - 1
	power := firstPower + int(step>>stepsLog2)
	return math.Ldexp(1+float64(step&(1<<stepsLog2-1))/(1<<stepsLog2), power)
}

// upper is the smallest value above a bucket. The last bucket has no end; it
// counts as the time of its beginning.
func (b Bucket) upper() float64 {
	if b >= lastBucket {
		return lastBucket.lower()
	}
	return (b + 1).lower()
}

// UpperSeconds is the upper bound of a bucket.
func (b Bucket) UpperSeconds() float64 { return b.upper() / 1e9 }

// Add adds the calls of another histogram.
func (h Histogram) Add(other Histogram) {
	for bucket, calls := range other {
		h[bucket] += calls
	}
}

// Calls is the number of calls.
func (h Histogram) Calls() uint64 {
	var sum uint64
	for _, calls := range h {
		sum += calls
	}
	return sum
}

// Buckets lists the buckets that are not empty, in order.
func (h Histogram) Buckets() []Bucket {
	return slices.SortedFunc(maps.Keys(h), cmp.Compare[Bucket])
}

// Quantile is the time in seconds that a share q of the calls, 0 to 1, does not
// exceed. Within a bucket the calls count as evenly spread; the error is at most
// the width of a bucket. It is 0 without calls.
func (h Histogram) Quantile(q float64) float64 {
	calls := h.Calls()
	if calls == 0 {
		return 0
	}
	rank := q * float64(calls)
	var below float64
	var last Bucket
	for _, bucket := range h.Buckets() {
		in := float64(h[bucket])
		if in == 0 {
			continue
		}
		if last = bucket; below+in >= rank {
			part := max(rank-below, 0) / in
			return (bucket.lower() + part*(bucket.upper()-bucket.lower())) / 1e9
		}
		below += in
	}
	return last.UpperSeconds()
}
