package control

import (
	"fmt"
	"math"
)

// Range is what a weight file takes, both ends included: 1..1000 for BFQ,
// 1..10000 for io.weight, 10..1000 for CFQ's blkio.weight.
type Range struct {
	Min uint64 `json:"min"`
	Max uint64 `json:"max"`
}

// BFQRange is the range of blkio.bfq.weight and io.bfq.weight.
var BFQRange = Range{Min: 1, Max: 1000}

// maxWeight is beyond every weight file's range; a Range above it is refused.
const maxWeight = 1_000_000

// Validate refuses an empty range and one that no weight file has.
func (r Range) Validate() error {
	if r.Min < 1 || r.Max < r.Min || r.Max > maxWeight {
		return fmt.Errorf("%d..%d is no range of weights: want 1 <= min <= max <= %d", r.Min, r.Max, maxWeight)
	}
	return nil
}

// Holds says whether w may be written.
func (r Range) Holds(w uint64) bool { return r.Min <= w && w <= r.Max }

func (r Range) clamp(w float64) float64 {
	// Written so that NaN gives Min.
	if !(w > float64(r.Min)) {
		return float64(r.Min)
	}
	return math.Min(w, float64(r.Max))
}

// Observation is what one of several siblings did in one interval.
type Observation struct {
	// ID names the sibling over time; a law remembers by it.
	ID string
	// Ideal is the ideal weight, i of paper 1.
	Ideal float64
	// Weight is the weight in force during the interval, m' of paper 1.
	Weight float64
	// JournalBytes is its I/O that no weight governs, J of paper 1:
	// journal, in-place metadata and uncharged data.
	JournalBytes float64
	// WritebackBytes is the part of JournalBytes that is in-place metadata
	// and uncharged data: the kernel writes it in heaps that last for
	// several seconds, not in jbd2's rhythm. More than JournalBytes counts
	// as JournalBytes, what is no number as 0.
	WritebackBytes float64
	// OtherBytes is its charged I/O, C' of paper 1.
	OtherBytes float64
	// BusySeconds is the time with at least one request outstanding, as far as
	// requests ended in the interval, so it can be longer; 0 where that is not known.
	BusySeconds float64
	// ForcedCommits is the number of commits of the journal that its syncs started,
	// CommitSeconds the time for which commits on the disk were under way, whoever
	// started them, as far as they ended in the interval. What a sync waits for are
	// requests of the journal's thread, not of the sibling.
	ForcedCommits, CommitSeconds float64
}

// Law says what the siblings' weights should be, from what they did.
//
// Next is called once per interval with the interval's length (monotonic) and
// the siblings, in any order and with any coming and going; it returns as many
// weights in the same order, real numbers within the law's Range. An
// observation that is no measurement (NaN, infinite, negative) counts as idle,
// and an idle sibling's weight is its ideal. A Law is not safe for concurrent
// use.
type Law interface {
	Name() string
	Next(seconds float64, siblings []Observation) []float64
}

// Names of the laws, for configuration and command line.
const (
	PaperLaw    = "paper"
	FeedbackLaw = "feedback"
)

// NewLaw makes the law of that name.
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

// maxBytes bounds what one sibling can have done in one interval; more is a
// broken counter.
const maxBytes = 1 << 62

// idle says that o gives a law nothing to steer by: no charged I/O, or
// numbers that no counter can have produced.
func (o Observation) idle() bool { return !o.measured() || o.OtherBytes == 0 }

// measured says whether the observation is one: finite and within bounds.
func (o Observation) measured() bool {
	return o.OtherBytes >= 0 && o.OtherBytes <= maxBytes &&
		o.JournalBytes >= 0 && o.JournalBytes <= maxBytes &&
		o.Ideal > 0 && o.Ideal <= maxWeight &&
		o.Weight > 0 && o.Weight <= maxWeight &&
		o.BusySeconds >= 0 && o.BusySeconds <= maxBytes
}

// journal is the usable part of JournalBytes: what an idle sibling logged
// still took its part of the disk.
func (o Observation) journal() float64 {
	if o.JournalBytes > 0 && o.JournalBytes <= maxBytes {
		return o.JournalBytes
	}
	return 0
}

// writeback is the usable part of WritebackBytes.
func (o Observation) writeback() float64 {
	if o.WritebackBytes > 0 {
		return math.Min(o.WritebackBytes, o.journal())
	}
	return 0
}
