package nvjournal

import (
	"fmt"
	"strings"

	"github.com/daybook-project/daybook/internal/experiment/statistics"
	"github.com/daybook-project/daybook/internal/experiment/verdict"
)

// Bounds of the journal in byte-addressable memory.
const (
	// UpdateOverFloor is the time of one update of 256 bytes over that of
	// copying, flushing and fencing them.
	UpdateOverFloor = 1.5
	// CommitMicroseconds is one commit of one thread, without disk I/O.
	CommitMicroseconds = 2.0
	// TwoThreads is the rate of two threads over that of one.
	TwoThreads = 1.8
	// OverOneLock is the rate over that of the journal with one lock, at the number of
	// threads with the most contention.
	OverOneLock = 2.3
	// BytesOverBlocks is the bytes of records of whole blocks over those of records of
	// lines.
	BytesOverBlocks = 5.0
)

// bestOneLock is the best form of one lock: one fence for all records of an operation.
const bestOneLock = "one-lock-one-fence"

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
	if least == 1 {
		v.Wanted = "over 1×"
	}
	if count < leastPairs {
		v.None, v.Measured = true, "only "+rounds
		if count == 0 {
			v.Measured = "no such rounds"
		}
		return v
	}
	v.Value = ratio.Median
	v.Measured = fmt.Sprintf("%.2f× (%s%s)", v.Value, where, rounds)
	v.Met = v.Value >= least && (least != 1 || v.Value > 1)
	return v
}

// Verdicts compares the result with the bounds. A target that depends on the
// distance of the processors has a verdict for each state.
func (n Result) Verdicts() (all []verdict.Verdict) {
	most := func(target string, value, bound float64, format string) {
		all = append(all, verdict.Verdict{Target: target, Wanted: fmt.Sprintf("at most "+format, bound), Measured: fmt.Sprintf(format, value),
			Value: value, Bound: bound, Met: value > 0 && value <= bound})
	}
	for _, partitions := range []int{1, 8} {
		u := n.update("nvjournal", partitions)
		most(fmt.Sprintf("an update of 256 bytes over the floor, P = %d", partitions), u.OverFloor.Median, UpdateOverFloor, "%.2f×")
		for _, state := range states {
			two := u.two(state)
			all = append(all, ratioVerdict(fmt.Sprintf("two threads over one, P = %d", partitions), state, two.OverOne, "", roundsText(two.Rounds), two.Rounds, TwoThreads))
		}
	}
	for _, c := range n.Commit {
		most(fmt.Sprintf("a commit at one thread, mean, P = %d", c.Partitions), c.Mean.Median, CommitMicroseconds, "%.2f µs")
	}
	for _, s := range n.Streams {
		for _, state := range states {
			all = append(all, n.overOneLock(s.Stream, state))
		}
	}
	for _, state := range states {
		ratios := n.overOneLockUpdates(state)
		all = append(all, ratioVerdict("over one lock, updates of 256 bytes, two threads", state, statistics.SpreadOf(ratios), "", pairsText(len(ratios)), len(ratios), OverOneLock))
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
			all = append(all, n.overPmemobj(s.Stream, state))
		}
	}
	return all
}

// overOneLock compares with the best form of one lock at the number of threads, two or
// more, where that one is slowest in this state: chosen by the baseline alone, not by
// what suits us.
func (n Result) overOneLock(stream string, state State) verdict.Verdict {
	target := "over one lock with one fence, where contention shows most, " + stream
	threads, least := 0, 0.0
	for _, r := range n.Rows {
		if r.Stream != stream || r.Engine != bestOneLock || r.Threads == 1 {
			continue
		}
		if rate := rateIn(r.Rates, state); rate != nil && (threads == 0 || rate.UpdatesPerSecond.Median < least) {
			threads, least = r.Threads, rate.UpdatesPerSecond.Median
		}
	}
	ratio := n.ratio(stream, bestOneLock, threads, state)
	if ratio == nil {
		return ratioVerdict(target, state, statistics.Spread{}, "", "", 0, OverOneLock)
	}
	return ratioVerdict(target, state, ratio.Ratio, threadsText(threads), pairsText(ratio.Pairs), ratio.Pairs, OverOneLock)
}

// overPmemobj is the least ratio to libpmemobj over all numbers of threads. If it is
// good, but one number of threads has too few pairs, there is no verdict.
func (n Result) overPmemobj(stream string, state State) verdict.Verdict {
	target := "over libpmemobj at each number of threads, " + stream
	var worst *Ratio
	var without []string
	for _, r := range n.Rows {
		if r.Stream != stream || r.Engine != "libpmemobj" || (r.Threads == 1) != (state == Alone) {
			continue
		}
		ratio := n.ratio(stream, r.Engine, r.Threads, state)
		switch {
		case ratio == nil || ratio.Pairs < leastPairs:
			without = append(without, fmt.Sprint(r.Threads))
		case worst == nil || ratio.Ratio.Median < worst.Ratio.Median:
			worst = ratio
		}
	}
	if worst == nil {
		return ratioVerdict(target, state, statistics.Spread{}, "", "", 0, 1)
	}
	v := ratioVerdict(target, state, worst.Ratio, threadsText(worst.Threads), pairsText(worst.Pairs), worst.Pairs, 1)
	if v.Met && len(without) > 0 {
		v.Met, v.None = false, true
		v.Measured += "; too few pairs with " + strings.Join(without, ", ") + " threads"
	}
	return v
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
		text = append(text, "**No verdict,** because too few rounds were in the same state: "+strings.Join(none, "; ")+".")
	}
	if text == nil {
		return "All targets are met."
	}
	return strings.Join(text, " ")
}
