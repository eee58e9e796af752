package workload

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"time"
)

// Job is a number of calls of one operation, made once.
type Job struct {
	// Operation is one of Operations.
	Operation string `json:"operation"`
	// In is the directory that holds the files; Prepare makes it.
	In string `json:"in"`
	// Count is the number of calls, 1 to MaxCount.
	Count int `json:"count"`
	// Typical is whether Result.TypicalCallSeconds is measured. It costs each call
	// two readings of the clock.
	Typical bool `json:"typical,omitempty"`
}

// MaxCount bounds the calls of a job.
const MaxCount = 10_000_000

// Check returns an error if the job is invalid.
func (j Job) Check() error {
	switch {
	case operations[j.Operation] == nil:
		return fmt.Errorf("operation %q: want one of %q", j.Operation, Operations())
	case j.In == "":
		return fmt.Errorf("%s: no directory to do it in", j.Operation)
	case j.Count < 1 || j.Count > MaxCount:
		return fmt.Errorf("%d calls of %s: want 1 to %d", j.Count, j.Operation, MaxCount)
	}
	return nil
}

// operation is one kind of call.
type operation interface {
	// prepare makes the files that the calls need.
	prepare(ctx context.Context, job Job) error
	// load does the preparation that is not part of the calls (opens, names).
	// It returns the calls and their cleanup, which may be nil.
	load(job Job) (calls func(ctx context.Context) error, unload func() error, err error)
}

// Operations lists what jobs can do.
func Operations() []string { return slices.Sorted(maps.Keys(operations)) }

// Prepare makes the job's directory and the files that its calls need.
func Prepare(ctx context.Context, job Job) error {
	err := job.Check()
	if err == nil {
		err = os.MkdirAll(job.In, 0o755)
	}
	if err == nil {
		err = operations[job.Operation].prepare(ctx, job)
	}
	if err != nil {
		return fmt.Errorf("cannot prepare %s: %w", job.Operation, err)
	}
	return nil
}

// Do makes the job's calls and returns their duration without preparation and
// cleanup. Prepare must have been called.
func Do(ctx context.Context, job Job) (elapsed time.Duration, err error) {
	if err := job.Check(); err != nil {
		return 0, err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("cannot do %s: %w", job.Operation, err)
		}
	}()
	calls, unload, err := operations[job.Operation].load(job)
	if err != nil {
		return 0, err
	}
	begin := time.Now()
	err = calls(ctx)
	elapsed = time.Since(begin)
	if unload != nil {
		err = errors.Join(err, unload())
	}
	return elapsed, err
}

// doJobs makes, or prepares, one job after the other. It is the only timed work
// of the process, so nothing else may use its time.
func doJobs(ctx context.Context, c *counters, spec Spec) error {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	for _, job := range spec.Jobs {
		if spec.Prepare {
			if err := Prepare(ctx, job); err != nil {
				return err
			}
			continue
		}
		var each laps
		timing := ctx
		if job.Typical {
			each.each = make([]time.Duration, 0, job.Count)
			timing = context.WithValue(ctx, lapsKey{}, &each)
		}
		elapsed, err := Do(timing, job)
		if err != nil {
			return err
		}
		c.typicalNanoseconds.Store(each.typical().Nanoseconds())
		c.calls.Add(int64(job.Count))
		c.callNanoseconds.Add(elapsed.Nanoseconds())
	}
	return nil
}
