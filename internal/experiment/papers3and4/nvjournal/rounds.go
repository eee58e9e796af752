package nvjournal

import (
	"math"

	"github.com/daybook-project/daybook/internal/experiment/statistics"
)

// State says how far apart the processors were while several threads were
// measured. A virtual machine's host changes it within seconds, and what moves lines
// between processors takes several times as long while they are apart. So only rounds
// in the same state are compared.
type State string

const (
	// Alone is a round of one thread: it has no other processor.
	Alone   State = ""
	NVJNear State = "near"
	Apart   State = "apart"
	// Changed is a round during which the state changed. It counts nowhere.
	Changed State = "changed"
)

// states are those of rounds of several threads that can be compared.
var states = []State{NVJNear, Apart}

// statesOf are the states in which rounds of so many threads can be compared.
func statesOf(threads int) []State {
	if threads == 1 {
		return []State{Alone}
	}
	return states
}

// with is the state of rounds of so many threads where those of several are in s.
func (s State) with(threads int) State {
	if threads == 1 {
		return Alone
	}
	return s
}

// Bounds of the states.
const (
	// nearOverNearest: near is a line's way of at most so many times the shortest of
	// the run...
	nearOverNearest = 3.0
	// ...and of at most so many atomic additions without contention: in a run with one
	// state alone the shortest way does not say which state that is.
	nearOverAddition = 20.0
	// leastPairs is how many pairs of rounds a verdict needs.
	leastPairs = 3
)

// nearBound is the longest way of a line, ns, between processors that are near.
func (n Result) nearBound() float64 {
	bound := nearOverNearest * n.NearestNanoseconds
	if n.AdditionNanoseconds > 0 {
		bound = min(bound, nearOverAddition*n.AdditionNanoseconds)
	}
	return bound
}

// Way is a line's way from one processor to the other, ns, measured before and
// after a round; 0 and 0: of one thread.
type Way struct {
	Before float64 `json:"line_before_ns"`
	After  float64 `json:"line_after_ns"`
	// State follows from both, and from the shortest way of the run.
	State State `json:"state,omitempty"`
}

func (w *Way) tag(bound float64) {
	switch {
	case w.Before == 0 || w.After == 0:
		w.State = Alone
	case w.Before <= bound && w.After <= bound:
		w.State = NVJNear
	case w.Before > bound && w.After > bound:
		w.State = Apart
	default:
		w.State = Changed
	}
}

// Round is one round of an engine. Rounds of engines with the same number followed
// one another: they are a pair if their state is the same, too.
type Round struct {
	Round            int     `json:"round"`
	UpdatesPerSecond float64 `json:"updates_per_second"`
	Way
}

// Rate is what the rounds in one state came to.
type Rate struct {
	State            State             `json:"state,omitempty"`
	Rounds           int               `json:"rounds"`
	UpdatesPerSecond statistics.Spread `json:"updates_per_second"`
}

// ratesOf tags the rounds and sums up those of each state.
func ratesOf(rounds []Round, threads int, bound float64) (rates []Rate) {
	for k := range rounds {
		rounds[k].tag(bound)
	}
	for _, state := range statesOf(threads) {
		var values []float64
		for _, r := range rounds {
			if r.State == state {
				values = append(values, r.UpdatesPerSecond)
			}
		}
		if len(values) > 0 {
			rates = append(rates, Rate{state, len(values), statistics.SpreadOf(values)})
		}
	}
	return rates
}

// rateIn is that of a state; nil: there was no such round.
func rateIn(rates []Rate, state State) *Rate {
	for k := range rates {
		if rates[k].State == state {
			return &rates[k]
		}
	}
	return nil
}

// medianIn is not a number if there was no round in the state.
func medianIn(rates []Rate, state State) float64 {
	if rate := rateIn(rates, state); rate != nil {
		return rate.UpdatesPerSecond.Median
	}
	return math.NaN()
}

// Ratio is the rate of nvjournal over that of another engine: the spread of the
// ratios of pairs of rounds in one state.
type Ratio struct {
	Stream   string `json:"stream"`
	Baseline string `json:"baseline"`
	Threads  int    `json:"threads"`
	State    State  `json:"state,omitempty"`
	// Partitions of nvjournal: the number that is better here.
	Partitions int               `json:"partitions"`
	Pairs      int               `json:"pairs"`
	Ratio      statistics.Spread `json:"ratio"`
}

// pairRatios divides, in each pair of rounds in the state.
func pairRatios(ours, theirs []Round, state State) (ratios []float64) {
	for _, o := range ours {
		for _, t := range theirs {
			if o.Round == t.Round && o.State == state && t.State == state && t.UpdatesPerSecond > 0 {
				ratios = append(ratios, o.UpdatesPerSecond/t.UpdatesPerSecond)
			}
		}
	}
	return ratios
}

// betterRatio takes the ratios of one partition and of several: those that are enough
// for a verdict, then those with the greater median. nil: there is no pair.
func betterRatio(all map[int][]float64) (partitions int, ratios []float64) {
	for _, p := range []int{1, 8} {
		now := all[p]
		enough, had := len(now) >= leastPairs, len(ratios) >= leastPairs
		if len(now) > 0 && (len(ratios) == 0 || enough && !had || enough == had && statistics.Median(now) > statistics.Median(ratios)) {
			partitions, ratios = p, now
		}
	}
	return partitions, ratios
}

// ratios compares nvjournal with all others, near with near and apart with apart.
func (n Result) ratios() (all []Ratio) {
	for _, theirs := range n.Rows {
		if theirs.Engine == "nvjournal" {
			continue
		}
		for _, state := range statesOf(theirs.Threads) {
			of := make(map[int][]float64)
			for _, ours := range n.Rows {
				if ours.Engine == "nvjournal" && ours.Stream == theirs.Stream && ours.Threads == theirs.Threads {
					of[ours.Partitions] = pairRatios(ours.Rounds, theirs.Rounds, state)
				}
			}
			if partitions, ratios := betterRatio(of); len(ratios) > 0 {
				all = append(all, Ratio{theirs.Stream, theirs.Engine, theirs.Threads, state, partitions, len(ratios), statistics.SpreadOf(ratios)})
			}
		}
	}
	return all
}

// ratio returns nil if there is no pair.
func (n Result) ratio(stream, baseline string, threads int, state State) *Ratio {
	for k, r := range n.Ratios {
		if r.Stream == stream && r.Baseline == baseline && r.Threads == threads && r.State == state {
			return &n.Ratios[k]
		}
	}
	return nil
}

// evaluate computes the results from the rounds.
func (n *Result) evaluate() {
	bound := n.nearBound()
	for k := range n.Rows {
		n.Rows[k].Rates = ratesOf(n.Rows[k].Rounds, n.Rows[k].Threads, bound)
	}
	for k := range n.Latency {
		n.Latency[k].Rates = ratesOf(n.Latency[k].Rounds, n.Latency[k].Threads, bound)
	}
	n.Ratios = n.ratios()
	n.evaluateUpdates(bound)
	n.Calibration = calibrations(n.Machine, bound)
	n.Models = nil
	for _, c := range n.Calibration {
		if model := contention(n.Floor, c); len(model.Lines) > 0 {
			n.Models = append(n.Models, model)
		}
	}
}
