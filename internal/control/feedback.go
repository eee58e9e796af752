package control

import (
	"cmp"
	"math"
	"slices"
)

// The constants of the feedback law. Times are in seconds, so that the law
// behaves alike for every interval; docs/control.md says how they were chosen.
const (
	// meanSeconds is the memory of the rates: a few of jbd2's 5 s periods.
	meanSeconds = 20.0
	// heapSeconds is the memory for a heap of writeback: the kernel writes
	// in-place metadata once in 30 s, for many seconds on end, so what the
	// last half second brought is what the next one will. Steps longer than
	// heapStepSeconds would answer a heap when it is over, and know only the
	// mean.
	heapSeconds, heapStepSeconds = 0.5, 1.5
	// responseSeconds is the memory of how the scheduler answers a weight.
	responseSeconds = 24.0
	// responsePrior counts as that many samples that say "the scheduler is
	// exact", so that the first noisy interval is only half believed.
	responsePrior = 1.0
	// maxBoost bounds how far a weight may depart from what the account
	// alone asks for. A sibling that cannot use its share, or whose seeks
	// make bytes dear, is pushed no further.
	maxBoost = 3.0
	// surprise is the ratio between two answers that is no noise.
	surprise = 1.5
	// debtSeconds is how long a surplus or lack of the past is remembered.
	debtSeconds = 300.0
	// recentSeconds is how long a debt is of the interval that one looks at:
	// to be repaid at once, so that this interval still comes out right.
	// After that it is arrears, repaid over arrearsSeconds with at most
	// arrearsPart of the disk, or the intervals of repaying would be wrong.
	recentSeconds  = 5.0
	arrearsSeconds = 20.0
	arrearsPart    = 0.03
	// repaySteps is the number of corrections over which a debt is to be
	// repaid, and repayPerSecond the most of the disk that repaying may
	// take, times the seconds of a step: what is wrong in a short step is
	// corrected in the next, so short steps may be bold. maxDebtSeconds is the
	// most one can owe, in seconds of the whole disk.
	repaySteps     = 4.0
	repayPerSecond = 0.15
	maxDebtSeconds = 2.0
	// leastOfShare and leastOfDisk: charged I/O is never held below the
	// lesser of these parts of the own share and of the disk, however much
	// is hidden. A scheduler serves in slices of some 100 ms of the disk; who
	// is due a slice in ten seconds gets none in most intervals, and its
	// journal stalls with everybody's.
	leastOfShare = 0.2
	leastOfDisk  = 0.02
	// windowSeconds is the shortest time over which an answer of the
	// scheduler is judged, and over which a sibling must have been charged
	// nothing to be idle: one that is held low has no slice in some seconds.
	windowSeconds = 5.0
	// idleShare is the part of its own share below which a sibling's
	// charged I/O is too little to be steered.
	idleShare = 0.02
	// deadBand is the change in share that is not worth a write.
	deadBand = 0.003
)

// Feedback is Daybook's own law. From filtered rates it computes what each
// sibling should be charged for so that all its I/O comes out at its share of
// the ideal weights, corrects that by how the scheduler has answered weights
// so far, and repays slowly what past intervals gave too much or too little,
// so that the mean over a minute is right though single intervals are noisy.
//
// The shares are divided max-min fairly: what a sibling leaves unused goes to
// the others by their ideals, and what one takes in journal I/O beyond its
// share, which no weight can prevent, is missing to the others by their
// ideals. The weights of the active siblings add up to their ideals unless the
// range forbids it.
type Feedback struct {
	weights Range
	memory  map[string]*memory
	// window is how long the running window is, in seconds.
	window float64
}

// memory is what the law knows of one sibling.
type memory struct {
	charged, hidden mean
	// writeback is a part of hidden; heap is the same with a short memory.
	writeback, heap mean
	// quietSeconds is how long it has been charged nothing.
	quietSeconds float64
	// windowBytes and windowWeight are what it was charged in the window
	// that is running, and the weight in force times the seconds.
	windowBytes, windowWeight float64
	// response is the logarithm of bytes charged per weight, relative to
	// the siblings: 0 for a scheduler that is exact.
	response float64
	samples  float64
	// debtBytes is what the sibling has had lately beyond its share, less
	// what it is to repay of its arrears; negative where it lacks.
	// arrearsBytes is the same of before, arrearsRate the bytes per second
	// in which it is being repaid.
	debtBytes, arrearsBytes, arrearsRate float64
	// limited: it does not use its share although its weight is as high
	// as the law raises it.
	limited bool
	// floored: it is held at the least, and may still have too much.
	floored bool
}

