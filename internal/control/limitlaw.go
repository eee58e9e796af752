package control

import (
	"cmp"
	"math"
	"slices"
)

// The constants of the limit law; docs/control.md says how they were chosen.
const (
	// limitMeanSeconds is the memory of charged rates, and so of what the disk
	// gives: short, because a limit that is too low costs throughput.
	limitMeanSeconds = 5.0
	// nowSeconds is the memory of what a sibling does now.
	nowSeconds = 1.5
	// splitSeconds is the memory of what was read and what was written, by which a
	// limit is divided: a container that changes from one to the other has its limit
	// within a second.
	splitSeconds = 0.4
	// throttledPart of its limit is what a sibling gets that the limit holds back.
	throttledPart = 0.85
	// wantingPart is the part of the time with requests outstanding from which a
	// sibling could use more.
	wantingPart = 0.7
	// demandRoom is how much more than now a sibling may want in the next step
	// that did not want more, and demandGrowth by how much that grows in a second
	// in which it does, up to demandReach of what it is charged.
	demandRoom, demandGrowth, demandReach = 1.1, 1.5, 1.5
	// freeGap is the part of the disk that another sibling must lack, more than the one
	// without a limit does, to get its place.
	freeGap = 0.03
	// A sibling without a limit that takes less than gainPart of what the others gave
	// up, when that is more than gaveUpPart of what they had, can use no more: its
	// requests come one after the other, or its seeks make bytes dear. Then the
	// others get spareGrowth of the disk more in each step while it keeps keptPart
	// of what it had, and spareLoss less while it does not; after lostSeconds of that
	// it counts as any other again.
	gainPart, gaveUpPart, spareGrowth, spareLoss, keptPart, lostSeconds = 0.1, 0.1, 0.1, 0.04, 0.95, 6.0
	// It was none such if the others have refuteGain more than before, and it has less by
	// refutePart of that.
	refuteGain, refutePart = 0.03, 0.5
	// leastLimit is the lowest limit, in bytes per second: the kernel lets a
	// request through only when it fits, so that one of 1 MiB waits for 2 s.
	leastLimit = 512 << 10
)

// LimitLaw says how many bytes a second siblings may be charged for, so that
// charged and hidden I/O together come out in the ratio of their ideals,
// whatever the scheduler does. It divides as [Feedback] does: max-min fairly,
// with debts.
//
// What the disk can do is not known, and changes. So one sibling, the one that
// has least of what is due to it, has no limit: what the disk gives beyond the
// others' limits is served to it at once, the measured total grows, and with it
// all limits. A sibling without backlog is no candidate, and what it leaves goes
// to the others.
type LimitLaw struct {
	memory map[string]*limitMemory
	// free is the sibling without a limit. freeRate is what it, and othersRate what
	// the others were charged per second before the others ran into their limits, or
	// when it turned out to be saturated, freeSeconds ago.
	free                 string
	freeRate, othersRate float64
	freeSeconds          float64
}

// limitMemory is what the law knows of one sibling.
type limitMemory struct {
	memory
	// now is what it is charged now, busy the part of the time in which it had
	// requests outstanding.
	now, busy mean
	// idleSeconds is the time since one of its requests ended, unsyncedSeconds that
	// since a sync of its started a commit.
	idleSeconds, unsyncedSeconds float64
	// wanting: it could use more; demand is what it can use at most, in bytes per
	// second, 0: not known.
	wanting bool
	demand  float64
	// saturatedRate is what it was charged per second when it turned out that it can
	// use no more though it has requests outstanding all the time; 0: it did not.
	saturatedRate float64
	// lostSeconds is how long it has had less than that.
	lostSeconds float64
	// limit is what was said last, 0: none.
	limit float64
}

// NewLimitLaw makes one.
func NewLimitLaw() *LimitLaw { return &LimitLaw{memory: map[string]*limitMemory{}} }

// limits is a limit law that knows the rates and the debts of before.
func (f *Feedback) limits() *LimitLaw {
	l := NewLimitLaw()
	for id, m := range f.memory {
		known := &limitMemory{memory: *m, unsyncedSeconds: windowSeconds}
		known.limited, known.floored = false, false
		l.memory[id] = known
	}
	return l
}

// limitedSibling is one active sibling within one call of Next.
type limitedSibling struct {
	*sibling
	m        *limitMemory
	position int
}

