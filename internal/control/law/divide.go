package law

import "math"

// Claim is the part of a divided disk that one sibling can use.
type Claim struct {
	Ideal float64
	// Least is what it gets whatever its weight; Most is what it can use.
	Least, Most float64
}

// Level divides total among the claims max-min fairly: each gets its ideal times
// one common level, but at least its least and at most its most. If the sum of all
// leasts exceeds total, each gets its least.
func Level(total float64, claims []Claim) []float64 {
	parts := make([]float64, len(claims))
	fill := func(at float64) (sum float64) {
		for n, c := range claims {
			parts[n] = math.Max(c.Least, math.Min(c.Most, at*c.Ideal))
			sum += parts[n]
		}
		return sum
	}
	low, high := 0.0, 1.0
	for range 200 {
		if fill(high) >= total {
			break
		}
		low, high = high, 2*high
	}
	for range 100 {
		middle := low + (high-low)/2
		if fill(middle) < total {
			low = middle
		} else {
			high = middle
		}
	}
	fill(high)
	return parts
}

// keepDebts records how much each sibling had in this interval beyond its due, and
// keeps the debts balanced and bounded. In a step in which the disk stops, debts stay. lasting is
// the hidden I/O of a sibling that is no burst, in bytes per second: nothing prevents it, so it is
// no debt.
func keepDebts(seconds float64, active []*sibling, weights Range, lasting func(*memory) float64) {
	var total, lately, leasts float64
	claims := make([]Claim, len(active))
	for n, s := range active {
		had := s.o.OtherBytes + s.o.Journal()
		total += had
		lately += s.throughput()
		// This is the mean of the hidden I/O, not that of this interval. A burst
		// beyond the share is a debt. No weight can correct a lasting excess.
		claims[n] = Claim{Ideal: s.o.Ideal, Least: lasting(s.memory) * seconds, Most: math.Inf(1)}
		if s.limited {
			claims[n].Most = math.Max(claims[n].Least, had)
		}
		leasts += claims[n].Least
	}
	if leasts > total { // the dues of a step are what was done in it
		for n := range claims {
			claims[n].Least *= total / leasts
		}
	}
	due := Level(total, claims)
	fade, stay := math.Exp(-seconds/debtSeconds), math.Exp(-seconds/recentSeconds)
	// A long step, as after a pause of the process, is most of an interval that is over.
	old := seconds > 2*recentSeconds
	var late float64
	for n, s := range active {
		repaid := s.arrearsRate * seconds
		now, later := s.excess(s.o.OtherBytes+s.o.Journal()-(due[n]-repaid), seconds, weights)
		s.arrearsBytes = s.arrearsBytes*fade - repaid + (s.debtBytes+s.lateBytes)*(1-stay)
		s.debtBytes *= stay
		if old {
			s.arrearsBytes += now
		} else {
			s.debtBytes += now
		}
		s.lateBytes = s.lateBytes*stay + later
		if late += later; s.limited {
			s.forgive() // it was offered more than it used
		}
	}
	lackLate(late, active, weights)
	bound := maxDebtSeconds * math.Max(lately, total/seconds)
	balance(active, bound, func(m *memory) *float64 { return &m.debtBytes })
	balance(active, bound, func(m *memory) *float64 { return &m.lateBytes })
	balance(active, bound, func(m *memory) *float64 { return &m.arrearsBytes })
}

// excess divides what a sibling had beyond its due into a debt and what is repaid later.
// With the least weight, charged I/O is neither, because nothing could prevent it. A burst
// of writeback beyond the share often lasts for most of an interval. Nothing can correct
// that interval, and to repay all of it in the next one would make that one wrong, too.
func (s *sibling) excess(bytes, seconds float64, weights Range) (now, later float64) {
	if bytes <= 0 || !s.atLeast(weights) {
		return bytes, 0
	}
	hidden := math.Max(0, bytes-s.unavoidable(seconds, weights))
	now = math.Min(hidden, s.commitBytes(seconds))
	return now, hidden - now
}

// lackLate moves what the others lacked because of late bytes out of their debts: they get
// it when it is repaid.
func lackLate(late float64, active []*sibling, weights Range) {
	lacks := func(s *sibling) bool { return !s.limited && !s.atLeast(weights) }
	var ideals float64
	for _, s := range active {
		if lacks(s) {
			ideals += s.o.Ideal
		}
	}
	for _, s := range active {
		if lacks(s) {
			part := late * s.o.Ideal / ideals
			s.debtBytes += part
			s.lateBytes -= part
		}
	}
}

// atLeast reports whether it had no smaller weight to get in the interval.
func (s *sibling) atLeast(weights Range) bool {
	return s.floored || s.o.Weight <= float64(weights.Min)
}

// unavoidable is the charged I/O, in bytes, that a sibling had because its weight was at
// its least. Hidden I/O is not in it.
func (s *sibling) unavoidable(seconds float64, weights Range) float64 {
	if s.o.Weight <= float64(weights.Min) {
		return s.o.OtherBytes
	}
	return math.Min(s.o.OtherBytes, s.leastRate*seconds)
}

// commitBytes is what a sibling logged beyond its mean. A commit's log is written for one to
// three seconds. The law lowers the weight to its least because of the first one, and what
// comes after that is a debt, too.
func (s *sibling) commitBytes(seconds float64) float64 {
	mean := s.hidden.Rate() - s.writeback.Rate()
	return math.Max(0, s.o.Journal()-s.o.writeback()-mean*seconds)
}

