package nvjournal

import (
	"fmt"
	"slices"
	"strings"

	"github.com/daybook-project/daybook/internal/experiment/statistics"
	"github.com/daybook-project/daybook/internal/experiment/verdict"
)

// Bounds of the journal in byte-addressable memory.
const (
	// UpdateOverFloor is the time of one update of 256 bytes over that of
	// copying, flushing and fencing them.
	UpdateOverFloor = 1.45
	// CommitMicroseconds is one commit of one thread, without disk I/O.
	CommitMicroseconds = 2.0
	// TwoThreadsNear and TwoThreadsApart are the rate of two threads over that of one.
	TwoThreadsNear  = 1.9
	TwoThreadsApart = 1.5
	// OverOneLock is the rate of two threads with updates of 256 bytes over that of one
	// lock.
	OverOneLock = 2.3
	// OverLockOneNear and OverLockOneApart are the rate over that of the same engine
	// with one lock, at each number of threads: the ratio of papers 3 and 4.
	OverLockOneNear  = 1.5
	OverLockOneApart = 2.4
	// OverBareLock is the rate over that of one lock with one fence, which has no
	// checksums, no images for a checkpoint and no limit on its ring.
	OverBareLock = 1.2
	// OverPmemobj is the rate over that of libpmemobj.
	OverPmemobj = 1.2
	// LinesOfAnUpdate is how many lines may move for an update that is not committed by
	// itself, besides those of its block's own entries; counted.
	LinesOfAnUpdate = 1.0
	// BytesOverBlocks is the bytes of records of whole blocks over those of records of
	// lines.
	BytesOverBlocks = 5.0
)

// bestOneLock is the best form of one lock: one fence for all records of an operation.
const bestOneLock = "one-lock-one-fence"

// sameOneLock is nvjournal with one lock.
const sameOneLock = "nvjournal-one-lock"

func condition(state State) string {
	if state == Alone {
		return "one thread"
	}
	return "processors " + string(state)
}

// amount returns a number with its noun.
func amount(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}

func pairsText(pairs int) string { return amount(pairs, "pair of rounds", "pairs of rounds") }

func roundsText(rounds int) string { return amount(rounds, "round", "rounds") }

func threadsText(threads int) string { return amount(threads, "thread, ", "threads, ") }

// ratioVerdict compares a ratio of rounds in one state with a minimum. With too few
// rounds there is no verdict.
func ratioVerdict(target string, state State, ratio statistics.Spread, where, rounds string, count int, least float64) verdict.Verdict {
	v := verdict.Verdict{Target: target, Condition: condition(state), Wanted: fmt.Sprintf("at least %.1f×", least), Bound: least}
	if count < leastPairs {
		v.None, v.Measured = true, "only "+rounds
		if count == 0 {
			v.Measured = "no such rounds"
		}
		return v
	}
	v.Value = ratio.Median
	v.Measured = fmt.Sprintf("%.2f× (%s%s)", v.Value, where, rounds)
	v.Met = v.Value >= least
	return v
}