// Next says the siblings' limits on charged bytes per second, 0 for none.
// Weights in the observations do not matter. It is called as [Law.Next] is.
func (l *LimitLaw) Next(seconds float64, siblings []Observation) []float64 {
	limits := make([]float64, len(siblings))
	if !(seconds > 0) || math.IsInf(seconds, 0) {
		return limits
	}
	active := l.observe(seconds, siblings)
	var wanting []limitedSibling
	plain := make([]*sibling, len(active))
	for n, s := range active {
		plain[n] = s.sibling
		if s.m.wanting {
			wanting = append(wanting, s)
		}
	}
	if len(active) < 2 || len(wanting) == 0 {
		for _, s := range active {
			s.forgive()
			s.limited, s.floored, s.m.limit = false, false, 0
		}
		l.free = ""
		return limits
	}
	l.lookAtFree(seconds, active)
	keepDebts(seconds, plain, Range{})
	total := l.divide(seconds, active)
	before := l.free
	l.choose(total, wanting)
	if l.free != before {
		l.compareFrom(l.rates(active, func(m *limitMemory) float64 { return m.now.rate() }))
	}
	for _, s := range active {
		s.m.limit = 0
		if s.o.ID != l.free {
			s.m.limit = math.Max(leastLimit, s.want)
		}
		limits[s.position] = s.m.limit
	}
	return limits
}

// rates are what the sibling without a limit, and all others, are charged per second,
// by one of their means.
func (l *LimitLaw) rates(active []limitedSibling, of func(*limitMemory) float64) (free, others float64) {
	for _, s := range active {
		if s.o.ID == l.free {
			free = of(s.m)
		} else {
			others += of(s.m)
		}
	}
	return free, others
}

// compareFrom takes the rates with which later ones are compared.
func (l *LimitLaw) compareFrom(free, others float64) {
	l.freeSeconds, l.freeRate, l.othersRate = 0, free, others
}

// lookAtFree notices that the others are held back for nothing: the sibling without
// a limit does not take what they give up. A disk that has become slower is no such
// case: then the others do not reach their limits.
func (l *LimitLaw) lookAtFree(seconds float64, active []limitedSibling) {
	m := l.memory[l.free]
	if m == nil || !m.wanting {
		return
	}
	free, others := l.rates(active, func(m *limitMemory) float64 { return m.now.rate() })
	if m.saturatedRate > 0 {
		if m.lostSeconds += seconds; free >= keptPart*m.saturatedRate {
			m.lostSeconds = 0
		}
		l.freeSeconds += seconds
		if m.lostSeconds < lostSeconds && free <= m.demand && !l.refuted(active) {
			return
		}
		m.saturatedRate, m.demand, m.lostSeconds = 0, 0, 0
		l.compareFrom(free, others)
		return
	}
	if !l.othersThrottled(active) {
		l.compareFrom(free, others)
		return
	}
	if l.freeSeconds += seconds; l.freeSeconds < 2*nowSeconds {
		return
	}
	gaveUp := l.othersRate - others
	if gaveUp > gaveUpPart*l.othersRate && free-l.freeRate < gainPart*gaveUp {
		m.saturatedRate, m.demand = free, demandRoom*free+leastLimit
		l.compareFrom(m.charged.rate(), others)
	}
}

// refuted reports whether the sibling without a limit could use more after all: the
// others took from it what they gained since it counts as saturated. What it had before
// is the mean of several seconds, for one that calls fsync works by fits and starts.
func (l *LimitLaw) refuted(active []limitedSibling) bool {
	if l.freeSeconds < limitMeanSeconds {
		return false
	}
	free, others := l.rates(active, func(m *limitMemory) float64 { return m.charged.rate() })
	gained := others - l.othersRate
	return gained > refuteGain*l.othersRate && l.freeRate-free > refutePart*gained
}

// othersThrottled reports whether all that want more, besides the one without a
// limit, run into their limits.
func (l *LimitLaw) othersThrottled(active []limitedSibling) bool {
	for _, s := range active {
		if s.o.ID != l.free && s.m.wanting && !s.throttled() {
			return false
		}
	}
	return true
}

// spare is what the disk can do beyond what it did, in bytes per second, because the
// sibling without a limit uses no more. It is negative while that sibling loses.
func (l *LimitLaw) spare(total float64, active []limitedSibling) float64 {
	m := l.memory[l.free]
	if m == nil || m.saturatedRate == 0 {
		return 0
	}
	spare := math.Max(0, m.demand-m.now.rate())
	switch {
	case m.lostSeconds > 0:
		spare = -spareLoss * total
	case l.othersThrottled(active):
		spare += spareGrowth * total
	}
	return spare
}

// observe takes the step into the memories and returns the active siblings by
// their names.
func (l *LimitLaw) observe(seconds float64, siblings []Observation) (active []limitedSibling) {
	known := make(map[string]*limitMemory, len(siblings))
	var ideals, total float64
	for _, o := range siblings {
		m := l.memory[o.ID]
		if m == nil {
			m = &limitMemory{unsyncedSeconds: windowSeconds}
		}
		known[o.ID] = m
		charged, ideal := m.add(o, seconds, limitMeanSeconds)
		ideals += ideal
		m.now.add(charged, seconds, nowSeconds)
		m.want(o, seconds)
		total += m.charged.rate() + m.hidden.rate()
	}
	l.memory = known
	for n, o := range siblings {
		m := known[o.ID]
		if m.quietSeconds >= windowSeconds || m.charged.rate() < idleShare*o.Ideal/ideals*total {
			m.forgive()
			m.limited, m.floored, m.limit, m.demand = false, false, 0, 0
			continue
		}
		active = append(active, limitedSibling{&sibling{memory: &m.memory, o: o}, m, n})
	}
	slices.SortFunc(active, func(a, b limitedSibling) int { return cmp.Compare(a.o.ID, b.o.ID) })
	return active
}

