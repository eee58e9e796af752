package judge

// Trust combines the verdicts of all groups on a disk.
type Trust struct {
	// Ignored means that the scheduler does not follow its weights, or that weights do
	// not hold the shares.
	Ignored bool
	// IgnoredSeconds and followedSeconds are how long the windows have had that
	// result.
	IgnoredSeconds, followedSeconds float64
	// Short is the sibling that lacks a part of its share in the latest windows, and Greedy
	// the one that has more than its due, and that others lack. heldSeconds is how long the
	// windows have said that all shares come out.
	Short, Greedy Repeated
	heldSeconds   float64
}

// Missed is what a window says of the shares, in parts of the disk.
type Missed struct {
	// Lack is what Short lacked, the sibling that lacked most, as far as others could
	// have left it to Short; negative: not judged.
	Lack  float64
	Short string
	// Excess is what Greedy was charged beyond its due, the sibling with most of that, as
	// far as others lacked it.
	Excess float64
	Greedy string
}

// Worst is the larger of the two.
func (m Missed) Worst() float64 { return max(m.Lack, m.Excess) }

// Held reports whether all shares come out, by the usual bounds.
func (m Missed) Held() bool { return Usual.held(m) }

// Bounds say what a window must show.
type Bounds struct {
	// Missed is the part of the disk with more than which a share is missed, Held the most
	// with which it is met.
	Missed, Held float64
	// Seconds is how long, in all, the same sibling must miss its share.
	Seconds float64
}

// Usual are the bounds where nothing else is known of the disk.
var Usual = Bounds{Missed: ShortPart, Held: heldPart, Seconds: ShortSeconds}

func (b Bounds) held(m Missed) bool { return m.Lack >= 0 && m.Worst() <= b.Held }

// Repeated is a sibling that several windows name, and the length of those in which it missed its
// share.
type Repeated struct {
	ID      string
	Seconds float64
}

// take enters a window that names a sibling, and the part of the disk that it is about. A window
// with less than is missed, but more than is held, of the same sibling is not counted and does not
// interrupt those that are.
func (r *Repeated) take(part float64, id string, bounds Bounds, seconds float64) {
	switch {
	case part > bounds.Missed && id == r.ID:
		r.Seconds += seconds
	case part > bounds.Missed:
		*r = Repeated{id, seconds}
	case !(part > bounds.Held) || id != r.ID:
		*r = Repeated{}
	}
}

// Take enters a window's verdict on the weights, and what it says of the shares. It reports
// whether Ignored changed. That one sibling gets more bytes for its weight than another is no
// fault while the shares come out: the law has corrected the weights for that.
func (t *Trust) Take(v Verdict, m Missed, bounds Bounds, seconds float64) (changed bool) {
	held := bounds.held(m)
	if held && v == Ignores {
		v = NoEvidence
	}
	switch v {
	case Ignores:
		t.IgnoredSeconds += seconds
		t.followedSeconds = 0
	case Follows:
		t.followedSeconds += seconds
		t.IgnoredSeconds = 0
	case NoEvidence:
		t.IgnoredSeconds = 0
	}
	t.Short.take(m.Lack, m.Short, bounds, seconds)
	t.Greedy.take(m.Excess, m.Greedy, bounds, seconds)
	if t.heldSeconds += seconds; !held {
		t.heldSeconds = 0
	}
	was := t.Ignored
	switch {
	case t.IgnoredSeconds >= VerdictSeconds || t.MissedSeconds() >= bounds.Seconds:
		t.Ignored = true
	case t.followedSeconds >= VerdictSeconds && m.Worst() <= bounds.Missed, t.heldSeconds >= VerdictSeconds:
		t.Ignored = false
	}
	return was != t.Ignored
}

// MissedSeconds is how long the same sibling has missed its share.
func (t *Trust) MissedSeconds() float64 { return max(t.Short.Seconds, t.Greedy.Seconds) }

// Restart deletes the windows, and keeps the verdict.
func (t *Trust) Restart() { *t = Trust{Ignored: t.Ignored} }
