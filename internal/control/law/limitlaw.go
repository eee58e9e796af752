package law

import (
	"cmp"
	"math"
	"slices"
)

// The constants of the limit law. docs/control-limits.md says how they were chosen.
const (
	// limitMeanSeconds is the time constant of charged rates, and so of the disk's
	// measured throughput. It is short, because a limit that is too low costs
	// throughput.
	limitMeanSeconds = 5.0
	// nowSeconds is the time constant of a sibling's current rate.
	nowSeconds = 1.5
	// SplitSeconds is the time constant of what was read and what was written, by
	// which a limit is divided. A container that changes from one to the other has
	// its limit within a second.
	SplitSeconds = 0.4
	// throttledPart: a sibling that gets at least this part of its limit is limited
	// by it.
	throttledPart = 0.85
	// servedPart: the disk limits one that waits for it in at least this part of the time.
	servedPart = 0.8
	// WantingPart: a sibling with requests outstanding for at least this part of
	// the time could use more.
	WantingPart = 0.7
	// demandRoom is how much more than now a sibling may want in the next step if
	// it did not want more. demandGrowth is the growth of that in a second in which
	// it does, up to demandReach of what it is charged, and to reachGrowth of that more in
	// each second after it has wanted more for patienceSeconds.
	demandRoom, demandGrowth, demandReach = 1.1, 1.5, 1.5
	patienceSeconds, reachGrowth          = 3.0, 0.5
	// freeGap: another sibling takes the place of the one without a limit only if
	// its lack is larger by this part of the disk, for lackingSeconds: a burst of the
	// journal is over sooner. It does not wait for that if the one without a limit has
	// more than its due by excessPart of the disk.
	freeGap, lackingSeconds, excessPart = 0.03, 2.5, 0.1
	// stalledSeconds is the longest time for which limits stay as they are because no request
	// of any sibling ended.
	stalledSeconds = 3.0
	// LeastLimit is the lowest limit, in bytes per second. The kernel lets a
	// request through only when all of it is within the limit, so one of 1 MiB
	// waits for 2 s.
	LeastLimit = 512 << 10
)

// LimitLaw computes how many bytes a second siblings may be charged for, so that
// charged and hidden I/O together match the ratio of their ideals, whatever the
// scheduler does. It divides as [Feedback] does: max-min fairly, with debts.
//
// The disk's throughput is not known, and it changes. So one sibling has no limit:
// the one that lacks most of its due. It gets at once what the disk can do beyond
// the others' limits. So the measured total grows, and with it all limits. A
// sibling without backlog is not chosen; what it leaves goes to the others.
type LimitLaw struct {
	memory map[string]*limitMemory
	// free is the sibling without a limit. freeRate is its rate, and othersRate the
	// charged rate of the others, of freeSeconds ago: before the others reached
	// their limits, or when it was found to be saturated.
	free                 string
	freeRate, othersRate float64
	freeSeconds          float64
	// freeShare is its share, as configured, among those that are active.
	freeShare float64
	trials    trials
	// stalled is the time in seconds since a request of any sibling ended.
	stalled float64
}

// limitMemory is the state that the law keeps of one sibling.
type limitMemory struct {
	memory
	Waiting
	// now is its current charged rate, nowHidden that of its hidden I/O, busy the part of
	// the time in which it waited for the disk, and ownBusy that without commits.
	now, nowHidden, busy, ownBusy Mean
	// busyLately is busy over several seconds.
	busyLately Mean
	// wanting means that it could use more, or could lately. sinceWanting is the time in
	// seconds for which it could not, wantingSeconds that for which it has waited for the disk
	// over several seconds without being saturated. demand is the most that it can use, in bytes
	// per second; 0 means not known.
	wanting                      bool
	sinceWanting, wantingSeconds float64
	// reached: it was charged what its limit allows in the last step.
	reached bool
	demand  float64
	saturation
	// limit is the last result, 0 for none. offered is the mean of the limits, with the
	// time constant of now: what it could have been charged in that time.
	limit   float64
	offered Mean
	// lacking is the time in seconds for which it has lacked more than the sibling without a
	// limit.
	lacking float64
}