// Verdicts compares the result with the bounds. A target that depends on the
// distance of the processors has a verdict for each state.
func (n Result) Verdicts() (all []verdict.Verdict) {
	most := func(target string, value, bound float64, format string) {
		all = append(all, verdict.Verdict{Target: target, Wanted: fmt.Sprintf("at most "+format, bound), Measured: fmt.Sprintf(format, value),
			Value: value, Bound: bound, Met: value > 0 && value <= bound})
	}
	for _, u := range n.Floor {
		if !isOurs(u.Engine) && u.Engine != byDefault {
			continue
		}
		name := engineName(u.Engine, u.Partitions)
		most("an update of 256 bytes over the floor, "+name, u.OverFloor.Median, UpdateOverFloor, "%.2f×")
		for _, state := range states {
			two, least := u.two(state), TwoThreadsApart
			if state == NVJNear {
				least = TwoThreadsNear
			}
			all = append(all, ratioVerdict("two threads over one, "+name, state, two.OverOne, "", roundsText(two.Rounds), two.Rounds, least))
		}
	}
	if len(n.Floor) == 0 {
		most("an update of 256 bytes over the floor", 0, UpdateOverFloor, "%.2f×")
	}
	for _, c := range n.Commit {
		most(fmt.Sprintf("a commit at one thread, mean, P = %d", c.Partitions), c.Mean.Median, CommitMicroseconds, "%.2f µs")
	}
	if len(n.Commit) == 0 {
		most("a commit at one thread, mean", 0, CommitMicroseconds, "%.2f µs")
	}
	for _, s := range n.Streams {
		for _, state := range states {
			least := OverLockOneApart
			if state == NVJNear {
				least = OverLockOneNear
			}
			all = append(all, n.overEach(s.Stream, sameOneLock, "the same engine with one lock", state, least)...)
			all = append(all, n.overEach(s.Stream, bestOneLock, "one lock with one fence", state, OverBareLock)...)
		}
	}
	for _, state := range states {
		ratios := n.overOneLockUpdates(state)
		all = append(all, ratioVerdict(n.ourName()+", over one lock, updates of 256 bytes, two threads", state, statistics.SpreadOf(ratios), "", pairsText(len(ratios)), len(ratios), OverOneLock))
	}
	for _, s := range n.Streams {
		fine, blocks := n.row(s.Stream, "nvjournal", 1, 1), n.row(s.Stream, "nvjournal-blocks", 1, 1)
		fewer := 0.0
		if fine != nil && blocks != nil && fine.BytesPerUpdate != nil && blocks.BytesPerUpdate != nil {
			fewer = *blocks.BytesPerUpdate / *fine.BytesPerUpdate
		}
		all = append(all, verdict.Verdict{Target: "fewer bytes than records of blocks, " + s.Stream, Wanted: fmt.Sprintf("at least %.1f×", BytesOverBlocks),
			Measured: fmt.Sprintf("%.2f×", fewer), Value: fewer, Bound: BytesOverBlocks, Met: fewer >= BytesOverBlocks})
	}
	for _, s := range n.Streams {
		if n.row(s.Stream, "libpmemobj", 1, 1) == nil {
			continue
		}
		for _, state := range append([]State{Alone}, states...) {
			all = append(all, n.overEach(s.Stream, "libpmemobj", "libpmemobj", state, OverPmemobj)...)
		}
	}
	return append(all, n.overLines()...)
}

// linesOfTheBlock are the parts of the journal that belong to one block.
var linesOfTheBlock = []string{"entries of blocks", "entries of images", "images of blocks"}

// overLines counts the lines of an update of the stream that commits seldom, for each
// number of rings.
func (n Result) overLines() (all []verdict.Verdict) {
	for _, t := range n.Transfers {
		if t.Engine != byProcessor || t.Stream == "varmail" || t.Processors == 1 {
			continue
		}
		others := t.Apart.PerUpdate
		for _, part := range t.Parts {
			if slices.Contains(linesOfTheBlock, part.Part) {
				others -= part.PerUpdate
			}
		}
		all = append(all, verdict.Verdict{Target: fmt.Sprintf("lines that move for an update besides its block's own, %s, %d processors, %s", t.Stream, t.Processors, t.Name()),
			Wanted: fmt.Sprintf("at most %.0f", LinesOfAnUpdate), Measured: fmt.Sprintf("%.2f of %.2f", others, t.Apart.PerUpdate), Value: others, Bound: LinesOfAnUpdate, Met: others <= LinesOfAnUpdate})
	}
	if all == nil {
		all = append(all, verdict.Verdict{Target: "lines that move for an update besides its block's own", Wanted: fmt.Sprintf("at most %.0f", LinesOfAnUpdate),
			Measured: "not counted", Bound: LinesOfAnUpdate})
	}
	return all
}

