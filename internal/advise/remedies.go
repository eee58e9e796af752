package advise

import (
	"fmt"
	"math"
)

// remedy predicts one remedy.
func (in Input) remedy(kind Kind) Remedy {
	r := Remedy{Kind: kind, Possible: true}
	var w wait
	switch kind {
	case DeviceVolume:
		r.Possible, r.Reason = in.DeviceVolume == "", in.DeviceVolume
		w = in.onDevice()
	case ImageVolume:
		r.Possible, r.Reason = in.ImageVolume == "", in.ImageVolume
		w = in.inImage()
	case MountOption:
		if in.Mode != Ordered {
			r.Possible, r.Reason = false, fmt.Sprintf("the file system is mounted so already: no commit waits for data (%s)", in.Mode)
		}
		w = in.withoutOrderedData()
	case MemoryJournal:
		r.Possible, r.Reason = in.MemoryJournal == "", in.MemoryJournal
		w = in.journalInMemory()
	case Weights:
		w = in.withWeights()
	case Limit:
		if len(in.Culprits) == 0 {
			r.Possible, r.Reason = false, "it waits for no other container"
		}
		w = in.withLimit()
	}
	if r.Reason == "" {
		r.Reason = in.reason(kind)
	}
	return in.figures(r, w)
}

// The constants of the model. They were chosen with the tuning set of bench-advise.
const (
	// seekPart is the part of a small request's time on a hard disk that is seek.
	seekPart = 0.5
	// chain is how many requests of a sync follow each other: its data, and the log
	// and the commit record, of which some are served at once.
	chain = 2.5
	// workPart is what a container works between two syncs, as a part of the time
	// that its sync takes without others.
	workPart = 0.3
)

// shorterQueue is the factor by which the time of the container's own data shrinks if
// none of its requests waits longer in the scheduler than others' request takes.
// Beside others' ordered data it waits longer: the commit sends much of it at once.
func (in Input) shorterQueue() float64 {
	served, queued := in.Own.served(), in.Own.queued()
	if in.others(orderedData) == 0 || in.Others.Count == 0 {
		return 1
	}
	return ratio(served+min(queued, in.Others.served()), served+queued)
}

// ownParts is the mean time of a call without others in its journal; kept is what of it
// was measured so.
func (in Input) ownParts() (sum, kept float64) {
	for _, phase := range []string{lock, orderedData, logWrites, flush, checkpoint, ownData, rest} {
		kept += in.phase(phase) - in.others(phase)
	}
	return kept - in.phase(ownData)*(1-in.shorterQueue()), kept
}

// nearer is the factor by which requests get shorter on a part of the disk: the time of
// a seek grows with the root of the distance. Others' requests bring the head back.
func (in Input) nearer() float64 {
	if !in.Rotational || in.SpanShare == 0 {
		return 1
	}
	return 1 - seekPart*(1-math.Sqrt(in.SpanShare))*(1-in.busyOthers())
}

// onDevice is a volume on a device of its own on this disk.
func (in Input) onDevice() wait {
	sum, kept := in.ownParts()
	median := sum * in.nearer()
	queue := in.phase(ownData) * in.shorterQueue() * in.Own.queuedShare() * in.outstanding()
	return wait{Range: Range{median - min(queue, median/2), median, kept + in.outstanding()*in.Others.served()}, kept: kept, nearer: in.nearer()}
}

// outstanding is the probability that one of others' requests is in the scheduler or on
// the disk.
func (in Input) outstanding() float64 {
	return min(1, (in.Others.QueuedSeconds+in.Others.ServedSeconds)/in.Seconds)
}

// inImage is a volume in an image: its requests come from kernel workers, for which the
// scheduler does not keep the disk idle. Each waits behind one of others'.
func (in Input) inImage() wait {
	w := in.onDevice()
	behind := chain * in.outstanding() * in.Others.served()
	w.Range = Range{w.Low, w.Median + behind, w.High + 2*behind}
	return w
}

// withoutOrderedData is a mount with dioread_nolock or data=writeback. Others' handles
// and metadata stay in the journal.
func (in Input) withoutOrderedData() wait {
	kept := in.wait() - in.others(orderedData)
	median := kept - in.phase(ownData)*(1-in.shorterQueue())
	queue := in.phase(ownData) * in.shorterQueue() * in.Own.queuedShare() * in.outstanding()
	return wait{Range: Range{median - min(queue, median/2), median, kept + in.outstanding()*in.Others.served()}, kept: kept}
}

// journalInMemory is a journal of its own in memory: no log on the disk, but the data
// and a flush.
func (in Input) journalInMemory() wait {
	least := in.phase(ownData) + in.phase(rest)
	flushed := min(in.phase(flush), in.Flushes.served()+in.Flushes.queued())
	return wait{Range: Range{least, least + flushed, least + in.phase(flush)}, kept: least + flushed}
}

// withWeights is daybook control on the disk. It shortens the queue, and not what a
// commit must wait for.
func (in Input) withWeights() wait {
	queue := in.behindOthers()
	now := in.wait()
	return wait{Range: Range{now - queue, now - queue/2, now}, kept: now - queue/2}
}

// withLimit is a limit on the worst culprit, to half of what it writes now.
func (in Input) withLimit() wait {
	now := in.wait()
	if len(in.Culprits) == 0 {
		return wait{Range: Range{now, now, now}, kept: now}
	}
	worst := in.Culprits[0]
	ordered := ratio(worst.Seconds[orderedData], float64(in.Calls))
	less := ratio(worst.total()-worst.Seconds[orderedData], float64(in.Calls)) / 2
	return wait{Range: Range{now - less, max(0, now-less/2+ordered), now + 2*ordered}, kept: now - less}
}
