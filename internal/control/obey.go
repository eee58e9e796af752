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
	// backlog is the mean number of requests outstanding from which a sibling
	// always has work for the disk: one request at a time, without a pause, is 1.
	backlog = 0.9
	// gapSeconds without a served byte are a pause: the sibling did not
	// compete all the time.
	gapSeconds = 1.0
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
// Only those count that had a request outstanding all the time: one that does
// not use its share leaves it to the others, and hidden I/O is not charged to
// anybody's weight.
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
	seconds, bytes, weight, requestSeconds float64
	quietSeconds                           float64
	paused                                 bool
}

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
			m.paused = true
			continue
		}
		m.bytes += o.OtherBytes
		m.weight += o.Weight * seconds
		m.requestSeconds += o.RequestSeconds
		if o.OtherBytes > 0 {
			m.quietSeconds = 0
			continue
		}
		m.quietSeconds += seconds
		m.paused = m.paused || m.quietSeconds >= gapSeconds
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
		*m = competitor{quietSeconds: m.quietSeconds}
	}
	w.seconds = 0
	return v, true
}

func (w *obedience) judge() verdict {
	most, least, competing := math.Inf(-1), math.Inf(1), 0
	for id, m := range w.members {
		// One that came during the window is looked at in the next.
		if m.paused || m.seconds < w.seconds*0.99 || m.requestSeconds < backlog*w.seconds || m.weight <= 0 {
			continue
		}
		competing++
		perWeight := m.bytes / m.weight
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

// take adds a window's verdict, and tells whether ignored changed.
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
