package advise

import (
	"fmt"
	"math"

	"github.com/daybook-project/daybook/internal/digits"
)

// shareOf is a part of the time of a call, as text.
func (in Input) shareOf(seconds float64) string {
	return fmt.Sprintf("%.0f %%", 100*min(1, max(0, ratio(seconds, in.wait()))))
}

// inJournal is the mean time of a call that others in the same journal cause.
func (in Input) inJournal() float64 {
	return in.others(lock) + in.others(orderedData) + in.others(logWrites) + in.others(checkpoint)
}

// behindOthers is the mean time of a call in the queue of the disk, as far as others
// can be ahead of it.
func (in Input) behindOthers() float64 {
	return (in.phase(ownData) + in.phase(logWrites) + in.phase(flush)) *
		in.Own.Add(in.Metadata).queuedShare() * in.outstanding()
}

// divided says how much of the disk others have now, and after a remedy; "" if it is hardly
// anything.
func (o outcome) divided() string {
	now, after := ratio(o.cycle.others, o.cycle.length()), ratio(o.turn+o.outside, o.length.Median)
	if now < 0.05 && after < 0.05 {
		return ""
	}
	return fmt.Sprintf("; the disk serves others for %.0f %% of the time, in a volume %.0f %%", 100*now, 100*after)
}

func (in Input) reason(kind Kind, o outcome) string {
	switch kind {
	case DeviceVolume:
		return in.shareOf(in.inJournal()) + " of the time is others' data, handles and metadata in the same journal" + o.divided()
	case ImageVolume:
		text := in.shareOf(in.inJournal()) + " of the time is others' in the same journal"
		if behind := in.outstanding() * in.Others.served(); behind > 0.05*in.wait() {
			text += fmt.Sprintf("; each request of an image can wait %s ms behind others'", digits.Of(1e3*behind, 3))
		}
		return text + o.divided()
	case MountOption:
		return in.shareOf(in.others(orderedData)) + " of the time is others' ordered data"
	case MemoryJournal:
		return in.shareOf(in.inJournal()+in.phase(logWrites)-in.others(logWrites)) + " of the time is the log, and others' in it; data and their flush remain"
	case Weights:
		return in.shareOf(in.behindOthers()) + " of the time can be in the disk's queue behind others"
	case Limit:
		if worst, _ := in.worst(); ratio(worst.Seconds[orderedData], in.WaitSeconds) > 0.1 {
			return "the commit waits until " + worst.Name + "'s data is on the disk: with a limit it waits longer"
		}
		return in.shareOf(in.inJournal()) + " of the time is others' in the same journal"
	}
	return ""
}

// kindTexts name the remedies in a sentence.
var kindTexts = map[Kind]string{
	DeviceVolume: "a volume on a device", ImageVolume: "a volume in an image", MountOption: "a mount with dioread_nolock",
	MemoryJournal: "a journal in memory", Weights: "weights with daybook control", Limit: "a limit on the worst culprit",
}

// phaseTexts name what no remedy shortens.
var phaseTexts = map[string]string{
	lock: "the wait for open handles", orderedData: "ordered data", logWrites: "writes to the log", flush: "the disk's own flush",
	checkpoint: "the checkpoint of a full log", ownData: "its own data", rest: "in no known phase",
}

// verdict is one sentence.
func (in Input) verdict(a Advice) string {
	for _, r := range a.Remedies {
		if r.Kind == a.Best {
			return fmt.Sprintf("What helps most is %s: %s times as many syncs (%s to %s).", kindTexts[r.Kind], digits.Of(r.Gain.Median, 2), digits.Of(r.Gain.Low, 2), digits.Of(r.Gain.High, 2))
		}
	}
	longest := rest
	for phase := range phaseTexts {
		if in.phase(phase) > in.phase(longest) || in.phase(phase) == in.phase(longest) && phase < longest {
			longest = phase
		}
	}
	text := fmt.Sprintf("Nothing here helps: %s of the time is %s", in.shareOf(in.phase(longest)), phaseTexts[longest])
	if r := a.Remedies[0]; r.Gain.Median >= HelpBound {
		text += fmt.Sprintf("; %s would (%s times), but this host has no place for it", kindTexts[r.Kind], digits.Of(r.Gain.Median, 2))
	}
	return text + "."
}

// shape is a quantile of calls over their mean where others' part is gone: that of
// exponentially distributed times. Its range is from the sum of two such times, the
// standard deviation of which is 0.7 of the mean, to a mixture of two, of which it is 1.4
// times the mean.
func shape(q float64) Range {
	r := Range{solve(q, twoInTurn), -math.Log(1 - q), solve(q, twoMixed)}
	return Range{min(r.Low, r.Median, r.High), r.Median, max(r.Low, r.Median, r.High)}
}

// twoInTurn is the part of times that are longer than x, in units of the mean, of the
// sum of two exponentially distributed times; twoMixed that of a mixture of two, each of
// which has half of the whole time.
func twoInTurn(x float64) float64 { return (1 + 2*x) * math.Exp(-2*x) }
func twoMixed(x float64) float64 {
	short := (1 + 1/math.Sqrt(3)) / 2
	return short*math.Exp(-2*short*x) + (1-short)*math.Exp(-2*(1-short)*x)
}

// solve returns the x up to which a share q of the times are.
func solve(q float64, longer func(float64) float64) float64 {
	low, high := 0.0, 100.0
	for range 60 {
		if x := (low + high) / 2; longer(x) > 1-q {
			low = x
		} else {
			high = x
		}
	}
	return high
}
