package control

import (
	"cmp"
	"math"
	"slices"
)

// How it is judged whether the shares come out; docs/control-law.md says how these were
// chosen.
const (
	// shortPart is the part of the disk that a sibling must lack in a window for its
	// share to count as missed, heldPart the most for it to count as met.
	shortPart, heldPart = 0.05, 0.03
	// shortSeconds is how long the same sibling must lack that much, or have it too much.
	shortSeconds = 10.0
	// tunePart is the part of the disk that a sibling must lack in a window, or have too
	// much, for the tunables of BFQ to matter: those of the first level, and all of them for
	// one that keeps fewRequests outstanding. It is less than what counts as missed, because
	// intervals that miss the shares by far come some seconds later. lastingPart is the same
	// for the top level beside the first, in windows in a row, and strictPart in one window.
	// hiddenPart is the part that the hidden I/O of a sibling must be for those of the first
	// level: the law then changes the weights, and BFQ's own slices are too long for that.
	tunePart, lastingPart, strictPart, hiddenPart = 0.03, 0.04, 0.1, 0.05
	// fewRequests is the mean number of requests, outstanding at a time, below which a
	// sibling that lacks a part needs the top level at once: BFQ gives the disk to others
	// between two of them.
	fewRequests = 1.5
)

// shortfall compares what siblings had of the disk with what is due to them, whatever
// the weights are. It sees what bytes per weight do not show: siblings that do not
// compete, because they wait for commits, though all want more.
type shortfall struct {
	seconds float64
	members map[string]*claimant
	// missed is what the latest window says.
	missed
	// few: short keeps fewRequests outstanding, or less.
	few bool
	// hidden is the most hidden I/O of a sibling, as a part of the disk.
	hidden float64
}

// claimant is one sibling in the window.
type claimant struct {
	waiting
	ideal, charged, hidden  float64
	seconds, waitingSeconds float64
	busySeconds             float64
	requestSeconds          float64
	// unmeasured: a step was no measurement.
	unmeasured bool
}

// add takes in a step, and reports whether that ended the window.
func (w *shortfall) add(seconds float64, siblings []Observation) bool {
	if !(seconds > 0) || math.IsInf(seconds, 0) {
		return false
	}
	if w.members == nil {
		w.members = map[string]*claimant{}
	}
	for _, o := range siblings {
		m := w.members[o.ID]
		if m == nil {
			m = &claimant{waiting: newWaiting()}
			w.members[o.ID] = m
		}
		m.ideal = o.Ideal
		m.seconds += seconds
		m.unmeasured = m.unmeasured || !o.measured()
		m.charged += math.Max(0, o.OtherBytes)
		m.hidden += o.journal()
		m.waitingSeconds += m.in(o, seconds)
		m.busySeconds += o.BusySeconds
		m.requestSeconds += o.RequestSeconds
	}
	if w.seconds += seconds; w.seconds < judgeSeconds-seconds/2 {
		return false
	}
	w.judge()
	for id, m := range w.members {
		if m.seconds == 0 {
			delete(w.members, id) // it is gone
			continue
		}
		*m = claimant{waiting: m.waiting}
	}
	w.seconds = 0
	return true
}

// judge sets missed, few and hidden. Shares are not judged if the disk does nothing, or if
// only one sibling does something or wants to.
func (w *shortfall) judge() {
	w.missed, w.few, w.hidden = missed{lack: -1}, false, 0
	ids := make([]string, 0, len(w.members))
	for id, m := range w.members {
		switch {
		case m.seconds == 0:
		case m.unmeasured || !(m.ideal > 0):
			return // nothing is known
		default:
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, cmp.Compare[string])
	claims := make([]claim, len(ids))
	var total, ideals float64
	competing := 0
	for n, id := range ids {
		m := w.members[id]
		total += m.charged + m.hidden
		ideals += m.ideal
		claims[n] = claim{ideal: m.ideal, least: m.hidden, most: m.charged + m.hidden}
		if m.waitingSeconds >= wantingPart*m.seconds {
			claims[n].most = math.Inf(1)
		}
		if claims[n].most > 0 {
			competing++
		}
	}
	if !(total > 0) {
		return
	}
	// What others have too much, as far as it was charged: nothing holds back the rest.
	var left, lacked float64
	due := level(total, claims)
	for n, id := range ids {
		lacked += math.Max(0, due[n]-w.members[id].charged-w.members[id].hidden)
	}
	for n, id := range ids {
		m := w.members[id]
		w.hidden = math.Max(w.hidden, m.hidden/total)
		floor := leastHeld.of(m.ideal/ideals, 1) * total
		excess := math.Max(0, math.Min(m.charged+m.hidden-due[n], m.charged-floor))
		left += excess
		if excess = math.Min(excess, lacked) / total; excess > w.excess {
			w.excess, w.greedy = excess, id
		}
	}
	if competing < 2 {
		return
	}
	w.lack = 0
	for n, id := range ids {
		m := w.members[id]
		if lack := math.Min(due[n]-m.charged-m.hidden, left) / total; lack > w.lack {
			w.lack, w.short, w.few = lack, id, m.requestSeconds > 0 && m.requestSeconds < fewRequests*m.busySeconds
		}
	}
}