// ourName is the form of nvjournal in ratios, with its number of rings if it was measured.
func (n Result) ourName() string {
	for _, r := range n.Rows {
		if r.Engine == byProcessor {
			return r.Name()
		}
	}
	for _, u := range n.Floor {
		if u.Engine == byProcessor {
			return engineName(u.Engine, u.Partitions)
		}
	}
	return "nvjournal, by processor"
}

// commitsText says after how many operations a row of the stream commits; "" if there is none.
func (n Result) commitsText(stream, engine string) string {
	for _, r := range n.Rows {
		if r.Stream == stream && r.Engine == engine {
			return "after " + amount(r.CommitEvery, "operation", "operations")
		}
	}
	return ""
}

// overEach is the least ratio to a baseline over the numbers of threads. Threads that
// share a processor do not show how an engine scales: for them there is no verdict. There is
// none either if the baseline commits after another number of operations.
func (n Result) overEach(stream, baseline, name string, state State, least float64) (all []verdict.Verdict) {
	var worst *Ratio
	var few, shared []string
	for _, r := range n.Rows {
		if r.Stream != stream || r.Engine != baseline || (r.Threads == 1) != (state == Alone) {
			continue
		}
		ratio := n.ratio(stream, baseline, r.Threads, state)
		switch {
		case r.Threads > max(2, n.Host.CPUs):
			shared = append(shared, fmt.Sprint(r.Threads))
		case ratio == nil || ratio.Pairs < leastPairs:
			few = append(few, fmt.Sprint(r.Threads))
		case worst == nil || ratio.Ratio.Median < worst.Ratio.Median:
			worst = ratio
		}
	}
	target := n.ourName() + ", over " + name + ", " + stream
	if ours, theirs := n.commitsText(stream, byProcessor), n.commitsText(stream, baseline); ours != "" && theirs != "" && ours != theirs {
		return []verdict.Verdict{{Target: target, Condition: condition(state), Wanted: fmt.Sprintf("at least %.1f×", least), Bound: least, None: true,
			Measured: "it commits " + theirs + ", nvjournal " + ours}}
	}
	switch {
	case worst == nil && len(few) == 0:
	case worst == nil:
		v := ratioVerdict(target, state, statistics.Spread{}, "", "", 0, least)
		v.Measured = "too few pairs of rounds with " + strings.Join(few, ", ") + " threads"
		all = append(all, v)
	default:
		v := ratioVerdict(target, state, worst.Ratio, threadsText(worst.Threads), pairsText(worst.Pairs), worst.Pairs, least)
		if v.Met && len(few) > 0 {
			v.Met, v.None = false, true
			v.Measured += "; too few pairs with " + strings.Join(few, ", ") + " threads"
		}
		all = append(all, v)
	}
	if len(shared) > 0 {
		all = append(all, verdict.Verdict{Target: target, Condition: strings.Join(shared, ", ") + " threads, " + condition(state),
			Wanted: fmt.Sprintf("at least %.1f×", least), Bound: least, None: true, Measured: fmt.Sprintf("the machine has %d processors", n.Host.CPUs)})
	}
	return all
}

// Check says which bounds are missed, or have no verdict in any state; nil: none.
func (n Result) Check() error { return verdict.Check(n.Verdicts()) }

// missed lists the missed targets for the top of the page.
func (n Result) missed() string {
	var missed, none []string
	for _, v := range n.Verdicts() {
		switch {
		case v.None:
			none = append(none, v.Name())
		case !v.Met:
			missed = append(missed, fmt.Sprintf("%s: %s, wanted %s", v.Name(), v.Measured, v.Wanted))
		}
	}
	var text []string
	if len(missed) > 0 {
		text = append(text, "**Targets missed.** "+strings.Join(missed, "; ")+".")
	}
	if len(none) > 0 {
		text = append(text, "**No verdict,** because too few rounds were in the same state, or because an engine commits after another number of operations: "+strings.Join(none, "; ")+".")
	}
	if text == nil {
		return "All targets are met."
	}
	return strings.Join(text, " ")
}
