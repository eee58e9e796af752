package control

import (
	"math"
)

// How it is judged whether a scheduler follows its weights; docs/control.md
// says how these were chosen.
const (
	// judgeSeconds is the window over which it is judged: many slices.
	judgeSeconds = 5.0
	// verdictSeconds is how long all windows must agree.
	verdictSeconds = 15.0
	// backlog is the part of the time with a request outstanding from which a
	// sibling always has work for the disk.
	backlog = 0.9
	// knownPart is the least part of a window up to the end of a sibling's last
	// request: from then on it is not known whether it waits or pauses. What others
	// get if it pauses cannot look like ignored weights.
	knownPart = 0.6
	// ignoredRatio and followedRatio bound the bytes per weight of the sibling
	// that got most by those of the one that got least. In between is no
	// evidence.
	ignoredRatio, followedRatio = 1.5, 1.3
)

// verdict is what a window says of a scheduler.
type verdict int

const (
	noEvidence verdict = iota
	follows
	ignores
)

// obedience compares what siblings were charged with the weights in force.
// Only those count that had a request outstanding all the time, also while none
// was served: one that does not use its share leaves it to the others, and hidden
// I/O is not charged to anybody's weight.
type obedience struct {
	seconds float64
	members map[string]*competitor
	// ratio is the latest window's ratio of the most to the least bytes per
	// weight, and who they were.
	ratio       float64
	most, least string
}

// competitor is one sibling in the window.
type competitor struct {
	seconds, bytes, weight, busySeconds float64
	// quietSeconds is the time since one of its requests ended, quietBefore what that
	// was when the window began. The time that a request was outstanding is known
	// when it ends.
	quietSeconds, quietBefore float64
	// unmeasured: a step was no measurement.
	unmeasured bool
}

// known is the time, in seconds, of which it is known whether it had a request
// outstanding: from the end of one of its requests to that of its last one.
func (m *competitor) known() float64 { return m.quietBefore + m.seconds - m.quietSeconds }

// competes reports whether it had a request outstanding all the time.
func (m *competitor) competes() bool {
	return !m.unmeasured && m.weight > 0 && m.known() >= knownPart*m.seconds && m.busySeconds >= backlog*m.known()
}

// perWeight is the bytes per second that it was charged for its weight.
func (m *competitor) perWeight() float64 { return m.bytes / m.known() / (m.weight / m.seconds) }

// add takes in a step, and says what the window came to if that ended it.
func (w *obedience) add(seconds float64, siblings []Observation) (verdict, bool) {
	if !(seconds > 0) || math.IsInf(seconds, 0) {
		return noEvidence, false
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
		if !o.measured() {
			m.unmeasured = true
			continue
		}
		m.bytes += o.OtherBytes
		m.weight += o.Weight * seconds
		m.quietSeconds += seconds
		if o.BusySeconds > 0 {
			// Several cgroups of one sibling are added up.
			m.busySeconds += math.Min(o.BusySeconds, m.quietSeconds)
			m.quietSeconds = 0
		}
	}
	if w.seconds += seconds; w.seconds < judgeSeconds-seconds/2 {
		return noEvidence, false
	}
	v := w.judge()
	for id, m := range w.members {
		if m.seconds == 0 {
			delete(w.members, id) // it is gone
			continue
		}
		*m = competitor{quietSeconds: m.quietSeconds, quietBefore: m.quietSeconds}
	}
	w.seconds = 0
	return v, true
}

func (w *obedience) judge() verdict {
	most, least, competing := math.Inf(-1), math.Inf(1), 0
	for id, m := range w.members {
		// One that came during the window is looked at in the next.
		if m.seconds < w.seconds*0.99 || !m.competes() {
			continue
		}
		competing++
		perWeight := m.perWeight()
		if perWeight > most || perWeight == most && id < w.most {
			most, w.most = perWeight, id
		}
		if perWeight < least || perWeight == least && id < w.least {
			least, w.least = perWeight, id
		}
	}
	if competing < 2 || least <= 0 {
		w.ratio = 0
		return noEvidence
	}
	switch w.ratio = most / least; {
	case w.ratio > ignoredRatio:
		return ignores
	case w.ratio <= followedRatio:
		return follows
	}
	return noEvidence
}

// trust adds up verdicts of all groups on a disk.
type trust struct {
	// ignored: the scheduler does not follow its weights.
	ignored bool
	// ignoredSeconds and followedSeconds are how long the windows have said so.
	ignoredSeconds, followedSeconds float64
}

// take adds a window's verdict, and reports whether ignored changed.
func (t *trust) take(v verdict, seconds float64) (changed bool) {
	switch v {
	case ignores:
		t.ignoredSeconds += seconds
		t.followedSeconds = 0
	case follows:
		t.followedSeconds += seconds
		t.ignoredSeconds = 0
	case noEvidence:
		t.ignoredSeconds = 0
	}
	was := t.ignored
	switch {
	case t.ignoredSeconds >= verdictSeconds:
		t.ignored = true
	case t.followedSeconds >= verdictSeconds:
		t.ignored = false
	}
	return was != t.ignored
}

// restart forgets the windows, not the verdict.
func (t *trust) restart() { t.ignoredSeconds, t.followedSeconds = 0, 0 }
