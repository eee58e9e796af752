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

// The constants of the model: of hard disks, of jbd2 and of a database.
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

// shorterQueue is the factor by which the time of the container's own data shrinks if
// none of its requests waits longer in the scheduler than others' request takes.
// Beside others' ordered data it waits longer: the commit sends much of it at once.
func (in Input) shorterQueue() float64 {
	served, queued := in.Own.served(), in.Own.queued()
	return ratio(served+in.shorter(queued), served+queued)
}

// shorter is the time in the scheduler without others' ordered data.
func (in Input) shorter(queued float64) float64 {
	if in.others(orderedData) == 0 || in.Others.Count == 0 {
		return queued
	}
	return min(queued, in.Others.served())
}

// parts are those of the mean time of a call without others in its journal.
type parts struct {
	// requests is what its requests take, and near what they take after shorter seeks.
	requests, near float64
	// outside is what it waits for something else: a processor, or a free request
	// while others fill the disk's queue.
	outside float64
	// kept is what of both was measured so.
	kept float64
}

// ownParts divides a call, with seeks that take nearer times as long.
func (in Input) ownParts(nearer float64) parts {
	var p parts
	for _, phase := range []string{lock, orderedData, logWrites, flush, checkpoint, ownData, rest} {
		own := in.phase(phase) - in.others(phase)
		p.kept += own
		requests := min(own, in.requestsOf(phase))
		p.outside += own - requests
		factor := nearer
		switch phase {
		case ownData:
			if in.Own.Count > 0 {
				requests *= in.shorterQueue()
			}
			factor = in.nearerWith(in.Own, nearer)
		case logWrites:
			factor = in.nearerWith(in.Metadata, nearer)
		case flush:
			// The flush itself does not get shorter, but the record and the requests
			// before the flush do.
			record := min(1, ratio((1-logPart)*in.timeOf(in.Metadata), in.requestsOf(flush)))
			flushing := 1 - in.Flushes.waiting()*(1-in.nearerInQueue(nearer))
			factor = record*in.nearerWith(in.Metadata, nearer) + (1-record)*flushing
		}
		p.requests += requests
		p.near += factor * requests
	}
	hidden := in.hiddenLog()
	p.requests += hidden
	p.near += in.nearerWith(in.Metadata, nearer) * hidden
	return p
}

// nearerWith is the factor by which requests get shorter if their seeks make them nearer
// times as long.
func (in Input) nearerWith(r Requests, nearer float64) float64 {
	// In a volume no request waits for others' ordered data.
	r.QueuedSeconds = in.shorter(r.queued()) * float64(r.Count)
	waiting := r.waiting()
	return (1-waiting)*nearer + waiting*in.nearerInQueue(nearer)
}

// nearerInQueue is the factor by which the time behind other requests gets shorter. Those
// of others keep their seeks: as much as these take of the disk's time.
func (in Input) nearerInQueue(nearer float64) float64 {
	all := in.Own.Add(in.Metadata).Add(in.Others).Add(in.Flushes)
	return 1 - (1-nearer)*(1-ratio(in.Others.taken(), all.taken()))
}

// timeOf is the mean time of requests for each call.
func (in Input) timeOf(r Requests) float64 {
	return ratio(r.QueuedSeconds+r.ServedSeconds, float64(in.Calls))
}

// requestsOf is the mean time of the requests that a call can wait for in a phase: the
// whole phase, if they are not known.
func (in Input) requestsOf(phase string) float64 {
	each := func(r Requests) float64 {
		if r.Count == 0 {
			return in.phase(phase)
		}
		return in.timeOf(r)
	}
	switch phase {
	case rest:
		return 0
	case ownData:
		return each(in.Own)
	case logWrites:
		return logPart * each(in.Metadata)
	case flush:
		return (1-logPart)*each(in.Metadata) + each(in.Flushes)
	}
	return in.phase(phase)
}

// hiddenLog is the time for the log that the commit does not show now: it writes its log
// while it waits for ordered data.
func (in Input) hiddenLog() float64 {
	if in.others(orderedData) == 0 {
		return 0
	}
	// A sync waits for one commit at most.
	writes := min(1, logPart*ratio(float64(in.Metadata.Count), float64(in.Calls)))
	log := writes * (in.Metadata.served() + in.shorter(in.Metadata.queued()))
	return min(max(0, log-(in.phase(logWrites)-in.others(logWrites))), in.others(orderedData))
}

// nearer is the factor by which requests get shorter on a part of the disk: the time of
// a seek grows with the root of the distance. From others' requests the way does not get
// shorter.
func (in Input) nearer() float64 {
	if !in.Rotational || in.SpanShare == 0 {
		return 1
	}
	return 1 - in.seekPart()*(1-math.Sqrt(in.SpanShare))
}

// seekPart is the part of the time of the container's small requests and of the journal's
// that is the way from another of them.
func (in Input) seekPart() float64 {
	if perRoot, known := in.Moves.secondsPerRoot(); known && in.OwnMoves.Requests > 0 {
		return min(1, ratio(perRoot*in.Near.Roots, in.OwnMoves.AloneSeconds))
	}
	// Not known. Others' requests bring the head back: before the first request of a
	// sync, and before each if all must wait until one of others' requests is free.
	together := 1.0
	if served := in.Others.served(); served > 0 {
		together = 1 / (1 + in.ownParts(1).outside/served)
	}
	return usualSeekPart * (1 - in.busyOthers()/(1+(chain-1)*together))
}

// between is the time of the writes that the container waits for between two syncs, for
// each sync: those that are not in the sync's phases, now and in a volume. One is waited
// for, as by a database with direct I/O, and more if there is time without a sync; others
// are written in the background.
func (in Input) between(nearer float64) (now, volume float64) {
	each, own := in.Own.served()+in.Own.queued(), in.phase(ownData)
	if each == 0 {
		return 0, 0
	}
	writes := ratio(float64(in.Own.Count), float64(in.Calls))
	writes = min(writes, max(1, (in.idle()+own)/each))
	now = max(0, writes*each-own)
	own *= in.shorterQueue()
	volume = max(0, writes*(in.Own.served()+in.shorter(in.Own.queued()))-own) * in.nearerWith(in.Own, nearer)
	return now, min(now, volume)
}

// onDevice is a volume on a device of its own on this disk.
func (in Input) onDevice() wait { return in.alone(in.nearer()) }

// alone is a call without others in its journal, whose requests take nearer times as
// long.
func (in Input) alone(nearer float64) wait {
	p := in.ownParts(nearer)
	median := p.outside + p.near
	own := in.phase(ownData) * in.shorterQueue()
	queue := own * in.Own.queuedShare() * in.outstanding()
	between, after := in.between(nearer)
	// Others may fill the disk's queue less than now, or more: they no longer wait for
	// this container.
	filled := in.outstanding() * (p.outside - in.phase(rest))
	return wait{
		Range:    Range{median - min(queue+filled, median/2), median, max(p.kept, p.outside+p.requests) + filled + in.outstanding()*in.Others.served()},
		kept:     p.kept,
		nearer:   ratio(median, p.outside+p.requests),
		workless: between - after,
	}
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
	w := in.alone(1)
	stays := in.others(lock) + in.others(logWrites) + in.others(checkpoint) + in.others(flush) + in.others(ownData) + in.others(rest)
	w.Range = Range{w.Low + stays, w.Median + stays, w.High + stays}
	w.kept += stays
	return w
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
