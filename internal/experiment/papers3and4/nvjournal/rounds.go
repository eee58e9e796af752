package nvjournal

import (
	"math"

	"github.com/daybook-project/daybook/internal/experiment/statistics"
)

// State is the distance of the processors during a measurement of several threads. The
// host of a virtual machine changes it within seconds. While processors are apart, a line
// takes several times as long from one to the other. So only rounds in the same state are
// compared.
type State string

const (
	// Alone is a round of one thread, which uses one processor only.
	Alone   State = ""
	NVJNear State = "near"
	Apart   State = "apart"
	// Changed is a round during which the state changed. It is not used.
	Changed State = "changed"
)

// states are the states of comparable rounds of several threads.
var states = []State{NVJNear, Apart}

// statesOf returns the states of comparable rounds of this number of threads.
func statesOf(threads int) []State {
	if threads == 1 {
		return []State{Alone}
	}
	return states
}

// with returns s for several threads, and Alone for one thread.
func (s State) with(threads int) State {
	if threads == 1 {
		return Alone
	}
	return s
}

// Bounds of the states.
const (
	// nearOverNearest is the maximum time of a line's transfer for the state near, as a
	// multiple of the shortest transfer of the run.
	nearOverNearest = 3.0
	// nearNanoseconds is the same maximum in nanoseconds. In a run with only one state,
	// the shortest transfer does not show which state it is. Processors with a cache in
	// common had transfers of 35 to 80 ns, others 115 ns and more.
	nearNanoseconds = 100.0
	// leastPairs is the minimum number of pairs of rounds for a verdict.
	leastPairs = 3
)

// nearBound returns the maximum time of a line's transfer between near processors, ns.
func (n Result) nearBound() float64 {
	return min(nearOverNearest*n.NearestNanoseconds, nearNanoseconds)
}

// Way has the time of a line's transfer from one processor to the other, ns, before and
// after a round; 0 and 0 for a round of one thread.
type Way struct {
	Before float64 `json:"line_before_ns"`
	After  float64 `json:"line_after_ns"`
	// State follows from both, and from the shortest transfer of the run.
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

// Round is one round of an engine. Rounds of two engines are a pair if they have the same
// number, so that they ran one after the other, and the same state.
type Round struct {
	Round            int     `json:"round"`
	UpdatesPerSecond float64 `json:"updates_per_second"`
	Way
}

// Rate is the result of the rounds in one state.
type Rate struct {
	State            State             `json:"state,omitempty"`
	Rounds           int               `json:"rounds"`
	UpdatesPerSecond statistics.Spread `json:"updates_per_second"`
}

// ratesOf sets the state of each round and combines the rounds of each state.
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

// rateIn returns the rate in a state, or nil if there was no such round.
func rateIn(rates []Rate, state State) *Rate {
	for k := range rates {
		if rates[k].State == state {
			return &rates[k]
		}
	}
	return nil
}

// medianIn returns the median rate in a state, or NaN if there was no such round.
func medianIn(rates []Rate, state State) float64 {
	if rate := rateIn(rates, state); rate != nil {
		return rate.UpdatesPerSecond.Median
	}
	return math.NaN()
}

// Ratio is the rate of nvjournal, by processor, over that of another engine: the spread of
// the ratios of pairs of rounds in one state.
type Ratio struct {
	Stream   string `json:"stream"`
	Baseline string `json:"baseline"`
	Threads  int    `json:"threads"`
	State    State  `json:"state,omitempty"`
	// Ours is the name of the form of nvjournal, the same in all ratios.
	Ours  string            `json:"ours"`
	Pairs int               `json:"pairs"`
	Ratio statistics.Spread `json:"ratio"`
}

// pairRatios returns the ratio of each pair of rounds in the state.
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

// ratios compares nvjournal with all other engines, near with near and apart with apart. An
// engine that commits more often or more seldom does other work: it has no ratio.
func (n Result) ratios() (all []Ratio) {
	for _, theirs := range n.Rows {
		if isOurs(theirs.Engine) {
			continue
		}
		for _, ours := range n.Rows {
			if ours.Engine != byProcessor || ours.Stream != theirs.Stream || ours.Threads != theirs.Threads || ours.CommitEvery != theirs.CommitEvery {
				continue
			}
			for _, state := range statesOf(theirs.Threads) {
				if ratios := pairRatios(ours.Rounds, theirs.Rounds, state); len(ratios) > 0 {
					all = append(all, Ratio{theirs.Stream, theirs.Engine, theirs.Threads, state, ours.Name(), len(ratios), statistics.SpreadOf(ratios)})
				}
			}
		}
	}
	return all
}

// ratio returns a ratio, or nil if there is no pair.
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
	n.checkModel()
}
