package law

import (
	"math"
	"slices"
)

// The constants of the sibling that has no limit and can use no more all the same.
const (
	// The sibling without a limit is saturated if it takes less than gainPart of
	// what the others gave up, while they gave up more than gaveUpPart of what they
	// had. Its requests come one after the other, or its seeks take much of the
	// disk's time. Then the others get spareGrowth of the disk more in each step
	// while it keeps keptPart of what it had, or, if its bytes are costly, while what all
	// have is worth worthPart of the best since; and spareLoss less otherwise. After
	// lostSeconds of that it is no longer saturated. Its bytes are costly if it had less than
	// reachPart of its share, or if the others get costlyPart times what it loses.
	gainPart, gaveUpPart, spareGrowth, spareLoss, lostSeconds = 0.1, 0.1, 0.1, 0.04, 6.0
	keptPart, worthPart, reachPart, costlyPart                = 0.95, 0.98, 0.75, 4.0
	// If it has less than evenPart of its mean of several seconds, the disk does less for all, as
	// while it writes a commit. That shows nothing.
	evenPart = 0.95
	// regainSeconds is the time of less for the others after which it must have helped.
	regainSeconds = 2.0
	// otherPart of the best, in one step, says that the check must start again.
	otherPart = 1.2
	// It was not saturated if the others have refuteGain more than before, and it
	// has less by refutePart of that.
	refuteGain, refutePart = 0.03, 0.5
)

// saturation is the state of a sibling that can use no more although it always has requests
// outstanding.
type saturation struct {
	// saturatedRate is its charged rate when that was found, saturatedHidden that of its hidden
	// I/O, and besideRate that of all else then: the others, and all hidden I/O. 0 means that it is
	// not saturated.
	saturatedRate, saturatedHidden, besideRate float64
	// trial: it was not found, but the others have more for a moment, so that the check begins anew.
	trial bool
	// bestWorth is the most that what it and the others have since was worth, bestFree and
	// bestOthers are these rates. losing: it is less now. lostSeconds is the time of that, less the
	// time in which it was not.
	bestWorth, bestFree, bestOthers float64
	lostSeconds                     float64
	losing                          bool
	// losingSeconds is how long it has been less, losingWorth what it was at the start of that.
	losingSeconds, losingWorth float64
	// lost: it was less before, so what the others get more is small.
	lost bool
}

// rates returns the rates of the sibling without a limit and of all else, by one of
// their means. Hidden I/O counts: what the others give up to it, the sibling cannot
// have.
func (l *LimitLaw) rates(active []limitedSibling, of func(*limitMemory) (charged, hidden float64)) (free, others float64) {
	for _, s := range active {
		charged, hidden := of(s.m)
		others += hidden
		if s.o.ID == l.free {
			free = charged
		} else {
			others += charged
		}
	}
	return free, others
}

// ratesNow are those of this moment.
func (m *limitMemory) ratesNow() (charged, hidden float64) {
	return m.now.Rate(), m.nowHidden.Rate()
}

// ratesEven are those of this moment without the bursts of hidden I/O, which come with commits.
func (m *limitMemory) ratesEven() (charged, hidden float64) { return m.now.Rate(), m.hidden.Rate() }

// ratesLately are the means of several seconds.
func (m *limitMemory) ratesLately() (charged, hidden float64) {
	return m.charged.Rate(), m.hidden.Rate()
}

// compareFrom stores the rates with which later ones are compared.
func (l *LimitLaw) compareFrom(free, others float64) {
	l.freeSeconds, l.freeRate, l.othersRate = 0, free, others
}

// lookAtFree detects that limits on the others have no effect: the sibling without
// a limit does not use what they give up. A slower disk is not mistaken for this:
// there the others do not reach their limits.
func (l *LimitLaw) lookAtFree(seconds float64, active []limitedSibling) {
	m := l.memory[l.free]
	if m == nil || !m.wanting {
		return
	}
	free, others := l.rates(active, (*limitMemory).ratesNow)
	share := shareOf(l.free, active)
	l.trials.add(free+others, seconds)
	if share != l.freeShare {
		// Others are active, or the configuration is another one.
		l.freeShare, m.lost = share, false
		m.bestWorth = l.worth(m.bestFree, m.bestOthers)
	}
	if m.trial {
		if l.freeSeconds += seconds; l.freeSeconds >= 2*nowSeconds {
			l.endTrial(l.free)
			l.compareFrom(free, others)
		}
		return
	}
	if m.saturatedRate > 0 {
		_, beside := l.rates(active, (*limitMemory).ratesEven)
		worth := l.worth(free, beside)
		// Nothing that limits do makes such a step: the disk is another one, or the container.
		costly := l.costly(free, beside)
		other := m.bestWorth > 0 && worth > otherPart*m.bestWorth && costly
		if worth > m.bestWorth {
			m.best(worth, free, beside)
		}
		if m.losing = free < keptPart*m.saturatedRate && !(costly && worth >= worthPart*m.bestWorth); m.losing {
			m.lost = true
			m.lostSeconds += seconds
			m.regain(worth, free, beside, seconds)
		} else {
			m.losingSeconds = 0
			m.lostSeconds = math.Max(0, m.lostSeconds-seconds)
		}
		l.freeSeconds += seconds
		if m.lostSeconds < lostSeconds && !other && free <= m.demand+LeastLimit && !l.refuted(active) {
			return
		}
		m.forgetSaturation()
		l.compareFrom(free, others)
		return
	}
	if !l.othersThrottled(active) {
		l.compareFrom(free, others)
		return
	}
	if l.freeSeconds += seconds; l.freeSeconds < 2*nowSeconds || free < evenPart*m.charged.Rate() {
		return
	}
	gaveUp := l.othersRate - others
	switch {
	case gaveUp > gaveUpPart*l.othersRate && free-l.freeRate < gainPart*gaveUp:
		m.saturate(l.rates(active, (*limitMemory).ratesEven))
		l.compareFrom(l.rates(active, (*limitMemory).ratesLately))
	case l.trials.due():
		l.trials.begin()
		m.saturate(l.rates(active, (*limitMemory).ratesEven))
		m.trial = true
		l.compareFrom(free, others)
	}
}

