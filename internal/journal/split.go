package journal

import (
	"math/bits"
	"slices"
)

// Split divides total among the keys of parts in proportion to their positive
// values; the sum of the result is total. Keys with a value of zero or less get
// nothing. Without a positive value, everything goes to the root cgroup.
// Remainders go to the largest fractions, ties to the smallest key, so that the
// result does not depend on map order.
func Split(total uint64, parts map[uint64]int64) map[uint64]uint64 {
	keys := make([]uint64, 0, len(parts))
	var sum uint64
	for key, value := range parts {
		if value > 0 {
			keys = append(keys, key)
			sum += uint64(value)
		}
	}
	if total == 0 {
		return nil
	}
	if sum == 0 {
		return map[uint64]uint64{RootCgroupID: total}
	}
	slices.Sort(keys)
	type fraction struct{ key, remainder uint64 }
	fractions := make([]fraction, len(keys))
	out := make(map[uint64]uint64, len(keys))
	left := total
	for i, key := range keys {
		high, low := bits.Mul64(total, uint64(parts[key]))
		quotient, remainder := bits.Div64(high, low, sum)
		out[key] = quotient
		left -= quotient
		fractions[i] = fraction{key, remainder}
	}
	slices.SortStableFunc(fractions, func(a, b fraction) int {
		switch {
		case a.remainder > b.remainder:
			return -1
		case a.remainder < b.remainder:
			return 1
		}
		return 0
	})
	for i := range left { // fewer than len(keys)
		out[fractions[i].key]++
	}
	return out
}