// sibling is one active sibling within one call of Next.
type sibling struct {
	*memory
	o      Observation
	want   float64 // bytes per second it should be charged for
	weight float64 // the weight that should bring that about
}

// NewFeedback makes the law for weight files of that range.
func NewFeedback(r Range) *Feedback {
	return &Feedback{weights: r, memory: map[string]*memory{}}
}

// Name is "feedback".
func (f *Feedback) Name() string { return FeedbackLaw }

// Next implements Law.
func (f *Feedback) Next(seconds float64, siblings []Observation) []float64 {
	next := make([]float64, len(siblings))
	for n, o := range siblings {
		next[n] = f.weights.clamp(o.Ideal)
	}
	if !(seconds > 0) || math.IsInf(seconds, 0) {
		return next
	}
	// In the order of the names, so that the caller's order cannot matter.
	order := make([]int, len(siblings))
	for n := range order {
		order[n] = n
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(siblings[a].ID, siblings[b].ID) })

	active, positions := f.observe(seconds, siblings, order)
	if len(active) < 2 {
		for _, s := range active {
			s.forgive()
			s.limited, s.floored = false, false
		}
		return next
	}
	if f.window += seconds; f.window >= windowSeconds-seconds/2 {
		learnResponse(f.window, active)
		f.window = 0
	}
	keepDebts(seconds, active, f.weights)
	divide(seconds, active)
	f.weigh(active)
	for n, s := range active {
		next[positions[n]] = s.weight
	}
	return next
}

// add takes a step into the memory. chargedSeconds is the memory of the charged
// rate. It returns what was charged, and the ideal if the sibling was heard of.
func (m *memory) add(o Observation, seconds, chargedSeconds float64) (charged, ideal float64) {
	if m.listen(o, seconds) {
		charged, ideal = math.Max(0, o.OtherBytes), o.Ideal
	}
	m.charged.add(charged, seconds, chargedSeconds)
	m.hidden.add(o.journal(), seconds, meanSeconds)
	m.writeback.add(o.writeback(), seconds, meanSeconds)
	m.heap.add(o.writeback(), seconds, heapMemory(seconds))
	return charged, ideal
}

// observe takes the interval into the memories and returns the active
// siblings, and their places in the caller's order.
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
		_, ideal := m.add(o, seconds, meanSeconds)
		ideals += ideal
		total += m.charged.rate() + m.hidden.rate()
	}
	f.memory = known // what was not seen is gone
	for _, n := range order {
		o, m := siblings[n], known[siblings[n].ID]
		rate := m.charged.rate()
		if m.quietSeconds >= windowSeconds || rate < idleShare*o.Ideal/ideals*total {
			m.forgive()
			m.limited, m.floored, m.response, m.samples = false, false, 0, 0
			m.windowBytes, m.windowWeight = 0, 0
			continue
		}
		active = append(active, &sibling{memory: m, o: o})
		positions = append(positions, n)
	}
	return active, positions
}

// listen takes a sibling's interval into its window and says whether it is
// active: charged something, or held so low that it waits for its slice.
func (m *memory) listen(o Observation, seconds float64) bool {
	if !o.idle() {
		m.quietSeconds = 0
		m.windowBytes += o.OtherBytes
		m.windowWeight += o.Weight * seconds
		return true
	}
	m.quietSeconds += seconds
	if o.measured() {
		m.windowWeight += o.Weight * seconds
	}
	return m.quietSeconds < windowSeconds && o.measured()
}

// forgive forgets what it had too much or too little.
func (m *memory) forgive() { m.debtBytes, m.arrearsBytes, m.arrearsRate = 0, 0, 0 }

// heapMemory is the memory for writeback in steps of that length.
func heapMemory(stepSeconds float64) float64 {
	if stepSeconds > heapStepSeconds {
		return meanSeconds
	}
	return heapSeconds
}

// expected is the hidden I/O of the coming step, in bytes per second: of the
// journal as much as in the mean, of writeback as much as just now.
func (m *memory) expected() float64 {
	return m.hidden.rate() - m.writeback.rate() + m.heap.rate()
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
			continue // nobody was charged, or it has only just come
		}
		answer = math.Max(-bound, math.Min(bound, answer))
		s.samples++
		gain := math.Max(1-math.Exp(-seconds/responseSeconds), 1/(s.samples+responsePrior))
		// Leaving a bound is believed at once: a sibling that could not use
		// its share and now does must not keep the weight it was given for it.
		if math.Abs(answer) < math.Abs(s.response) && math.Abs(answer-s.response) > math.Log(surprise) {
			gain = 1
		}
		s.response += gain * (answer - s.response)
	}
}

func allLimited(active []*sibling) bool {
	return !slices.ContainsFunc(active, func(s *sibling) bool { return !s.limited })
}