// NewLimitLaw returns a limit law without a memory.
func NewLimitLaw() *LimitLaw { return &LimitLaw{memory: map[string]*limitMemory{}} }

// Limits is a limit law that has the rates of another law. It does not have the debts:
// they come from a time in which the shares were missed, and repaying them would miss
// more. But the sibling to which most is owed is the first one without a limit: a single step,
// which may be that of a commit, does not show who lacks most.
func (f *Feedback) Limits() *LimitLaw {
	l := NewLimitLaw()
	var most float64
	for id, m := range f.memory {
		if owed := -m.debtBytes - m.arrearsBytes; owed > most || owed == most && owed > 0 && id < l.free {
			most, l.free = owed, id
		}
		known := &limitMemory{memory: *m, Waiting: NewWaiting(), wanting: true}
		known.limited, known.floored = false, false
		known.forgive()
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

// Next returns the siblings' limits on charged bytes per second, 0 for none. It
// ignores the weights in the observations. It is called as [Law.Next] is.
func (l *LimitLaw) Next(seconds float64, siblings []Observation) []float64 {
	limits := make([]float64, len(siblings))
	if !(seconds > 0) || math.IsInf(seconds, 0) {
		return limits
	}
	stalled := l.isStalled(seconds, siblings)
	active := l.observe(seconds, siblings, stalled)
	var wanting []limitedSibling
	plain := make([]*sibling, len(active))
	for n, s := range active {
		plain[n] = s.sibling
		if s.m.wanting {
			wanting = append(wanting, s)
		}
	}
	if stalled {
		if allMeasured(siblings) {
			l.keepDebts(seconds, plain)
		}
		for n, o := range siblings {
			limits[n] = l.memory[o.ID].limit
		}
		return limits
	}
	if len(active) < 2 || len(wanting) == 0 {
		for _, s := range active {
			s.forgive()
			s.limited, s.floored, s.m.limit = false, false, 0
			s.m.forgetSaturation()
		}
		l.free = ""
		return limits
	}
	l.lookAtFree(seconds, active)
	l.keepDebts(seconds, plain)
	total := l.divide(seconds, active, plain)
	before := l.free
	l.choose(seconds, total, wanting)
	if l.free != before {
		l.endTrial(before)
		l.compareFrom(l.rates(active, (*limitMemory).ratesNow))
	}
	for _, s := range active {
		s.m.limit = 0
		if s.o.ID != l.free {
			s.m.limit = math.Max(LeastLimit, s.want)
		}
		limits[s.position] = s.m.limit
	}
	return limits
}

// isStalled reports whether limits are in force, and the step does not show who could use more: no
// request of any sibling ended, because the disk writes a commit or metadata in place, or an
// observation is no measurement. If that takes longer, the siblings are idle.
func (l *LimitLaw) isStalled(seconds float64, siblings []Observation) bool {
	limited := slices.ContainsFunc(siblings, func(o Observation) bool { return l.memory[o.ID] != nil && l.memory[o.ID].limit > 0 })
	if l.stalled += seconds; !limited || !NoneEnded(siblings) && allMeasured(siblings) {
		l.stalled = 0
	}
	return l.stalled > 0 && l.stalled <= stalledSeconds
}

// keepDebts records what each sibling had in the step beyond its due. Here a debt can leave
// the disk idle, so a burst of the first seconds makes none.
func (l *LimitLaw) keepDebts(seconds float64, active []*sibling) {
	keepDebts(seconds, active, Range{}, func(m *memory) float64 { return m.hidden.Rate() })
}

// observe enters the step in the memories and returns the active siblings, sorted
// by name. A step in which the disk was stalled shows only what it did.
func (l *LimitLaw) observe(seconds float64, siblings []Observation, stalled bool) (active []limitedSibling) {
	known := make(map[string]*limitMemory, len(siblings))
	var ideals, total float64
	burst := isBurst(siblings)
	for _, o := range siblings {
		m := l.memory[o.ID]
		if m == nil {
			m = &limitMemory{Waiting: NewWaiting()}
		}
		known[o.ID] = m
		charged, ideal := m.add(o, seconds, limitMeanSeconds)
		ideals += ideal
		if waited, own := m.In(o, seconds); !stalled {
			m.now.Add(charged, seconds, nowSeconds)
			m.nowHidden.Add(o.Journal(), seconds, nowSeconds)
			m.want(charged, waited, own, seconds, burst)
		}
		total += m.throughput()
	}
	l.memory = known
	for n, o := range siblings {
		m := known[o.ID]
		if !o.Measured() {
			if !stalled {
				m.limit = 0
			}
			continue
		}
		// One that waits for the disk all the time is not idle: it is starved.
		idle := m.charged.Rate() < idleShare*o.Ideal/ideals*total && m.ownBusy.Rate() < WantingPart
		if m.quietSeconds >= WindowSeconds || idle {
			m.forgive()
			m.limited, m.floored, m.limit, m.demand = false, false, 0, 0
			continue
		}
		active = append(active, limitedSibling{&sibling{memory: &m.memory, o: o}, m, n})
	}
	slices.SortFunc(active, func(a, b limitedSibling) int { return cmp.Compare(a.o.ID, b.o.ID) })
	return active
}

// isBurst reports whether most of what siblings did in a step was hidden I/O.
func isBurst(siblings []Observation) bool {
	var charged, hidden float64
	for _, o := range siblings {
		charged += o.OtherBytes
		hidden += o.Journal()
	}
	return hidden > charged
}

// want judges whether a sibling could use more than it has: it reaches its limit,
// or it waits for the disk nearly all the time. charged are the bytes of the step, waited and own
// are as [Waiting.In] returns them. burst: most of what the disk did was hidden I/O.
func (m *limitMemory) want(charged, waited, own, seconds float64, burst bool) {
	m.busy.Add(waited, seconds, nowSeconds)
	m.ownBusy.Add(own, seconds, nowSeconds)
	rate := m.now.Rate()
	if m.limit == 0 {
		m.offered = Mean{}
	} else {
		m.offered.Add(m.limit*seconds, seconds, nowSeconds)
	}
	m.busyLately.Add(waited, seconds, limitMeanSeconds)
	// Where requests take seconds, most steps do not show that it waits.
	lately := m.busyLately.Rate() >= WantingPart
	m.reached = m.limit > 0 && charged >= throttledPart*m.limit*seconds
	could := m.busy.Rate() >= WantingPart || m.throttled()
	m.sinceWanting += seconds
	if could {
		m.sinceWanting = 0
	}
	// A burst of the journal holds up its requests, and a wait is known when it ends.
	m.wanting = could || burst && m.wanting && m.sinceWanting <= nowSeconds
	if m.wantingSeconds += seconds; !lately || m.saturatedRate > 0 {
		m.wantingSeconds = 0
	}
	switch {
	case !could && m.sinceWanting <= nowSeconds:
		// Nor does such a step show that it wants less.
	case !could:
		m.demand, m.saturation = demandRoom*rate+LeastLimit, saturation{}
	case m.saturatedRate > 0:
	case m.demand > 0:
		// One that is starved cannot show by its rate that it wants more, only by its patience.
		reach := demandReach + math.Max(0, m.wantingSeconds-patienceSeconds)*reachGrowth
		m.demand = math.Max(math.Min(m.demand*math.Pow(demandGrowth, seconds), reach*rate+LeastLimit), demandRoom*rate)
	}
}

// divide returns the charged I/O that each sibling should have in the coming step.
// A sibling that can use its share gets what corrects its debts; another gets its
// share. plain are the same siblings as active.
func (l *LimitLaw) divide(seconds float64, active []limitedSibling, plain []*sibling) (total float64) {
	var lately, now float64
	for _, s := range active {
		lately += s.throughput()
		now += s.m.now.Rate() + s.hidden.Rate()
	}
	total = math.Max(lately, now) // the disk's throughput was enough for it
	total = throughBurst(total+l.spare(total, active), plain)
	configured := make([]Claim, len(active))
	usable := make([]Claim, len(active))
	for n, s := range active {
		configured[n] = Claim{Ideal: s.o.Ideal, Least: s.expected(), Most: math.Inf(1)}
		usable[n] = configured[n]
		if s.m.demand > 0 {
			usable[n].Most = math.Max(usable[n].Least, s.m.demand+s.expected())
		}
	}
	entitled, given := Level(total, configured), Level(total, usable)
	for n, s := range active {
		s.floored = false
		if s.limited = given[n] < entitled[n]*(1-deadBand); s.limited && s.m.reached {
			// Behind a commit it is held at low limits, and in the mean of its limits are
			// some that it could not use while the disk wrote the commit. So it looks as
			// if it wanted less. Its debts stay.
			s.limited, given[n] = false, entitled[n]
		}
		if s.limited {
			s.arrearsRate = 0
			s.want = entitled[n] - s.expected()
			continue
		}
		s.want = s.due(given[n], entitled[n], total, seconds, LeastHeld)
	}
	return total
}

// choose returns the sibling without a limit: the one that lacks most of its due.
// The choice stays, because a sibling with a deep queue takes the disk when its
// limit ends. It changes if the sibling could not use more, or if another lacks
// still more for some time and is not held by its limit. A sibling that is held at
// the least already has too much: it is chosen only if no other wants more.
func (l *LimitLaw) choose(seconds, total float64, wanting []limitedSibling) {
	lacking := slices.DeleteFunc(slices.Clone(wanting), func(s limitedSibling) bool { return s.floored })
	if len(lacking) > 0 {
		wanting = lacking
	}
	free := slices.IndexFunc(wanting, func(s limitedSibling) bool { return s.o.ID == l.free })
	if free >= 0 {
		wanting = l.instead(wanting[free], seconds, total, wanting)
		if len(wanting) == 0 {
			return
		}
	}
	l.free = slices.MaxFunc(wanting, func(a, b limitedSibling) int { return cmp.Compare(a.lack(), b.lack()) }).o.ID
	for _, m := range l.memory {
		m.lacking = 0
	}
}

// instead returns the siblings that may take the place of the one without a limit.
func (l *LimitLaw) instead(free limitedSibling, seconds, total float64, wanting []limitedSibling) (may []limitedSibling) {
	gap := math.Max(0, free.lack()) + freeGap*total
	needed := lackingSeconds
	if free.lack() <= -excessPart*total {
		needed = 0
	}
	lacking := make(map[string]float64, len(wanting))
	for _, s := range wanting {
		// What waits for the disk is held up by the disk, which serves it and the free one alike.
		held := s.m.throttled() && s.m.busy.Rate() < servedPart
		if held || s.lack() < gap {
			continue
		}
		lacking[s.o.ID] = s.m.lacking + seconds
		if lacking[s.o.ID] >= needed {
			may = append(may, s)
		}
	}
	for id, m := range l.memory {
		m.lacking = lacking[id]
	}
	return may
}

// lack is the part of its due that it does not get, in bytes per second. A sibling
// that does I/O in bursts, as one that calls fsync does, has its due if it has it
// now or in the mean.
func (s limitedSibling) lack() float64 {
	return math.Min(s.want, s.most()) - math.Max(s.m.now.Rate(), s.charged.Rate())
}

// throttled reports whether it reaches its limit. Limits go up and down with the
// bursts of the journal, so its rate is compared with the limits of the same time.
func (m *limitMemory) throttled() bool {
	return m.limit > 0 && m.now.Rate() >= throttledPart*m.offered.Rate()
}

// most is the most that it can use, in bytes per second.
func (s limitedSibling) most() float64 {
	if s.m.demand > 0 {
		return s.m.demand
	}
	return math.Inf(1)
}
