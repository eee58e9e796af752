package advise

import "math"

// cycle is the time from one sync of the container to the next, in the mean: what the disk
// does in it.
type cycle struct {
	// data, journal and flushes are the container's own requests.
	data, journal, flushes float64
	// others are others' requests, with their part of the journal and of the flushes,
	// while a sync of the container is in progress.
	others float64
	// paused is the time in which the container sends no request. The disk is idle, or gap
	// is longer: the time without a sync, and without a write for which it can wait.
	paused, gap float64
}

func (c cycle) own() float64 { return c.data + c.journal + c.flushes }

func (c cycle) length() float64 { return c.own() + c.others + c.paused }

// cycle divides the time between two syncs.
func (in Input) cycle() cycle {
	calls := float64(in.Calls)
	// The requests of a commit are those of the syncs that it is for.
	part := ratio(calls, calls+float64(in.OthersCalls))
	journal, flushes := in.Metadata.taken()/calls, in.Flushes.taken()/calls
	c := cycle{
		data: in.Own.taken() / calls, journal: part * journal, flushes: part * flushes,
		others: in.Others.taken()/calls + (1-part)*(journal+flushes),
	}
	whole := in.Seconds / calls
	if busy := c.own() + c.others; busy > whole { // the disk serves several at a time
		c.data, c.journal, c.flushes, c.others = c.data*whole/busy, c.journal*whole/busy, c.flushes*whole/busy, c.others*whole/busy
	}
	c.paused = max(0, whole-c.own()-c.others)
	writes := max(0, in.timeOf(in.Own)-in.phase(ownData))
	c.gap = min(max(0, whole-in.wait()-writes), c.paused+c.others)
	if c.gap > c.paused {
		c.others, c.paused = max(0, c.others-(c.gap-c.paused)), c.gap
	}
	return c
}

// together is how many calls wait at the same time, while one waits.
func (in Input) together(c cycle) float64 { return max(1, ratio(in.wait(), c.length()-c.gap)) }

// turns says how often others are served before a request of the container's.
type turns int

const (
	// byWeight: the scheduler divides the disk's time by weights, and the container's
	// requests, with those of its journal, keep the disk for it.
	byWeight turns = iota
	// afterEach: each of a sync's requests that follow each other waits behind one of
	// others'.
	afterEach
	// afterData: the container's turn ends when its data is written and the commit
	// begins, which has another thread.
	afterData
)

// change is what a remedy changes.
type change struct {
	// nearer is the factor by which the container's requests get shorter; its range has
	// the smallest first.
	nearer Range
	// without are the phases in which it no longer waits for others.
	without []string
	// journal and flushes are the parts of these requests that stay.
	journal, flushes float64
	turns            turns
}

// after predicts the time between two syncs.
func (in Input) after(ch change) outcome {
	c := in.cycle()
	together, served := in.together(c), in.Others.served()
	own := ch.nearer.times(c.data + ch.journal*c.journal).plus(fixed(ch.flushes * c.flushes))
	var waits float64
	for _, phase := range ch.without {
		waits += in.others(phase)
	}
	// While a sync waits for others' data, these are served, or the disk is idle because
	// they are limited.
	paused := max(c.gap, c.paused-max(0, waits/together-c.others))
	// While it waits for neither the disk nor the journal, others are served.
	outside := min(max(0, in.outside()/together-paused), c.others)
	free := own.Median + paused
	var turn float64
	switch ch.turns {
	case byWeight:
		turn = free * (1 - in.Share) / in.Share
	case afterEach:
		turn = chain * served / together
	case afterData:
		turn = served
	}
	// Others that have no request waiting for a part of the time send at most so many
	// more as if that time were none.
	if waiting := in.outstanding(); waiting < 1 {
		turn = min(turn, ratio(c.others*free, c.own()+c.paused)/(1-waiting))
	}
	turn = min(turn, c.others-outside)
	// The errors of the three are independent.
	length := free + turn + outside
	return outcome{
		cycle: c, turn: turn, outside: outside, kept: 1 - min(1, ratio(waits, in.wait())), shorter: ratio(length, length+own.High-own.Median),
		length: Range{
			length - math.Sqrt(square(own.Median-own.Low)+square(turn)+square(outside)), length,
			length + math.Sqrt(square(own.High-own.Median)+square(turn)+square(outside)),
		},
	}
}

func square(x float64) float64 { return x * x }

// outcome is a predicted time between two syncs.
type outcome struct {
	// cycle is that of now.
	cycle  cycle
	length Range
	// turn is the part of the length that is others' turns, outside the part in which
	// they are served because the container waits for something else.
	turn, outside float64
	// kept is the part of a call that stays: its distribution was measured.
	kept float64
	// shorter is the factor by which shorter seeks shorten the length; 0 means 1.
	shorter float64
}

// lasting makes an outcome from the time of a call.
func (in Input) lasting(call Range, kept float64) outcome {
	c := in.cycle()
	return outcome{cycle: c, kept: kept, length: call.times(ratio(c.length()-c.gap, in.wait())).plus(fixed(c.gap))}
}

// outside is the time of a call in the phases of the container's own data, the log and the
// flush that the disk's requests do not explain: it waits for a processor, or for a free
// request of the disk while others use all.
func (in Input) outside() float64 {
	var sum float64
	for _, phase := range []string{ownData, logWrites, flush, rest} {
		own := in.phase(phase) - in.others(phase)
		sum += own - min(own, in.requestsOf(phase))
	}
	return sum
}

// requestsOf is the mean time of the requests that a call can wait for in a phase: the
// whole phase, if they are not known.
func (in Input) requestsOf(phase string) float64 {
	switch {
	case phase == rest:
		return 0
	case phase == ownData && in.Own.Count > 0:
		return in.timeOf(in.Own)
	case phase == logWrites && in.Metadata.Count > 0:
		return logPart * in.timeOf(in.Metadata)
	case phase == flush && in.Metadata.Count > 0 && in.Flushes.Count > 0:
		return (1-logPart)*in.timeOf(in.Metadata) + in.timeOf(in.Flushes)
	}
	return in.phase(phase)
}

// timeOf is the mean time of requests for each call.
func (in Input) timeOf(r Requests) float64 {
	return ratio(r.QueuedSeconds+r.ServedSeconds, float64(in.Calls))
}

// outstanding is the probability that one of others' requests is in the scheduler or on
// the disk.
func (in Input) outstanding() float64 {
	return min(1, (in.Others.QueuedSeconds+in.Others.ServedSeconds)/in.Seconds)
}