// balance adjusts the debts, within their bounds, so that they add up to zero.
func balance(active []*sibling, bound float64, of func(*memory) *float64) {
	var sum, bearers float64
	for _, s := range active {
		if !s.limited {
			sum += *of(s.memory)
			bearers += s.o.Ideal
		}
	}
	for _, s := range active {
		if !s.limited {
			debt := of(s.memory)
			*debt = within(bound, *debt-sum*s.o.Ideal/bearers)
		}
	}
}

// divide returns the charged I/O that each sibling should have in the coming
// interval.
func divide(seconds float64, active []*sibling) {
	var total float64
	configured := make([]Claim, len(active))
	usable := make([]Claim, len(active))
	for n, s := range active {
		had := s.throughput()
		total += had
		configured[n] = Claim{Ideal: s.o.Ideal, Least: s.expected(), Most: math.Inf(1)}
		usable[n] = configured[n]
		if s.limited {
			usable[n].Most = had
		}
	}
	total = throughBurst(total, active)
	entitled, given := Level(total, configured), Level(total, usable)
	for n, s := range active {
		s.floored, s.leaves = false, s.limited
		s.fair = math.Max(entitled[n]-s.expected(), leastByWeight.Of(entitled[n], total))
		if s.limited {
			s.arrearsRate = 0
			s.want = entitled[n] - s.expected()
			continue
		}
		s.want = s.due(given[n], entitled[n], total, seconds, leastByWeight)
	}
}

// throughBurst returns the throughput that is divided, in bytes per second: total, the mean of what
// the disk did. If more than half of it is expected to be hidden I/O, it is what the disk did lately,
// if that is more: the kernel writes metadata in place faster than containers read that seek.
func throughBurst(total float64, active []*sibling) float64 {
	var expected, all float64
	for _, s := range active {
		expected += s.expected()
		all += s.all.Rate()
	}
	if expected > total/2 {
		return math.Max(total, all)
	}
	return total
}

// due returns the charged I/O that a sibling should have if it gets part of total,
// all in bytes per second: its part, less its hidden I/O and less its repayment in
// this step, but at least the bound.
func (s *sibling) due(given, entitled, total, seconds float64, bound Least) float64 {
	most := total * repayPerSecond / math.Max(1, seconds)
	s.arrearsRate = within(ArrearsPart*total, s.arrearsBytes/math.Max(arrearsSeconds, repaySteps*seconds))
	want := given - s.expected() - s.arrearsRate - within(most, s.debtBytes/(repaySteps*seconds))
	if held := bound.Of(entitled, total); want < held {
		want, s.floored, s.leastRate = held, true, LeastHeld.Of(entitled, total)
	}
	return want
}

func within(bound, x float64) float64 { return math.Max(-bound, math.Min(bound, x)) }

// weigh turns wanted rates into weights, from the scheduler's responses so far.
func (f *Feedback) weigh(active []*sibling) {
	best := math.Inf(-1)
	for _, s := range active {
		best = math.Max(best, s.response)
	}
	var ideals float64
	wanted := make([]float64, len(active))
	for n, s := range active {
		boost := math.Exp(best - s.response)
		s.limited = boost >= maxBoost && s.charged.Rate() < 0.9*s.want
		wanted[n] = s.want * math.Min(boost, maxBoost)
		ideals += s.o.Ideal
	}
	keepOdds(active, wanted)
	for n, weight := range fit(wanted, ideals, f.weights) {
		active[n].weight = weight
	}
	if !worthWriting(active, ideals) {
		for _, s := range active {
			s.weight = f.weights.Clamp(s.o.Weight)
		}
	}
}

// keepOdds lowers what the others are to have until a sibling that leaves them a part of its share
// has no less, for what they have, than the ideals say. They are given that part, so that they would
// have most of the weights. But it may leave it because it waits, as for its syncs: a lower weight
// makes its waits longer.
func keepOdds(active []*sibling, wanted []float64) {
	var others, fair float64
	boost := math.Inf(1)
	for n, s := range active {
		switch {
		case !s.leaves:
			others += wanted[n]
			fair += s.fair
		case s.want > 0:
			boost = math.Min(boost, wanted[n]/s.want)
		}
	}
	if math.IsInf(boost, 1) || others <= boost*fair {
		return
	}
	for n, s := range active {
		if !s.leaves {
			wanted[n] *= boost * fair / others
		}
	}
}

// fit scales wanted to add up to sum within the range. Where the greatest
// would exceed the range, the ratios are kept and the sum is not.
func fit(wanted []float64, sum float64, r Range) []float64 {
	claims := make([]Claim, len(wanted))
	var greatest float64
	for n, w := range wanted {
		greatest = math.Max(greatest, w)
		claims[n] = Claim{Ideal: w, Least: float64(r.Min), Most: math.Inf(1)}
	}
	if greatest == 0 {
		greatest = 1
	}
	for n := range claims {
		claims[n].Ideal /= greatest // in 0..1, so that the next steps cannot overflow
	}
	fitted := Level(sum, claims)
	over := false
	for _, w := range fitted {
		over = over || w > float64(r.Max)
	}
	for n := range fitted {
		if over {
			fitted[n] = float64(r.Max) * claims[n].Ideal
		}
		fitted[n] = r.Clamp(fitted[n])
	}
	return fitted
}

// worthWriting compares the shares of the new weights with those in force.
func worthWriting(active []*sibling, ideals float64) bool {
	var before, after, moved float64
	for _, s := range active {
		before += s.o.Weight
		after += s.weight
	}
	if math.Abs(before-ideals) > 0.5 && math.Abs(after-ideals) <= 0.5 {
		return true // the sum must be corrected: siblings came, left or became active
	}
	for _, s := range active {
		moved += math.Abs(s.weight/after - s.o.Weight/before)
	}
	return moved/2 > deadBand
}
