package advise

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/daybook-project/daybook/internal/account"
)

// sampled is an interval in which threads wait one call after the other, with nobody else
// on the disk. longer draws the next call, in seconds.
func sampled(calls, threads int, longer func() float64) Input {
	in := Input{Calls: uint64(calls), Phases: map[string]float64{}, Mode: Unwritten}
	buckets := map[int]uint64{}
	for range calls {
		s := longer()
		in.WaitSeconds += s
		buckets[int(math.Floor(math.Log2(s)*8))]++ // an eighth of a power of two
	}
	in.Phases[ownData], in.Seconds = in.WaitSeconds, in.WaitSeconds/float64(threads)
	for at := -200; at < 200; at++ {
		if buckets[at] > 0 {
			in.Histogram = append(in.Histogram, account.WaitBucket{UpperSeconds: math.Exp2(float64(at+1) / 8), Calls: buckets[at]})
		}
	}
	return in
}

// If nothing changes, the next interval is in the range in about 8 of 10 cases, whatever
// the distribution of the calls.
func TestTheNextIntervalIsInTheRange(t *testing.T) {
	const trials = 300
	for seed, of := range []struct {
		name   string
		longer func(*rand.Rand) float64
	}{
		{"exponential", func(r *rand.Rand) float64 { return 0.01 * r.ExpFloat64() }},
		{"two in turn", func(r *rand.Rand) float64 { return 0.01 * (r.ExpFloat64() + r.ExpFloat64()) }},
		{"one in 50 stalls", func(r *rand.Rand) float64 { return 0.01 * r.ExpFloat64() * float64(1+10*(r.IntN(50)/49)) }},
		{"nearly steady", func(r *rand.Rand) float64 { return 0.01 + 0.001*r.ExpFloat64() }},
	} {
		for _, calls := range []int{60, 300, 2000} {
			r := rand.New(rand.NewPCG(uint64(seed), uint64(calls))) // the same in each run
			longer := func() float64 { return of.longer(r) }
			var gains, p50s, p99s int
			for range trials {
				now, next := sampled(calls, 1, longer), sampled(calls, 1, longer)
				predicted := predict(t, now)[DeviceVolume]
				gains += inside(predicted.Gain, now.wait()/next.wait()) // without time between calls
				p50s += inside(predicted.P50Seconds, next.quantile(0.5))
				p99s += inside(predicted.P99Seconds, next.quantile(0.99))
			}
			t.Logf("%s, %d calls: throughput %d, p50 %d, p99 %d of %d", of.name, calls, gains, p50s, p99s, trials)
			if calls < 100 && of.name == "one in 50 stalls" {
				continue // too few to have seen the stalls
			}
			for what, n := range map[string]int{"throughput": gains, "p50": p50s, "p99": p99s} {
				if n < trials*6/10 || n > trials*95/100 {
					t.Errorf("%s, %d calls: %s is in its range in %d of %d cases, want about 8 of 10", of.name, calls, what, n, trials)
				}
			}
		}
	}
}

func inside(r Range, value float64) int {
	if r.Low <= value && value <= r.High {
		return 1
	}
	return 0
}

// Calls that wait at the same time wait for the same: as many of them say less.
func TestCallsInParallelSayLess(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	longer := func() float64 { return 0.01 * r.ExpFloat64() }
	in := sampled(1000, 1, longer)
	alone := predict(t, in)[DeviceVolume].P99Seconds
	in.Seconds /= 16
	parallel := predict(t, in)[DeviceVolume].P99Seconds
	if parallel.Low >= alone.Low || parallel.High <= alone.High {
		t.Errorf("with 16 threads %+v, with one %+v", parallel, alone)
	}
}

// Known quantiles: of exponentially distributed times, and of the two that bound them.
func TestShapesOfUnknownCalls(t *testing.T) {
	for q, want := range map[float64]Range{0.5: {0.548, 0.693, 0.839}, 0.99: {3.319, 4.605, 7.220}} {
		if got := shape(q); math.Abs(got.Low-want.Low) > 0.001 || math.Abs(got.Median-want.Median) > 0.001 || math.Abs(got.High-want.High) > 0.001 {
			t.Errorf("quantile %g: %+v, want %+v", q, got, want)
		}
	}
}
