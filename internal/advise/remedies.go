package advise

import (
	"fmt"
	"math"

	"github.com/daybook-project/daybook/internal/account"
)

// remedy predicts one remedy.
func (in Input) remedy(kind Kind) Remedy {
	r := Remedy{Kind: kind, Possible: true}
	var o outcome
	switch kind {
	case DeviceVolume:
		r.Possible, r.Reason = in.DeviceVolume == "", in.DeviceVolume
		o = in.onDevice()
	case ImageVolume:
		r.Possible, r.Reason = in.ImageVolume == "", in.ImageVolume
		o = in.inImage()
	case MountOption:
		if in.Mode == Ordered {
			o = in.withoutOrderedData()
		} else {
			r.Possible, r.Reason = false, fmt.Sprintf("the file system is mounted so already: no commit waits for data (%s)", in.Mode)
			o = in.lasting(fixed(in.wait()), 1) // nothing changes
		}
	case MemoryJournal:
		r.Possible, r.Reason = in.MemoryJournal == "", in.MemoryJournal
		o = in.journalInMemory()
	case Weights:
		if !account.Adjustable(in.Cgroup) {
			r.Possible, r.Reason = false, "only a cgroup other than the root, and that still exists, can have a weight"
		}
		o = in.withWeights()
	case Limit:
		if len(in.Culprits) == 0 {
			r.Possible, r.Reason = false, "it waits for no other container"
		} else if _, found := in.worst(); !found {
			r.Possible, r.Reason = false, "it waits only for the root cgroup or cgroups that have ended, which can have no limit"
		}
		o = in.withLimit()
	}
	if r.Reason == "" {
		r.Reason = in.reason(kind, o)
	}
	return in.figures(r, o)
}

// The constants of the model: of hard disks, and of jbd2.
const (
	// usualSeekPart is the part of a small request's time on a hard disk that is seek:
	// 8.5 ms in the mean, and 4.2 ms for half a turn.
	usualSeekPart = 2.0 / 3
	// chain is how many requests of a sync follow each other: its data, and the log
	// and the commit record, of which some are served at once.
	chain = 2.5
	// logPart is the part of the writes of a commit that are its log: it is written
	// in one request and its commit record in another, which counts as flush.
	logPart = 0.5
)

// nearer is the factor by which requests get shorter on a part of the disk. The time of a
// seek grows with the root of the way; in the range it grows with the way, or not at all.
func (in Input) nearer() Range {
	if !in.Rotational || in.SpanShare == 0 {
		return fixed(1)
	}
	return Range{in.withWays(in.SpanShare), in.withWays(math.Sqrt(in.SpanShare)), 1}
}

// withWays is the factor by which requests get shorter if all follow another of the
// container or its journal, and these ways take a part of what they take now. A commit
// record then follows its log, without a way.
func (in Input) withWays(part float64) float64 {
	perRoot, known := in.Moves.secondsPerRoot()
	if !known || in.OwnMoves.Requests == 0 {
		return 1 - usualSeekPart*(1-part)
	}
	requests := float64(in.OwnMoves.Requests)
	far := in.OwnMoves // not known which
	if in.Near.Requests > in.Journal.Requests {
		far = Moves{Requests: in.Near.Requests - in.Journal.Requests, Roots: max(0, in.Near.Roots-in.Journal.Roots)}
	}
	records := min(requests, logPart*float64(in.Metadata.Count))
	less := perRoot * (in.OwnMoves.Roots - part*(requests-records)*far.Roots/float64(far.Requests))
	return min(1, max(0, 1-ratio(less, max(in.OwnMoves.AloneSeconds, in.Own.taken()+in.Metadata.taken()))))
}

// ownVolume is what changes with a file system of its own on this disk.
func (in Input) ownVolume() change {
	ch := change{nearer: in.nearer(), without: account.WaitPhases, journal: 1, flushes: 1, turns: byWeight}
	if in.Share == 0 {
		ch.turns = afterEach
	}
	return ch
}

// onDevice is a volume on a device of its own on this disk.
func (in Input) onDevice() outcome { return in.after(in.ownVolume()) }

// inImage is a volume in an image: its requests come from kernel workers, for which the
// scheduler does not keep the disk.
func (in Input) inImage() outcome {
	ch := in.ownVolume()
	ch.turns = afterEach
	return in.after(ch)
}

// withoutOrderedData is a mount with dioread_nolock or data=writeback. Others' handles
// and metadata stay in the journal.
func (in Input) withoutOrderedData() outcome {
	return in.after(change{nearer: fixed(1), without: []string{orderedData}, journal: 1, flushes: 1, turns: afterData})
}

// journalInMemory is a file system of its own with a journal in memory: no log on the disk,
// but the data, and a flush at most.
func (in Input) journalInMemory() outcome {
	ch := in.ownVolume()
	ch.nearer, ch.journal = fixed(1), 0
	ch.flushes = min(1, ratio(float64(in.Calls+in.OthersCalls), float64(in.Flushes.Count)))
	return in.after(ch)
}

// withWeights is daybook control on the disk. It shortens the queue, and not what a
// commit must wait for.
func (in Input) withWeights() outcome {
	queue := in.behindOthers()
	now := in.wait()
	return in.lasting(Range{now - queue, now - queue/2, now}, 1-ratio(queue/2, now))
}

// withLimit is a limit on the worst culprit, to half of what it writes now.
func (in Input) withLimit() outcome {
	now := in.wait()
	worst, found := in.worst()
	if !found {
		return in.lasting(fixed(now), 1)
	}
	ordered := ratio(worst.Seconds[orderedData], float64(in.Calls))
	less := ratio(worst.total()-worst.Seconds[orderedData], float64(in.Calls)) / 2
	return in.lasting(Range{now - less, max(0, now-less/2+ordered), now + 2*ordered}, ratio(now-less, now))
}