// saturate enters that it can use no more than it has now, beside that rate of the others.
func (m *limitMemory) saturate(free, beside float64) {
	m.saturation = saturation{saturatedRate: free, saturatedHidden: m.hidden.Rate(), besideRate: beside}
	m.demand = demandRoom * free
}

// forgetSaturation enters that it is not known what it can use.
func (m *limitMemory) forgetSaturation() { m.saturation, m.demand = saturation{}, 0 }

// regain enters a step in which the others have less than before because what all have was worth
// less than the best. If that does not help, the best was noise, or the disk is another one now.
func (m *limitMemory) regain(worth, free, beside, seconds float64) {
	if m.losingSeconds == 0 {
		m.losingWorth = worth
	}
	if m.losingSeconds += seconds; m.losingSeconds >= regainSeconds && worth <= m.losingWorth {
		m.best(worth, free, beside)
		m.losingSeconds = 0
	}
}

// best enters the rates that are the best.
func (m *limitMemory) best(worth, free, beside float64) {
	m.bestWorth, m.bestFree, m.bestOthers = worth, free, beside
}

// worth is what the rates of the sibling without a limit and of the others are worth, as a
// ratio to those of the time at which it was found to be saturated: their mean with the shares
// as exponents, which proportional fairness maximizes. A sibling whose rate does not depend on
// what the others do keeps its own; one whose each request waits for theirs loses some of it,
// and not more than its share of the disk's time is worth.
func (l *LimitLaw) worth(free, others float64) float64 {
	m := l.memory[l.free]
	if !(m.saturatedRate > 0 && m.besideRate > 0) {
		return 0
	}
	return math.Pow(free/m.saturatedRate, l.freeShare) * math.Pow(others/m.besideRate, 1-l.freeShare)
}

// costly reports whether bytes of the sibling without a limit cost the disk more than those of the
// others. It had less than reachPart of its share when it was found to be saturated, though the
// others had given up much; or they have had costlyPart times what it has lost since. Otherwise it
// lost what they took.
func (l *LimitLaw) costly(free, beside float64) bool {
	m := l.memory[l.free]
	if m.saturatedRate+m.saturatedHidden < reachPart*l.freeShare*(m.saturatedRate+m.besideRate) {
		return true
	}
	return beside-m.besideRate >= costlyPart*(m.saturatedRate-free)
}

// Beyond is a sibling that cannot have its share: it could use no more when the others had given up
// much. Share is that share, as a part of what all siblings do that are active. Rate and Total are
// what it and all of them do, hidden I/O included, in bytes per second, in means of several seconds.
type Beyond struct {
	ID          string
	Share       float64
	Rate, Total float64
}

// OutOfReach gives the sibling that cannot have its share, if there is one.
func (l *LimitLaw) OutOfReach() (b Beyond, ok bool) {
	m := l.memory[l.free]
	if m == nil || !(m.saturatedRate > 0) {
		return Beyond{}, false
	}
	b = Beyond{ID: l.free, Share: l.freeShare}
	for id, other := range l.memory {
		rate := other.throughput()
		if b.Total += rate; id == b.ID {
			b.Rate = rate
		}
	}
	return b, b.Rate < reachPart*b.Share*b.Total
}

// shareOf is the part that a sibling's ideal is of those of all that are active.
func shareOf(id string, active []limitedSibling) float64 {
	var own, ideals float64
	for _, s := range active {
		if ideals += s.o.Ideal; s.o.ID == id {
			own = s.o.Ideal
		}
	}
	return own / ideals
}

// refuted reports whether the sibling without a limit could use more after all:
// what the others gained since it counts as saturated, it lost. Its rate before is
// the mean of several seconds, because a sibling that calls fsync does I/O in
// bursts.
func (l *LimitLaw) refuted(active []limitedSibling) bool {
	if l.freeSeconds < limitMeanSeconds {
		return false
	}
	free, others := l.rates(active, (*limitMemory).ratesLately)
	gained := others - l.othersRate
	return gained > refuteGain*l.othersRate && l.freeRate-free > refutePart*gained
}

// othersThrottled reports whether other siblings want more, and all of these reach their
// limits. While none wants more, what they get shows nothing about their limits.
func (l *LimitLaw) othersThrottled(active []limitedSibling) bool {
	others := slices.DeleteFunc(slices.Clone(active), func(s limitedSibling) bool { return s.o.ID == l.free || !s.m.wanting })
	return len(others) > 0 && !slices.ContainsFunc(others, func(s limitedSibling) bool { return !s.m.throttled() })
}

// spare is what the disk can do beyond its current throughput, in bytes per second,
// because the sibling without a limit can use no more. It is negative while that
// sibling loses.
func (l *LimitLaw) spare(total float64, active []limitedSibling) float64 {
	m := l.memory[l.free]
	if m == nil || m.saturatedRate == 0 {
		return 0
	}
	spare := math.Max(0, m.demand-m.now.Rate())
	switch {
	case m.losing:
		spare = -spareLoss * total
	case l.othersThrottled(active) && m.lost:
		spare += spareLoss * total
	case l.othersThrottled(active):
		spare += spareGrowth * total
	}
	return spare
}
