package shares

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/experiment/scenario"
	"github.com/daybook-project/daybook/internal/kernel"
)

// laneBytes is the memory that a lane's disk needs at most: the files of four
// containers, the journal, and metadata.
const laneBytes = 4*scenario.FileBytes + fixture.JournalBytes + 400<<20

// checkMemory returns an error if the host has not enough memory for the lanes.
func checkMemory(lanes int) error {
	available, known := kernel.AvailableMemory()
	if wanted := int64(lanes) * laneBytes; known && wanted > available {
		return fmt.Errorf("%d lanes want %d MiB of memory for their disks, and %d MiB are left: choose fewer by --lanes", lanes, wanted>>20, available>>20)
	}
	return nil
}

// maxFailures consecutive failures end the benchmark: then the cause is not the
// run.
const maxFailures = 3

// Measure makes the missing runs, several at a time. With an error it also returns
// what was measured.
func Measure(ctx context.Context, l fixture.Lab, o Options) (Result, error) {
	result, err := Begin(o)
	if err != nil {
		return result, err
	}
	if err := checkMemory(o.Lanes); err != nil {
		return result, err
	}
	if err := fixture.RemoveLeftovers(); err != nil { // before the lanes
		return result, err
	}
	jobs := slices.DeleteFunc(result.jobs(), func(j job) bool {
		return len(o.Only) > 0 && j.kind == Judged && !slices.Contains(o.Only, j.scenario.Name)
	})
	return measure(ctx, l, o, result, jobs)
}

// measure adds runs to a result: first those alone, then several at a time.
func measure(ctx context.Context, l fixture.Lab, o Options, result Result, jobs []job) (Result, error) {
	// On cgroup v2 it keeps the controllers enabled while lanes come and go.
	group, err := fixture.NewGroup(l.Tree)
	if err != nil {
		return result, err
	}
	m := &measuring{Options: o, result: result, left: len(jobs), jobs: make(chan job)}
	running, cancel := context.WithCancelCause(ctx)
	for len(jobs) > 0 && jobs[0].kind == Alone && running.Err() == nil {
		if err := m.run(running, jobs[0], 0); err != nil {
			cancel(err)
		}
		jobs = jobs[1:]
	}
	var lanes sync.WaitGroup
	for lane := range max(1, o.Lanes) {
		lanes.Add(1)
		go func() {
			defer lanes.Done()
			for j := range m.jobs {
				if err := m.run(running, j, lane); err != nil {
					cancel(err)
				}
			}
		}()
	}
	for _, j := range jobs {
		select {
		case m.jobs <- j:
			continue
		case <-running.Done():
		}
		break
	}
	close(m.jobs)
	lanes.Wait()
	err = context.Cause(running)
	cancel(nil)
	return m.result, errors.Join(err, group.Close())
}

// measuring is a measurement in progress.
type measuring struct {
	Options
	jobs chan job

	mu       sync.Mutex
	result   Result
	left     int
	took     time.Duration // of all runs that ended
	ended    int
	failures int // consecutive
}
