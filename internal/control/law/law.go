package law

import (
	"fmt"
	"math"
	"slices"
)

// Range is the range of weights that a weight file accepts, both ends included:
// 1..1000 for BFQ, 1..10000 for io.weight, 10..1000 for CFQ's blkio.weight.
type Range struct {
	Min uint64 `json:"min"`
	Max uint64 `json:"max"`
}

// BFQRange is the range of blkio.bfq.weight and io.bfq.weight.
var BFQRange = Range{Min: 1, Max: 1000}

// MaxWeight is above every weight file's range; a Range above it is rejected.
const MaxWeight = 1_000_000

// Validate rejects an empty range and one that no weight file has.
func (r Range) Validate() error {
	if r.Min < 1 || r.Max < r.Min || r.Max > MaxWeight {
		return fmt.Errorf("%d..%d is no range of weights: want 1 <= min <= max <= %d", r.Min, r.Max, MaxWeight)
	}
	return nil
}

// Holds reports whether w is in the range.
func (r Range) Holds(w uint64) bool { return r.Min <= w && w <= r.Max }

func (r Range) Clamp(w float64) float64 {
	// In this form NaN gives Min.
	if !(w > float64(r.Min)) {
		return float64(r.Min)
	}
	return math.Min(w, float64(r.Max))
}

// Observation is the I/O of one of several siblings in one interval.
type Observation struct {
	// ID names the sibling over time: a law stores its memory by it.
	ID string
	// Ideal is the ideal weight, i of paper 1.
	Ideal float64
	// Weight is the weight in force during the interval, m' of paper 1.
	Weight float64
	// JournalBytes is its I/O that no weight governs, J of paper 1:
	// journal, in-place metadata and uncharged data.
	JournalBytes float64
	// WritebackBytes is the part of JournalBytes that is in-place metadata and
	// uncharged data: the kernel writes it in bursts of several seconds, not in
	// jbd2's rhythm. A value above JournalBytes counts as JournalBytes, NaN as 0.
	WritebackBytes float64
	// OtherBytes is its charged I/O, C' of paper 1.
	OtherBytes float64
	// BusySeconds is the time with at least one request outstanding, of requests
	// that ended in the interval. So it can be longer than the interval. 0 means
	// not known.
	BusySeconds float64
	// RequestSeconds is the time of these requests, added up. Divided by BusySeconds, it
	// is the mean number of requests outstanding while there is any. 0 means not known.
	RequestSeconds float64
	// FlushSeconds is the time in which a flush of the disk's cache was outstanding that one
	// of its syncs waits for, and no request, of flushes that ended in the interval.
	FlushSeconds float64
	// StackedSeconds is the time in which it waited for a device above this disk that can hold
	// I/O back before it makes requests of it, such as a mirror, as far as that ended in the
	// interval. It counts only where the sibling did something on this disk.
	StackedSeconds float64
	// ForcedCommits is the number of commits of the journal that its syncs started.
	// CommitSeconds is the time for which commits on the disk were in progress,
	// whatever started them, of commits that ended in the interval. A sync waits
	// for requests of the journal's thread, not of the sibling.
	ForcedCommits, CommitSeconds float64
}

// Law computes the siblings' weights from their I/O.
//
// Next is called once per interval, with the interval's length (monotonic) and the
// siblings. Siblings can be in any order; they can appear and disappear. It returns
// as many weights in the same order: real numbers within the law's Range. An
// observation that is no measurement (NaN, infinite, negative) counts as idle; before
// that, Feedback leaves all weights as they are for some seconds. The weight of a
// sibling that stays idle is its ideal. A Law is not safe for concurrent use.
type Law interface {
	Name() string
	Next(seconds float64, siblings []Observation) []float64
}

// Names of the laws, for configuration and command line.
const (
	PaperLaw    = "paper"
	FeedbackLaw = "feedback"
)

// NewLaw returns the law of that name.
func NewLaw(name string, r Range) (Law, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	switch name {
	case PaperLaw:
		return NewPaper(r), nil
	case FeedbackLaw, "":
		return NewFeedback(r), nil
	}
	return nil, fmt.Errorf("there is no law %q: want %s or %s", name, FeedbackLaw, PaperLaw)
}

// maxBytes is the upper bound of what one sibling can do in one interval; a larger
// number comes from a broken counter.
const maxBytes = 1 << 62

// idle reports whether o has no information for a law: no charged I/O, or numbers
// that no counter can have produced.
func (o Observation) idle() bool { return !o.Measured() || o.OtherBytes == 0 }

// Measured reports whether the observation is a measurement: finite and within
// bounds.
func (o Observation) Measured() bool {
	return o.OtherBytes >= 0 && o.OtherBytes <= maxBytes &&
		o.JournalBytes >= 0 && o.JournalBytes <= maxBytes &&
		o.Ideal > 0 && o.Ideal <= MaxWeight &&
		o.Weight > 0 && o.Weight <= MaxWeight &&
		o.BusySeconds >= 0 && o.BusySeconds <= maxBytes
}

func allMeasured(siblings []Observation) bool {
	return !slices.ContainsFunc(siblings, func(o Observation) bool { return !o.Measured() })
}

// Journal is the usable part of JournalBytes: the log writes of an idle sibling
// used its part of the disk, too.
func (o Observation) Journal() float64 {
	if o.JournalBytes > 0 && o.JournalBytes <= maxBytes {
		return o.JournalBytes
	}
	return 0
}

// writeback is the usable part of WritebackBytes.
func (o Observation) writeback() float64 {
	if o.WritebackBytes > 0 {
		return math.Min(o.WritebackBytes, o.Journal())
	}
	return 0
}
