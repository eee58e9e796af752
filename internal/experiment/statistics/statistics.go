package statistics

import (
	"math"
	"math/rand/v2"
	"slices"
)

func Median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// resamples are enough for a 95 % range.
const resamples = 4000

// Bootstrap returns the 95 % range of the median: the range of the medians of
// samples drawn from the values. The same values give the same range.
func Bootstrap(values []float64) (low, high float64) {
	source := rand.New(rand.NewPCG(1, uint64(len(values))))
	medians := make([]float64, resamples)
	drawn := make([]float64, len(values))
	for n := range medians {
		for i := range drawn {
			drawn[i] = values[source.IntN(len(values))]
		}
		medians[n] = Median(drawn)
	}
	slices.Sort(medians)
	return medians[resamples*25/1000], medians[resamples*975/1000-1]
}

// Spread is the median, the minimum and the maximum over rounds.
type Spread struct {
	Median float64 `json:"median"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
}

// SpreadBy is the spread of a value of each round.
func SpreadBy[Round any](rounds []Round, value func(Round) float64) Spread {
	values := make([]float64, len(rounds))
	for n, round := range rounds {
		values[n] = value(round)
	}
	return SpreadOf(values)
}

// SpreadOf is the spread of values; zero if there is none.
func SpreadOf(values []float64) Spread {
	if len(values) == 0 {
		return Spread{}
	}
	return Spread{Median: Median(values), Low: slices.Min(values), High: slices.Max(values)}
}

// Ratio returns a/b, or NaN if b is 0.
func Ratio(a, b float64) float64 {
	if b == 0 {
		return math.NaN()
	}
	return a / b
}
