package judge

import (
	"math"

	"github.com/daybook-project/daybook/internal/control/law"
)

// How a scheduler is judged. docs/control-scheduler.md says how these were chosen.
const (
	// WindowSeconds is the length of a window: many slices.
	WindowSeconds = 5.0
	// VerdictSeconds is how long all windows must agree.
	VerdictSeconds = 15.0
	// backlog: a sibling with a request outstanding for this part of the time
	// always has work for the disk.
	backlog = 0.9
	// knownPart is the least part of a window before the end of a sibling's last
	// request. After that end it is not known whether the sibling waits or pauses.
	// So that what others get during a pause does not look like ignored weights,
	// the rest of the window may not be longer.
	knownPart = 0.6
	// ignoredRatio and followedRatio are bounds for the ratio of the most to the
	// least bytes per weight. A ratio between them is no evidence.
	ignoredRatio, followedRatio = 1.5, 1.3
)

// Verdict is the result of a window.
type Verdict int

// The results: too little was seen, the scheduler follows its weights, it ignores them.
const (
	NoEvidence Verdict = iota
	Follows
	Ignores
)

// Obedience compares what siblings were charged with the weights in force. Only
// siblings that had a request outstanding all the time count, also while none was
// served. A sibling that does not use its share leaves it to the others. Hidden I/O
// does not count.
type Obedience struct {
	// Seconds is the age of the window.
	Seconds float64
	members map[string]*competitor
	// Ratio is the ratio of the most to the least bytes per weight in the latest
	// window, with the siblings' names.
	Ratio       float64
	Most, Least string
}

// competitor is one sibling in the window.
type competitor struct {
	seconds, bytes, weight, busySeconds float64
	// quietSeconds is the time since one of its requests ended, and quietBefore the
	// same at the start of the window. The time that a request was outstanding
	// becomes known when it ends.
	quietSeconds, quietBefore float64
	// unmeasured means that a step was no measurement.
	unmeasured bool
}

// known is the time for which it is known whether it had a request outstanding, in
// seconds: from the end of one of its requests to that of its last one.
func (m *competitor) known() float64 { return m.quietBefore + m.seconds - m.quietSeconds }

// competes reports whether it had a request outstanding all the time.
func (m *competitor) competes() bool {
	return !m.unmeasured && m.weight > 0 && m.known() >= knownPart*m.seconds && m.busySeconds >= backlog*m.known()
}

// perWeight is the bytes per second that it was charged, for each unit of its
// weight.
func (m *competitor) perWeight() float64 { return m.bytes / m.known() / (m.weight / m.seconds) }

// Add enters a step, and returns the result of the window if the step ended it.
func (w *Obedience) Add(seconds float64, siblings []law.Observation) (Verdict, bool) {
	if !(seconds > 0) || math.IsInf(seconds, 0) {
		return NoEvidence, false
	}
	if w.members == nil {
		w.members = map[string]*competitor{}
	}
	for _, o := range siblings {
		m := w.members[o.ID]
		if m == nil {
			m = &competitor{}
			w.members[o.ID] = m
		}
		m.seconds += seconds
		if !o.Measured() {
			m.unmeasured = true
			continue
		}
		m.bytes += o.OtherBytes
		m.weight += o.Weight * seconds
		m.quietSeconds += seconds
		if o.BusySeconds > 0 {
			// Several cgroups of one sibling are summed.
			m.busySeconds += math.Min(o.BusySeconds, m.quietSeconds)
			m.quietSeconds = 0
		}
	}
	if w.Seconds += seconds; w.Seconds < WindowSeconds-seconds/2 {
		return NoEvidence, false
	}
	v := w.judge()
	for id, m := range w.members {
		if m.seconds == 0 {
			delete(w.members, id) // it is gone
			continue
		}
		*m = competitor{quietSeconds: m.quietSeconds, quietBefore: m.quietSeconds}
	}
	w.Seconds = 0
	return v, true
}

func (w *Obedience) judge() Verdict {
	most, least, competing := math.Inf(-1), math.Inf(1), 0
	for id, m := range w.members {
		// A sibling that appeared during the window counts in the next.
		if m.seconds < w.Seconds*0.99 || !m.competes() {
			continue
		}
		competing++
		perWeight := m.perWeight()
		if perWeight > most || perWeight == most && id < w.Most {
			most, w.Most = perWeight, id
		}
		if perWeight < least || perWeight == least && id < w.Least {
			least, w.Least = perWeight, id
		}
	}
	if competing < 2 || least <= 0 {
		w.Ratio = 0
		return NoEvidence
	}
	switch w.Ratio = most / least; {
	case w.Ratio > ignoredRatio:
		return Ignores
	case w.Ratio <= followedRatio:
		return Follows
	}
	return NoEvidence
}
