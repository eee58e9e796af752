package control

import (
	"math"
)

// How a scheduler is judged. docs/control-law.md says how these were chosen.
const (
	// judgeSeconds is the length of a window: many slices.
	judgeSeconds = 5.0
	// verdictSeconds is how long all windows must agree.
	verdictSeconds = 15.0
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

// verdict is the result of a window.
type verdict int

const (
	noEvidence verdict = iota
	follows
	ignores
)

// obedience compares what siblings were charged with the weights in force. Only
// siblings that had a request outstanding all the time count, also while none was
// served. A sibling that does not use its share leaves it to the others. Hidden I/O
// does not count.
type obedience struct {
	seconds float64
	members map[string]*competitor
	// ratio is the ratio of the most to the least bytes per weight in the latest
	// window, with the siblings' names.
	ratio       float64
	most, least string
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

// add enters a step, and returns the result of the window if the step ended it.
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
			// Several cgroups of one sibling are summed.
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
		// A sibling that appeared during the window counts in the next.
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

// trust combines the verdicts of all groups on a disk.
type trust struct {
	// ignored means that the scheduler does not follow its weights, or that weights do
	// not hold the shares.
	ignored bool
	// ignoredSeconds and followedSeconds are how long the windows have had that
	// result.
	ignoredSeconds, followedSeconds float64
	// short is the sibling that lacks a part of its share in the latest windows, and greedy
	// the one that has more than its due, and that others lack. heldSeconds is how long the
	// windows have said that all shares come out.
	short, greedy repeated
	heldSeconds   float64
}

// missed is what a window says of the shares, in parts of the disk.
type missed struct {
	// lack is what short lacked, the sibling that lacked most, as far as others could
	// have left it to short; negative: not judged.
	lack  float64
	short string
	// excess is what greedy was charged beyond its due, the sibling with most of that, as
	// far as others lacked it.
	excess float64
	greedy string
}

// worst is the larger of the two.
func (m missed) worst() float64 { return max(m.lack, m.excess) }

// repeated is a sibling that windows in a row name, and for how long.
type repeated struct {
	id      string
	seconds float64
}

// take enters a window that names a sibling, and the part of the disk that it is about.
func (r *repeated) take(part float64, id string, seconds float64) {
	switch {
	case !(part > shortPart):
		*r = repeated{}
	case id == r.id:
		r.seconds += seconds
	default:
		*r = repeated{id, seconds}
	}
}

// take enters a window's verdict on the weights, and what it says of the shares. It reports
// whether ignored changed.
func (t *trust) take(v verdict, m missed, seconds float64) (changed bool) {
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
	t.short.take(m.lack, m.short, seconds)
	t.greedy.take(m.excess, m.greedy, seconds)
	if t.heldSeconds += seconds; !(m.lack >= 0 && m.worst() <= heldPart) {
		t.heldSeconds = 0
	}
	was := t.ignored
	switch {
	case t.ignoredSeconds >= verdictSeconds || t.missedSeconds() >= shortSeconds:
		t.ignored = true
	case t.followedSeconds >= verdictSeconds && m.worst() <= shortPart, t.heldSeconds >= verdictSeconds && v != ignores:
		t.ignored = false
	}
	return was != t.ignored
}

// missedSeconds is how long the same sibling has missed its share.
func (t *trust) missedSeconds() float64 { return max(t.short.seconds, t.greedy.seconds) }

// restart deletes the windows, and keeps the verdict.
func (t *trust) restart() { *t = trust{ignored: t.ignored} }
