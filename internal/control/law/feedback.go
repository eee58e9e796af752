package law

import (
	"cmp"
	"math"
	"slices"
)

// The constants of the feedback law. Times are in seconds, so that the law behaves
// the same with every interval. docs/control-law.md says how they were chosen.
const (
	// MeanSeconds is the time constant of the rates: a few of jbd2's periods of 5
	// s.
	MeanSeconds = 20.0
	// burstSeconds is the time constant for a burst of writeback. The kernel writes
	// in-place metadata once in 30 s, for many seconds at a time, so the last half
	// second predicts the next one. A step longer than burstStepSeconds would
	// respond after the burst is over, so it uses only the mean.
	burstSeconds, burstStepSeconds = 0.5, 1.5
	// responseSeconds is the time constant of the scheduler's response to a weight.
	responseSeconds = 24.0
	// responsePrior is the weight, in samples, of the assumption that the scheduler
	// follows its weights exactly. So the first noisy interval counts only half.
	responsePrior = 1.0
	// maxBoost limits the ratio between a weight and the weight that follows from
	// the account alone. A sibling that cannot use its share, or whose seeks take
	// much of the disk's time, is not raised further.
	maxBoost = 3.0
	// surprise is the ratio between two responses from which the difference is not
	// noise.
	surprise = 1.5
	// debtSeconds is how long a surplus or a lack is remembered.
	debtSeconds = 300.0
	// recentSeconds is how long a debt belongs to the current interval. It is
	// repaid at once, so that the interval still has the right shares. After that
	// it is arrears. They are repaid over arrearsSeconds with at most ArrearsPart
	// of the disk; a faster repayment would distort the shares of later intervals.
	recentSeconds  = 5.0
	arrearsSeconds = 20.0
	ArrearsPart    = 0.03
	// repaySteps is the number of corrections over which a debt is repaid, and the least
	// number of those for arrears: in a long step, a faster repayment would be too much.
	// repayPerSecond, divided by the seconds of a step of more than one, is the largest part
	// of the disk that repayment may use. An error of a short step is corrected in the next
	// one, so short steps may repay quickly. maxDebtSeconds is the largest debt, in
	// seconds of the whole disk.
	repaySteps     = 4.0
	repayPerSecond = 0.15
	maxDebtSeconds = 2.0
	// WindowSeconds is the shortest time over which a response of the scheduler is
	// judged. It is also how long a sibling must have been charged nothing to count
	// as idle: a sibling with a low weight has no slice in some seconds.
	WindowSeconds = 5.0
	// idleShare: below this part of its own share, a sibling's charged I/O is too
	// little to be controlled.
	idleShare = 0.02
	// deadBand is the largest part of the disk that changes hands without being written.
	deadBand = 0.003
)

// Least is a bound below which charged I/O is not held, however much is hidden: the smaller
// of these parts of a sibling's own share and of the disk.
type Least struct{ ofShare, ofDisk float64 }

// Of is the bound of a sibling with that share of the disk, in the unit of both.
func (l Least) Of(share, disk float64) float64 { return math.Min(l.ofShare*share, l.ofDisk*disk) }

var (
	// LeastHeld: a scheduler serves in slices of some 100 ms. A sibling with one slice in
	// ten seconds gets none in most intervals; its journal writes then stall, and all
	// siblings wait for them. What a sibling has at this bound is no debt.
	LeastHeld = Least{0.2, 0.02}
	// leastByWeight: BFQ books the next slice of a queue by its weight at the end of the
	// last one (bfq_calc_finish, block/bfq-wf2q.c, 6.18). The queue waits for that, also
	// if its weight is greater a moment later: with a weight of 2 %, for 49 slices of the
	// others. A law that lowers it that far for a commit has no control of the seconds
	// after the commit.
	leastByWeight = Least{0.25, 0.03}
)

// Feedback is Daybook's own law. From smoothed rates it computes how much charged
// I/O each sibling should have, so that all its I/O matches its share of the ideal
// weights. It corrects that by the scheduler's responses to earlier weights. It
// repays slowly what past intervals gave too much or too little, so that the mean
// over a minute is right although single intervals are noisy.
//
// The shares are divided max-min fairly. What a sibling leaves unused goes to the
// others in the ratio of their ideals. No weight can prevent journal I/O beyond a
// sibling's share; the others lose that part in the ratio of their ideals. The
// weights of the active siblings add up to their ideals unless the range forbids
// it.
type Feedback struct {
	weights Range
	memory  map[string]*memory
	// window is the length of the current window, in seconds.
	window float64
}

