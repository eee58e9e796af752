package pair

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/fio"
	"github.com/daybook-project/daybook/internal/meter"
)

// Measurement says how long a phase is, and what is measured in it.
type Measurement struct {
	// Seconds is the length of a phase, after its warm-up.
	Seconds int
	// Interval is the length of a sample; a phase is a whole number of samples.
	Interval time.Duration
	// Waits also measures the waits for the journal, and the requests of the disk.
	Waits bool
}

// Check returns an error if a phase has no sample.
func (m Measurement) Check() error {
	if m.Interval < meter.MinInterval || time.Duration(m.Seconds)*time.Second < m.Interval {
		return fmt.Errorf("phases of %d s with samples of %v: want at least one sample, of at least %v", m.Seconds, m.Interval, meter.MinInterval)
	}
	return nil
}

// Measure runs a load beside each neighbour on one new pair. It removes the pair.
func Measure(ctx context.Context, l fixture.Lab, on Conditions, load string, neighbours []fio.Neighbour, how Measurement) (phases []Phase, err error) {
	what := fmt.Sprintf("%s, %s, %s, %s", on.Disk, load, on.DataMode, on.Arrangement)
	l.Say(what + ": preparing")
	s, err := buildPair(ctx, l, on)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	subject, err := s.subject(ctx, load)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, subject.close()) }()
	for _, neighbour := range neighbours {
		phase, err := subject.runPhase(ctx, how, neighbour)
		if err != nil {
			return phases, fmt.Errorf("beside %s: %w", neighbour, err)
		}
		l.Say(fmt.Sprintf("%s beside %s: %s, sync %.1f ms, share of A %.1f %%", what, neighbour,
			RateText(load, phase.Rate), 1e3*phase.SyncA.MeanSeconds, 100*phase.ShareA))
		phases = append(phases, phase)
	}
	return phases, nil
}

// RateText returns a rate of Phase as text.
func RateText(load string, rate float64) string {
	if load == Fio || load == SmallWriters {
		return fmt.Sprintf("%.2f MB/s", rate/1e6)
	}
	return fmt.Sprintf("%.1f/s", rate)
}

// runPhase runs A's load beside a neighbour.
func (u *subject) runPhase(ctx context.Context, how Measurement, neighbour fio.Neighbour) (phase Phase, err error) {
	s := u.pair
	phase = Phase{Arrangement: s.conditions.Arrangement, Neighbour: neighbour}
	if err := s.writeOut(); err != nil {
		return phase, err
	}
	p, err := s.openProbes(ctx, how)
	if err != nil {
		return phase, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	if err := s.setInstant(false); err != nil {
		return phase, err
	}
	stop, err := s.startNeighbour(neighbour, u.besideWriters())
	if err != nil {
		return phase, err
	}
	end := sync.OnceValues(func() (fio.Result, error) {
		// Without delays, so that a full queue does not slow the stop.
		instant := s.setInstant(true)
		result, err := stop()
		return result, errors.Join(instant, err)
	})
	defer func() {
		result, endErr := end()
		phase.RateB = result.BytesPerSecond()
		err = errors.Join(err, endErr, s.clear())
	}()
	if s.conditions.Arrangement.Controlled() {
		stopControl := s.startControl(ctx)
		// It restores the weights, so it stops before the neighbour does.
		defer func() { err = errors.Join(err, stopControl()) }()
	}
	// The deferred end returns the same.
	err = u.runWatched(ctx, how, p, &phase, func() { _, _ = end() })
	return phase, err
}

// runWatched runs A's load while the probes measure it. If it does not end soon after, it
// ends the neighbour.
func (u *subject) runWatched(ctx context.Context, how Measurement, p *probes, phase *Phase, endNeighbour func()) error {
	done := make(chan outcome, 1)
	working, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { done <- u.run(working, how.Seconds) }()
	watched := p.watch(ctx, how, phase)
	patience := starvedPatience
	if watched != nil {
		cancel()
		patience = 0
	}
	var result outcome
	select {
	case result = <-done:
	case <-time.After(patience):
		endNeighbour()
		result = u.starved(cancel, done, phase, how.Seconds)
	}
	phase.Rate, phase.Database = result.rate, result.database
	if watched == nil {
		watched = ctx.Err()
	}
	return errors.Join(watched, result.err)
}
