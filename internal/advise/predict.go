package advise

import (
	"fmt"
	"math"
	"slices"
)

// Kind is a remedy.
type Kind string

// The remedies.
const (
	// Weights are those that daybook control enforces.
	Weights Kind = "weights"
	// MountOption is a mount without ordered data.
	MountOption Kind = "mount_option"
	// DeviceVolume is a volume on a device of its own, ImageVolume one in an image on
	// XFS.
	DeviceVolume Kind = "device_volume"
	ImageVolume  Kind = "image_volume"
	// MemoryJournal is a journal in persistent memory (ext4nvj).
	MemoryJournal Kind = "memory_journal"
	// Limit is a limit on the writes of the worst culprit.
	Limit Kind = "limit"
)

// Kinds are all remedies, in the order in which they are tried.
func Kinds() []Kind {
	return []Kind{DeviceVolume, ImageVolume, MountOption, MemoryJournal, Weights, Limit}
}

// Range is an estimate: the true value is expected between Low and High.
type Range struct {
	Low    float64 `json:"low"`
	Median float64 `json:"median"`
	High   float64 `json:"high"`
}

// over returns the range of a divided by the values of a range.
func (r Range) over(a float64) Range {
	return Range{ratio(a, r.High), ratio(a, r.Median), ratio(a, r.Low)}
}

func (r Range) product(o Range) Range {
	return Range{r.Low * o.Low, r.Median * o.Median, r.High * o.High}
}

func (r Range) plus(o Range) Range { return Range{r.Low + o.Low, r.Median + o.Median, r.High + o.High} }

func (r Range) atLeast(a float64) Range {
	return Range{max(r.Low, a), max(r.Median, a), max(r.High, a)}
}

func (r Range) times(a float64) Range { return Range{a * r.Low, a * r.Median, a * r.High} }

// Figures describe the syncs of a container.
type Figures struct {
	SyncsPerSecond float64 `json:"syncs_per_second"`
	P50Seconds     float64 `json:"p50_seconds"`
	P99Seconds     float64 `json:"p99_seconds"`
}

// Remedy is what one remedy would give.
type Remedy struct {
	Kind Kind `json:"remedy"`
	// Possible is false if the host has no place for it; Reason then says why, and the
	// figures are those that it would give.
	Possible bool `json:"possible"`
	// Gain is the throughput of syncs over the present one.
	Gain           Range `json:"gain"`
	SyncsPerSecond Range `json:"syncs_per_second"`
	P50Seconds     Range `json:"p50_seconds"`
	P99Seconds     Range `json:"p99_seconds"`
	// Reason says where the time goes.
	Reason string `json:"reason"`
}

// Advice is what is known of one container on one file system.
type Advice struct {
	// Calls are those that were measured, and NeededCalls how many a prediction needs.
	Calls       uint64  `json:"calls"`
	NeededCalls uint64  `json:"needed_calls"`
	Now         Figures `json:"now"`
	// Verdict is one sentence.
	Verdict string `json:"verdict"`
	// Best is the remedy that helps most; "": none helps, or too little was measured.
	Best Kind `json:"best,omitempty"`
	// Remedies are sorted by their median gain, greatest first; empty if too little
	// was measured.
	Remedies []Remedy `json:"remedies"`
}

// HelpBound is the least median gain of a remedy that is said to help.
const HelpBound = 1.2

// Predict predicts what each remedy would give.
func Predict(in Input) (Advice, error) {
	if err := in.Check(); err != nil {
		return Advice{}, err
	}
	advice := Advice{
		Calls: in.Calls, NeededCalls: MinCalls, Remedies: []Remedy{},
		Now: Figures{SyncsPerSecond: float64(in.Calls) / in.Seconds, P50Seconds: in.quantile(0.5), P99Seconds: in.quantile(0.99)},
	}
	if in.Calls < MinCalls {
		advice.Verdict = fmt.Sprintf("Too few syncs for a prediction: %d in %.3g s, want %d.", in.Calls, in.Seconds, MinCalls)
		return advice, nil
	}
	for _, kind := range Kinds() {
		advice.Remedies = append(advice.Remedies, in.remedy(kind))
	}
	slices.SortStableFunc(advice.Remedies, func(a, b Remedy) int {
		switch {
		case a.Gain.Median > b.Gain.Median:
			return -1
		case a.Gain.Median < b.Gain.Median:
			return 1
		}
		return 0
	})
	for _, r := range advice.Remedies {
		if r.Possible && r.Gain.Median >= HelpBound {
			advice.Best = r.Kind
			break
		}
	}
	advice.Verdict = in.verdict(advice)
	return advice, nil
}