// memory is the state that the law keeps of one sibling.
type memory struct {
	charged, hidden Mean
	// writeback is a part of hidden. burst is the same, and all that of charged and hidden,
	// with a short time constant.
	writeback, burst, all Mean
	// quietSeconds is the time since it was last charged.
	quietSeconds float64
	// windowBytes is what it was charged in the current window. windowWeight is the
	// weight in force times the seconds.
	windowBytes, windowWeight float64
	// response is the logarithm of bytes charged per weight, relative to the
	// siblings: 0 for a scheduler that follows weights exactly.
	response float64
	samples  float64
	// debtBytes is what the sibling had lately beyond its share, less what it is to
	// repay of its arrears; it is negative for a lack. arrearsBytes is the debt
	// from before that, arrearsRate the bytes per second in which it is repaid.
	debtBytes, arrearsBytes, arrearsRate float64
	// lateBytes is writeback beyond its share that no weight could prevent; it is
	// negative for what another sibling's took from it. It becomes arrears without
	// being a debt before.
	lateBytes float64
	// limited: it does not use its share although the law does not raise its weight
	// further.
	limited bool
	// floored: it is held at its least, and may still have too much. leastRate is the
	// charged I/O that it then has, in bytes per second.
	floored   bool
	leastRate float64
}

// sibling is one active sibling within one call of Next.
type sibling struct {
	*memory
	o      Observation
	want   float64 // bytes per second it should be charged for
	fair   float64 // want, if each used its share
	leaves bool    // the others are given what it leaves
	weight float64 // the weight that should bring that about
}

// NewFeedback returns the law for weight files of that range.
func NewFeedback(r Range) *Feedback {
	return &Feedback{weights: r, memory: map[string]*memory{}}
}

// Name is "feedback".
func (f *Feedback) Name() string { return FeedbackLaw }

// Next implements Law.
func (f *Feedback) Next(seconds float64, siblings []Observation) []float64 {
	next := make([]float64, len(siblings))
	for n, o := range siblings {
		next[n] = f.weights.Clamp(o.Ideal)
	}
	if !(seconds > 0) || math.IsInf(seconds, 0) {
		return next
	}
	// Sorted by name, so that the caller's order has no effect.
	order := make([]int, len(siblings))
	for n := range order {
		order[n] = n
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(siblings[a].ID, siblings[b].ID) })

	active, positions := f.observe(seconds, siblings, order)
	if f.unknown(siblings) {
		return f.asTheyAre(siblings)
	}
	if len(active) < 2 {
		f.window = 0
		for _, s := range active {
			s.forgive()
			s.limited, s.floored = false, false
			s.windowBytes, s.windowWeight = 0, 0 // what it had alone is no answer to a weight
		}
		return next
	}
	if f.window += seconds; f.window >= WindowSeconds-seconds/2 {
		learnResponse(f.window, active)
		f.window = 0
	}
	keepDebts(seconds, active, f.weights, func(m *memory) float64 { return m.hidden.FromNothing(MeanSeconds) })
	divide(seconds, active)
	f.weigh(active)
	for n, s := range active {
		next[positions[n]] = s.weight
	}
	return next
}

// unknown reports whether a sibling was not measured in the step, and was shortly before.
func (f *Feedback) unknown(siblings []Observation) bool {
	return slices.ContainsFunc(siblings, func(o Observation) bool {
		return !o.Measured() && f.memory[o.ID].quietSeconds < WindowSeconds
	})
}

// asTheyAre are the weights in force.
func (f *Feedback) asTheyAre(siblings []Observation) []float64 {
	weights := make([]float64, len(siblings))
	for n, o := range siblings {
		if weights[n] = f.weights.Clamp(o.Weight); !(o.Weight > 0 && o.Weight <= MaxWeight) {
			weights[n] = f.weights.Clamp(o.Ideal)
		}
	}
	return weights
}

// ForgetAnswers forgets how the scheduler answered weights, and the debts that came of
// that: it is about to answer them in another way. The rates are still known.
func (f *Feedback) ForgetAnswers() {
	f.window = 0
	for _, m := range f.memory {
		m.forgive()
		m.forgetAnswers()
	}
}

func (m *memory) forgetAnswers() {
	m.limited, m.floored, m.response, m.samples = false, false, 0, 0
	m.windowBytes, m.windowWeight = 0, 0
}

