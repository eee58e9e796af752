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
	meanSeconds = 15.0
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
	// repaySeconds is the time over which a debt is to be repaid,
	// repayShare the most of the disk that repaying may take, so that an
	// interval of repaying is itself still near its target, and
	// maxDebtSeconds the most one can owe, in seconds of the whole disk.
	repaySeconds   = 20.0
	repayShare     = 0.03
	maxDebtSeconds = 2.0
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
}

// memory is what the law knows of one sibling.
type memory struct {
	charged, hidden mean
	// response is the logarithm of bytes charged per weight, relative to
	// the siblings: 0 for a scheduler that is exact.
	response float64
	samples  float64
	// debtBytes is what the sibling has had beyond its share; negative
	// where it lacks.
	debtBytes float64
	// limited: it does not use its share although its weight is as high
	// as the law raises it.
	limited bool
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
			s.debtBytes, s.limited = 0, false
		}
		return next
	}
	learnResponse(seconds, active)
	keepDebts(seconds, active, f.weights)
	divide(seconds, active)
	f.weigh(active)
	for n, s := range active {
		next[positions[n]] = s.weight
	}
	return next
}

// observe takes the interval into the memories and returns the active
// siblings, and where they stand in the caller's order.
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
		charged := 0.0
		if !o.idle() {
			charged = o.OtherBytes
			ideals += o.Ideal
		}
		m.charged.add(charged, seconds)
		m.hidden.add(o.journal(), seconds)
		total += m.charged.rate() + m.hidden.rate()
	}
	f.memory = known // what was not seen is gone
	for _, n := range order {
		o, m := siblings[n], known[siblings[n].ID]
		rate := m.charged.rate()
		if o.idle() || rate < idleShare*o.Ideal/ideals*total {
			m.debtBytes, m.limited, m.response, m.samples = 0, false, 0, 0
			continue
		}
		active = append(active, &sibling{memory: m, o: o})
		positions = append(positions, n)
	}
	return active, positions
}

// learnResponse compares what each active sibling was charged with its part
// of the weights in force.
func learnResponse(seconds float64, active []*sibling) {
	var charged, weights float64
	for _, s := range active {
		if !s.limited || allLimited(active) {
			charged += s.o.OtherBytes
			weights += s.o.Weight
		}
	}
	bound := math.Log(maxBoost)
	for _, s := range active {
		answer := math.Log(s.o.OtherBytes/s.o.Weight) - math.Log(charged/weights)
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
