package workload

import (
	"context"
	"slices"
	"time"
)

// laps are the durations of the calls of a job.
type laps struct{ each []time.Duration }

type lapsKey struct{}

// timed calls, and records how long that took, if the context has laps.
func timed(ctx context.Context, call func() error) error {
	l, ok := ctx.Value(lapsKey{}).(*laps)
	if !ok {
		return call()
	}
	begin := time.Now()
	err := call()
	l.each = append(l.each, time.Since(begin))
	return err
}

// typical is the lower quartile. What seldom happens beside the calls does not change
// it: ticks of the clock, and threads of the language's runtime, which wake up at
// intervals.
func (l *laps) typical() time.Duration {
	if len(l.each) == 0 {
		return 0
	}
	slices.Sort(l.each)
	return l.each[len(l.each)/4]
}
