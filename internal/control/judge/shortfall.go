package judge

import (
	"cmp"
	"math"
	"slices"

	"github.com/daybook-project/daybook/internal/control/law"
)

// How it is judged whether the shares come out; docs/control-scheduler.md says how these were
// chosen.
const (
	// ShortPart is the part of the disk that a sibling must lack in a window for its
	// share to count as missed, heldPart the most for it to count as met.
	ShortPart, heldPart = 0.05, 0.03
	// ShortSeconds is how long, in all, the same sibling must lack that much, or have it too much.
	ShortSeconds = 10.0
	// fewRequests is the mean number of requests, outstanding at a time, below which a
	// sibling that lacks a part needs the top level at once: BFQ gives the disk to others
	// between two of them.
	fewRequests = 1.5
)

// Shortfall compares what siblings had of the disk with what is due to them, whatever
// the weights are. It sees what bytes per weight do not show: siblings that do not
// compete, because they wait for commits, though all want more.
type Shortfall struct {
	// Seconds is the age of the window.
	Seconds float64
	members map[string]*claimant
	// Missed is what the latest window says.
	Missed
	// Few: Short keeps fewer than fewRequests outstanding. FewOthers: most of what Greedy has
	// too much is lacked by siblings that do.
	Few, FewOthers bool
	// Hidden is the most hidden I/O of a sibling, as a part of the disk.
	Hidden float64
	// Fresh: a sibling did nothing in the window before, or had another ideal. No law can have
	// divided the disk for that yet.
	Fresh bool
	// Partial: a sibling that did something was observed for a part of the window only, so less is
	// due to it than it seems.
	Partial bool
}

// claimant is one sibling in the window.
type claimant struct {
	law.Waiting
	ideal, charged, hidden  float64
	seconds, waitingSeconds float64
	busySeconds             float64
	requestSeconds          float64
	// unmeasured: a step was no measurement.
	unmeasured bool
	// before is its ideal in the window before; 0 if it did nothing in that.
	before float64
}

// few reports whether the sibling keeps fewer than fewRequests outstanding.
func (m *claimant) few() bool {
	return m.requestSeconds > 0 && m.requestSeconds < fewRequests*m.busySeconds
}

// Add takes in a step, and reports whether that ended the window.
func (w *Shortfall) Add(seconds float64, siblings []law.Observation) bool {
	if !(seconds > 0) || math.IsInf(seconds, 0) {
		return false
	}
	if w.members == nil {
		w.members = map[string]*claimant{}
	}
	for _, o := range siblings {
		m := w.members[o.ID]
		if m == nil {
			m = &claimant{Waiting: law.NewWaiting()}
			w.members[o.ID] = m
		}
		m.ideal = o.Ideal
		m.seconds += seconds
		m.unmeasured = m.unmeasured || !o.Measured()
		m.charged += math.Max(0, o.OtherBytes)
		m.hidden += o.Journal()
		waited, _ := m.In(o, seconds)
		m.waitingSeconds += waited
		m.busySeconds += o.BusySeconds
		m.requestSeconds += o.RequestSeconds
	}
	if w.Seconds += seconds; w.Seconds < WindowSeconds-seconds/2 {
		return false
	}
	w.judge()
	for id, m := range w.members {
		if m.seconds == 0 {
			delete(w.members, id) // it is gone
			continue
		}
		next := &claimant{Waiting: m.Waiting}
		if m.charged+m.hidden > 0 {
			next.before = m.ideal
		}
		w.members[id] = next
	}
	w.Seconds = 0
	return true
}

// judge sets Missed, Few, Hidden, Fresh and Partial. Shares are not judged if the disk does nothing,
// or if only one sibling does something or wants to.
func (w *Shortfall) judge() {
	w.Missed, w.Few, w.FewOthers, w.Hidden, w.Fresh, w.Partial = Missed{Lack: -1}, false, false, 0, false, false
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
	claims := make([]law.Claim, len(ids))
	var total, ideals float64
	competing := 0
	for n, id := range ids {
		m := w.members[id]
		total += m.charged + m.hidden
		w.Fresh = w.Fresh || m.charged+m.hidden > 0 && m.before != m.ideal
		w.Partial = w.Partial || m.charged+m.hidden > 0 && m.seconds < w.Seconds
		ideals += m.ideal
		claims[n] = law.Claim{Ideal: m.ideal, Least: m.hidden, Most: m.charged + m.hidden}
		if m.waitingSeconds >= law.WantingPart*m.seconds {
			claims[n].Most = math.Inf(1)
		}
		if claims[n].Most > 0 {
			competing++
		}
	}
	if !(total > 0) {
		return
	}
	// What others have too much, as far as it was charged: nothing holds back the rest.
	var left, lacked, lackedByFew float64
	due := law.Level(total, claims)
	for n, id := range ids {
		m := w.members[id]
		lack := math.Max(0, due[n]-m.charged-m.hidden)
		lacked += lack
		if m.few() {
			lackedByFew += lack
		}
	}
	for n, id := range ids {
		m := w.members[id]
		w.Hidden = math.Max(w.Hidden, m.hidden/total)
		floor := law.LeastHeld.Of(m.ideal/ideals, 1) * total
		excess := math.Max(0, math.Min(m.charged+m.hidden-due[n], m.charged-floor))
		left += excess
		if excess = math.Min(excess, lacked) / total; excess > w.Excess {
			w.Excess, w.Greedy, w.FewOthers = excess, id, lackedByFew > lacked/2
		}
	}
	if competing < 2 {
		return
	}
	w.Lack = 0
	for n, id := range ids {
		m := w.members[id]
		if lack := math.Min(due[n]-m.charged-m.hidden, left) / total; lack > w.Lack {
			w.Lack, w.Short, w.Few = lack, id, m.few()
		}
	}
}