// think is what the container does between two syncs, for each: the time in which no call
// can have been in progress, and at least its writes between the syncs.
func (in Input) think() float64 {
	writes, _ := in.between(1)
	return max(writes, in.idle())
}

// idle is the part of the interval in which no call can have been in progress, for each
// call.
func (in Input) idle() float64 {
	return max(0, ratio(in.Seconds-in.WaitSeconds, float64(in.Calls)))
}

// busyOthers is the part of the disk's time that serves others' requests, 0 to 1.
func (in Input) busyOthers() float64 { return min(1, in.Others.ServedSeconds/in.Seconds) }

// wait is an estimate of the mean time of a call, and how much of it is of calls as
// they were measured.
type wait struct {
	Range
	kept float64
	// nearer is the factor by which shorter seeks shorten it; 0 means 1.
	nearer float64
	// workless is by how much shorter the time between two syncs gets.
	workless float64
}

// figures makes the figures of a remedy from the mean time of a call.
func (in Input) figures(r Remedy, w wait) Remedy {
	now, think := in.wait(), in.think()
	spread := 1 + rangeWidth*math.Sqrt(2)*in.variation()/math.Sqrt(in.independent())
	sampled := Range{w.Low / spread, w.Median, w.High * spread}
	// No remedy makes the mean shorter than a quarter of the fastest call was, or half of
	// what is the container's own.
	least := in.quantile(0) / 4
	if own := in.ownParts(1); own.outside+own.requests > 0 {
		least = min(least, (own.outside+own.requests)/2)
	}
	w.Range, sampled = w.Range.atLeast(least), sampled.atLeast(least)
	after := think - w.workless
	r.Gain = Range{sampled.Low + after, sampled.Median + after, sampled.High + after}.over(now + think)
	r.SyncsPerSecond = r.Gain.times(float64(in.Calls) / in.Seconds)
	kept := min(1, max(0, ratio(w.kept, now)))
	// The longest calls wait behind many requests, and not for a long seek.
	tail := 1.0
	if w.nearer > 0 {
		tail = 1 / w.nearer
	}
	// A quantile that was measured has its own range; the mean of what was not has one.
	r.P50Seconds = w.product(in.quantileRange(0.5)).times(kept / now).plus(sampled.product(shape(0.5)).times(1 - kept))
	r.P99Seconds = w.product(in.quantileRange(0.99)).times(kept * tail / now).plus(sampled.product(shape(0.99)).times(1 - kept))
	return r
}

// rangeWidth is how many standard errors a range has on each side: those that contain
// the value in 8 of 10 cases, if it is measured as long as this interval.
const rangeWidth = 1.28

// independent is the number of calls that do not wait for the same: calls that are in
// progress at the same time stall together.
func (in Input) independent() float64 {
	return max(1, float64(in.Calls)/max(1, in.WaitSeconds/in.Seconds))
}

// variation is the standard deviation of the calls over their mean.
func (in Input) variation() float64 {
	var calls, sum, squares float64
	for _, b := range in.Histogram {
		n, at := float64(b.Calls), b.UpperSeconds*17/18 // the middle of the bucket
		calls, sum, squares = calls+n, sum+n*at, squares+n*at*at
	}
	if sum == 0 {
		return 0
	}
	mean := sum / calls
	return math.Sqrt(max(0, squares/calls-mean*mean)) / mean
}

// quantileRange is a quantile of the calls, and where it would be in another sample of
// as many. The part of the calls that are longer is binomially distributed, so its
// logarithm has a standard deviation of about sqrt(q / longer calls), here of two samples.
func (in Input) quantileRange(q float64) Range {
	n := in.independent()
	factor := math.Exp(rangeWidth * math.Sqrt(2*q/(n*(1-q)+1)))
	at := in.quantile(q)
	return Range{min(at, in.exceeded(min(1, (1-q)*factor))), at, max(at, in.exceeded((1-q)/factor))}
}

// exceeded is the time that a share of the calls exceeds. Beyond the longest call the
// tail goes on as above the longest tenth: exponentially.
func (in Input) exceeded(share float64) float64 {
	one := 1 / float64(in.Calls)
	if share >= one {
		return in.quantile(1 - share)
	}
	return in.quantile(1) + in.tail()*math.Log(one/share)
}

// tail is by how much the longest tenth of the calls is longer than the others, in the
// mean.
func (in Input) tail() float64 {
	from := in.quantile(0.9)
	var calls, sum float64
	for _, b := range in.Histogram {
		if at := b.UpperSeconds * 17 / 18; at > from {
			calls, sum = calls+float64(b.Calls), sum+float64(b.Calls)*(at-from)
		}
	}
	return ratio(sum, calls)
}
