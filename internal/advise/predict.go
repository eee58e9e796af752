package advise

import (
	"fmt"
	"math"
	"slices"

	"github.com/daybook-project/daybook/internal/digits"
)

// Kind is a remedy.
type Kind string

// The remedies.
const (
	// Weights are those that daybook control enforces.
	Weights Kind = "weights"
	// MountOption is a mount with dioread_nolock.
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

// fixed is what is known exactly.
func fixed(a float64) Range { return Range{a, a, a} }

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

// Unpredicted is what was measured, with the reason for which nothing can be predicted.
func Unpredicted(in Input, why string) Advice {
	advice := in.measured()
	advice.Verdict = "No prediction: " + why + "."
	return advice
}

func (in Input) measured() Advice {
	return Advice{
		Calls: in.Calls, NeededCalls: MinCalls, Remedies: []Remedy{},
		Now: Figures{SyncsPerSecond: float64(in.Calls) / in.Seconds, P50Seconds: in.quantile(0.5), P99Seconds: in.quantile(0.99)},
	}
}

// Predict predicts what each remedy would give.
func Predict(in Input) (Advice, error) {
	if err := in.Check(); err != nil {
		return Advice{}, err
	}
	advice := in.measured()
	if in.Calls < MinCalls {
		advice.Verdict = fmt.Sprintf("Too few syncs for a prediction: %d in %s s, want %d.", in.Calls, digits.Of(in.Seconds, 3), MinCalls)
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

// figures makes the figures of a remedy.
func (in Input) figures(r Remedy, o outcome) Remedy {
	now, gap := in.wait(), o.cycle.gap
	// As many calls as now wait at the same time.
	together := ratio(now, o.cycle.length()-gap)
	if together == 0 {
		together = 1
	}
	call := o.length.plus(fixed(-gap)).times(together)
	spread := 1 + rangeWidth*math.Sqrt(2)*in.variation()/math.Sqrt(in.independent())
	sampled := Range{call.Low / spread, call.Median, call.High * spread}
	// No remedy makes the mean shorter than a quarter of the fastest call was, or half of
	// what stays of a call.
	least := in.quantile(0) / 4
	if stays := o.kept * now / 2; stays > 0 {
		least = min(least, stays)
	}
	call, sampled = call.atLeast(least), sampled.atLeast(least)
	r.Gain = sampled.times(1 / together).plus(fixed(gap)).over(o.cycle.length())
	r.SyncsPerSecond = r.Gain.times(float64(in.Calls) / in.Seconds)
	turns := min(1, ratio(o.turn, o.length.Median-gap))
	own := func(q float64) Range {
		// A quantile that was measured has its own range; the mean of what was not has one.
		stays := call.product(in.quantileRange(q)).times(ratio(o.kept, now))
		if q > 0.5 && o.shorter > 0 {
			// The longest calls may wait for much else than seeks: these shorten them as the
			// others, or not at all, as in the range of the mean.
			stays.Median /= math.Sqrt(o.shorter)
		}
		r := stays.plus(sampled.product(shape(q)).times(1 - o.kept)).times(1 - turns)
		// The waits outside of requests do not get shorter, and may be these calls.
		if at := in.quantile(q); o.outside*together >= (1-q)*at {
			r.Median, r.High = max(r.Median, at), max(r.High, in.quantileRange(q).High)
		}
		return r
	}
	others := func(q float64) Range { return in.behindTurns(q, turns*call.Median) }
	// A call is long by its own requests or by others' turns, and in the other part as
	// most are. In the range it is long by both, or by its own alone.
	quantile := func(q float64) Range {
		a, b := own(q), others(q)
		middle, short := own(0.5).Median, others(0.5).Median
		return Range{a.Low, max(a.Median+short, middle+b.Median), a.High + b.High}
	}
	r.P50Seconds, r.P99Seconds = quantile(0.5), quantile(0.99)
	return r
}

// behindTurns is a quantile of the time that calls wait for others' turns, of which the
// mean is given. A turn is one of others' requests at least, so a short mean is that of few
// calls. The times of these are exponentially distributed.
func (in Input) behindTurns(q, mean float64) Range {
	if mean == 0 {
		return Range{}
	}
	meet := 1.0
	if served := in.Others.served(); served > mean {
		meet = mean / served
	}
	longer := max(0, math.Log(meet/(1-q)))
	of := shape(q)
	return Range{0, 1, of.High / of.Median}.times(mean / meet * longer)
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
