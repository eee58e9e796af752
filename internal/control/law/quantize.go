package law

import (
	"cmp"
	"math"
	"slices"
)

// Quantize rounds weights to integers of the range so that their sum is kept. The
// largest remainders are rounded up; of equal ones, that of the smallest ID first.
func Quantize(weights []float64, ids []string, r Range) []uint64 {
	rounded := make([]uint64, len(weights))
	remainder := make([]float64, len(weights))
	order := make([]int, len(weights))
	var sum float64
	var whole uint64
	for n, w := range weights {
		w = r.Clamp(w)
		// Slightly up, so that a computed 69.999999999 is 70.
		rounded[n] = uint64(math.Floor(w + 1e-9))
		remainder[n] = w - float64(rounded[n])
		order[n] = n
		sum += w
		whole += rounded[n]
	}
	slices.SortStableFunc(order, func(a, b int) int {
		if c := cmp.Compare(remainder[b], remainder[a]); c != 0 {
			return c
		}
		return cmp.Compare(ids[a], ids[b])
	})
	missing := math.Round(sum) - float64(whole)
	for _, n := range order {
		if missing < 1 {
			break
		}
		if rounded[n] < r.Max {
			rounded[n]++
			missing--
		}
	}
	return rounded
}

// finestSum: if the sum of ideals is smaller, one step of an integer weight is more
// than a hundredth of the disk. finestMean: if their mean is smaller, it is more than a
// tenth of most shares.
const finestSum, finestMean = 100, 10

// Scale is the whole factor by which siblings' ideal weights are multiplied
// before they are written, because weights are integers: with ideals 5 and 5
// one step would be a tenth of the disk. It is 1 where the ideals add up to
// 100 or more, and are 10 or more in the mean; only ratios matter among siblings.
func Scale(ideals []uint64, r Range) uint64 {
	var sum uint64
	for _, w := range ideals {
		sum += min(w, MaxWeight)
	}
	finest := max(finestSum, finestMean*uint64(len(ideals)))
	if sum == 0 || sum >= finest {
		return 1
	}
	wanted := (2*finest + sum - 1) / sum
	return max(1, min(wanted, r.Max/sum))
}