// add enters a step in the memory. chargedSeconds is the time constant of the
// charged rate. It returns what was charged, and the ideal if the sibling counts as
// active.
func (m *memory) add(o Observation, seconds, chargedSeconds float64) (charged, ideal float64) {
	if m.listen(o, seconds) {
		charged, ideal = math.Max(0, o.OtherBytes), o.Ideal
	}
	m.charged.Add(charged, seconds, chargedSeconds)
	m.hidden.Add(o.Journal(), seconds, MeanSeconds)
	m.writeback.Add(o.writeback(), seconds, MeanSeconds)
	m.burst.Add(o.writeback(), seconds, burstMemory(seconds))
	m.all.Add(charged+o.Journal(), seconds, burstMemory(seconds))
	return charged, ideal
}

// throughput is the mean of what it did, hidden I/O included, in bytes per second.
func (m *memory) throughput() float64 { return m.charged.Rate() + m.hidden.Rate() }

// observe enters the interval in the memories. It returns the active siblings, and
// their places in the caller's order.
func (f *Feedback) observe(seconds float64, siblings []Observation, order []int) (active []*sibling, positions []int) {
	known := make(map[string]*memory, len(siblings))
	var ideals, total float64
	for _, n := range order {
		o := siblings[n]
		m := f.memory[o.ID]
		if m == nil {
			m = &memory{}
		}
		known[o.ID] = m
		_, ideal := m.add(o, seconds, MeanSeconds)
		ideals += ideal
		total += m.throughput()
	}
	f.memory = known // a sibling that is not in the observations is gone
	for _, n := range order {
		o, m := siblings[n], known[siblings[n].ID]
		if !o.Measured() {
			continue
		}
		rate := m.charged.Rate()
		if m.quietSeconds >= WindowSeconds || rate < idleShare*o.Ideal/ideals*total {
			m.forgive()
			m.forgetAnswers()
			continue
		}
		active = append(active, &sibling{memory: m, o: o})
		positions = append(positions, n)
	}
	return active, positions
}

// listen enters a sibling's interval in its window, and returns whether it is
// active: it was charged something, or its weight is so low that it waits for its
// slice.
func (m *memory) listen(o Observation, seconds float64) bool {
	if !o.idle() {
		m.quietSeconds = 0
		m.windowBytes += o.OtherBytes
		m.windowWeight += o.Weight * seconds
		return true
	}
	m.quietSeconds += seconds
	if o.Measured() {
		m.windowWeight += o.Weight * seconds
	}
	return m.quietSeconds < WindowSeconds && o.Measured()
}

// forgive deletes its debts.
func (m *memory) forgive() { m.debtBytes, m.lateBytes, m.arrearsBytes, m.arrearsRate = 0, 0, 0, 0 }

// burstMemory is the time constant for writeback in steps of that length.
func burstMemory(stepSeconds float64) float64 {
	if stepSeconds > burstStepSeconds {
		return MeanSeconds
	}
	return burstSeconds
}

// expected is the hidden I/O of the coming step, in bytes per second: the mean for
// the journal, the latest rate for writeback.
func (m *memory) expected() float64 {
	return m.hidden.Rate() - m.writeback.Rate() + m.burst.Rate()
}

// learnResponse compares what each active sibling was charged in a window with
// its part of the weights in force.
func learnResponse(seconds float64, active []*sibling) {
	var charged, weights float64
	for _, s := range active {
		if !s.limited || allLimited(active) {
			charged += s.windowBytes
			weights += s.windowWeight
		}
	}
	bound := math.Log(maxBoost)
	for _, s := range active {
		answer := math.Log(s.windowBytes/s.windowWeight) - math.Log(charged/weights)
		s.windowBytes, s.windowWeight = 0, 0
		if math.IsNaN(answer) {
			continue // no sibling was charged, or it has just appeared
		}
		answer = math.Max(-bound, math.Min(bound, answer))
		s.samples++
		gain := math.Max(1-math.Exp(-seconds/responseSeconds), 1/(s.samples+responsePrior))
		// A change away from a bound counts at once: a sibling that could not use
		// its share before, and does now, must not keep the weight of before.
		if math.Abs(answer) < math.Abs(s.response) && math.Abs(answer-s.response) > math.Log(surprise) {
			gain = 1
		}
		s.response += gain * (answer - s.response)
	}
}

func allLimited(active []*sibling) bool {
	return !slices.ContainsFunc(active, func(s *sibling) bool { return !s.limited })
}