// want judges whether a sibling could use more than it has: it runs into its
// limit, or waits nearly all the time for the disk: for requests of its own or, if it
// calls fsync, for commits.
func (m *limitMemory) want(o Observation, seconds float64) {
	busy := 0.0
	m.idleSeconds += seconds
	if o.measured() && o.BusySeconds > 0 {
		// What ended now may have waited since the last one ended.
		busy = math.Min(o.BusySeconds, m.idleSeconds)
		m.idleSeconds = 0
	}
	if m.unsyncedSeconds += seconds; o.ForcedCommits > 0 {
		m.unsyncedSeconds = 0
	}
	if o.CommitSeconds > 0 && m.unsyncedSeconds < windowSeconds {
		// Both at once count once.
		busy = math.Max(busy, math.Min(busy+o.CommitSeconds, seconds))
	}
	m.busy.add(busy, seconds, nowSeconds)
	rate := m.now.rate()
	m.wanting = m.busy.rate() >= wantingPart || m.limit > 0 && rate >= throttledPart*m.limit
	switch {
	case !m.wanting:
		m.demand, m.saturatedRate, m.lostSeconds = demandRoom*rate+leastLimit, 0, 0
	case m.saturatedRate > 0:
	case m.demand > 0:
		m.demand = math.Max(math.Min(m.demand*math.Pow(demandGrowth, seconds), demandReach*rate+leastLimit), demandRoom*rate)
	}
}

// divide says what each sibling should be charged for in the coming step: who
// can use its share, as much as makes it come out right; who cannot, its share.
func (l *LimitLaw) divide(seconds float64, active []limitedSibling) (total float64) {
	var lately, now float64
	for _, s := range active {
		lately += s.charged.rate() + s.hidden.rate()
		now += s.m.now.rate() + s.hidden.rate()
	}
	total = math.Max(lately, now) // the disk gave it, so it can
	total += l.spare(total, active)
	configured := make([]claim, len(active))
	usable := make([]claim, len(active))
	for n, s := range active {
		configured[n] = claim{ideal: s.o.Ideal, least: s.expected(), most: math.Inf(1)}
		usable[n] = configured[n]
		if s.m.demand > 0 {
			usable[n].most = math.Max(usable[n].least, s.m.demand+s.expected())
		}
	}
	entitled, given := level(total, configured), level(total, usable)
	for n, s := range active {
		s.floored = false
		if s.limited = given[n] < entitled[n]*(1-deadBand); s.limited {
			s.arrearsRate = 0
			s.want = entitled[n] - s.expected()
			continue
		}
		s.want = s.due(given[n], entitled[n], total, seconds)
	}
	return total
}

// choose picks the sibling without a limit: the one that has least of what is
// due to it. It stays that, for one with a deep queue takes the disk when its
// limit ends, unless it could not use more or another has still less although it
// does not run into its limit. One that is held at the least already has too much: it
// is chosen only if no other wants more.
func (l *LimitLaw) choose(total float64, wanting []limitedSibling) {
	lacking := slices.DeleteFunc(slices.Clone(wanting), func(s limitedSibling) bool { return s.floored })
	if len(lacking) > 0 {
		wanting = lacking
	}
	free := slices.IndexFunc(wanting, func(s limitedSibling) bool { return s.o.ID == l.free })
	if free >= 0 {
		gap := math.Max(0, wanting[free].lack()) + freeGap*total
		wanting = slices.DeleteFunc(slices.Clone(wanting), func(s limitedSibling) bool { return s.throttled() || s.lack() < gap })
		if len(wanting) == 0 {
			return
		}
	}
	l.free = slices.MaxFunc(wanting, func(a, b limitedSibling) int { return cmp.Compare(a.lack(), b.lack()) }).o.ID
}

// lack is what is missing to it of what is due to it, in bytes per second. One that
// works by fits and starts, as one that calls fsync does, has it if it has it now or in
// the mean.
func (s limitedSibling) lack() float64 {
	return math.Min(s.want, s.most()) - math.Max(s.m.now.rate(), s.charged.rate())
}

// throttled reports whether it runs into its limit.
func (s limitedSibling) throttled() bool {
	return s.m.limit > 0 && s.m.now.rate() >= throttledPart*s.m.limit
}

// most is what it can use, in bytes per second.
func (s limitedSibling) most() float64 {
	if s.m.demand > 0 {
		return s.m.demand
	}
	return math.Inf(1)
}
