package causes

import (
	"fmt"
	"math"

	"github.com/daybook-project/daybook/internal/experiment/statistics"
)

// Bounds of the results.
const (
	// ShareBound is the least part of the blamed time that must be the injected
	// cause's and its culprit's: the median of the rounds.
	ShareBound = 0.9
	// SumBound is the greatest difference of the blamed time and the caller's: the
	// median of the rounds. A caller also waits for a processor after its sync.
	SumBound = 0.02
)

// Options configure how much is measured.
type Options struct{ Rounds int }

// The amounts of a benchmark, and of one that only shows that it works.
var (
	Full  = Options{Rounds: 9}
	Quick = Options{Rounds: 3}
)

// share is the part of the blamed time that is right, over the rounds.
func (o Outcome) share() statistics.Spread {
	return statistics.SpreadBy(o.Rounds, func(r Round) float64 { return r.Share(o.Case.Cause, o.Case.Culprit) })
}

// difference is that of the blamed time from the caller's, as a ratio, over the
// rounds. A handle that does not wait is in the caller's time only.
func (o Outcome) difference() statistics.Spread {
	return statistics.SpreadBy(o.Rounds, func(r Round) float64 { return r.BlamedSeconds/r.MeasuredSeconds - 1 })
}

// problems are the bounds that do not hold.
func (o Outcome) problems() []error {
	var errs []error
	fail := func(format string, values ...any) {
		errs = append(errs, fmt.Errorf(o.Name+": "+format, values...))
	}
	if share := o.share(); share.Median < ShareBound && !o.Case.Unbounded {
		fail("%.1f %% of the time is blamed on the cause; want at least %.0f %%", 100*share.Median, 100*ShareBound)
	}
	if o.Lost > 0 {
		fail("%d waits were lost", o.Lost)
	}
	if o.Case.Waiter == Mkdir {
		return errs
	}
	if d := o.difference(); math.Abs(d.Median) > SumBound {
		fail("the phases add up to %+.2f %% of the caller's time; want within %.0f %%", 100*d.Median, 100*SumBound)
	}
	for n, r := range o.Rounds {
		if r.BlamedCalls != uint64(r.Calls) {
			fail("round %d: %d calls, blame has %d", n+1, r.Calls, r.BlamedCalls)
		}
	}
	return errs
}
