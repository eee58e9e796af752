package overhead

import (
	"context"
	"errors"

	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/journal"
	"github.com/daybook-project/daybook/internal/workload"
)

// ProgramCost is one BPF program under one operation: runs and cost for each
// call, during the calls and during the write-out after them.
type ProgramCost struct {
	// Kernel, Operation and Unit are those of a Row.
	Kernel    string  `json:"kernel,omitempty"`
	Operation string  `json:"operation"`
	Unit      string  `json:"unit"`
	Program   string  `json:"program"`
	Events    float64 `json:"runs_per_call"`
	Cost      float64 `json:"cost_per_call"`
	// LaterEvents and LaterCost are those of the write-out.
	LaterEvents float64 `json:"runs_later_per_call"`
	LaterCost   float64 `json:"cost_later_per_call"`
}

// PerEvent returns the mean cost of one run.
func (p ProgramCost) PerEvent() float64 {
	return (p.Cost + p.LaterCost) / (p.Events + p.LaterEvents)
}

// countPrograms measures the BPF programs under each load with the kernel's
// statistics: during the calls, and then during the write-out of their changes. It
// enters the sums into rows. clock is the cost of the counting itself for each run,
// which no other figure contains.
func (w *windows) countPrograms(ctx context.Context, rows []Row) (programs []ProgramCost, clock float64, err error) {
	w.lab.Say("counting runs of the BPF programs")
	counting, err := journal.CountPrograms()
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, counting.Close()) }()
	for n, load := range w.loads {
		err := w.one(ctx, load, func(do func() (workload.Result, error)) error {
			before, err := w.probe.Statistics()
			if err != nil {
				return err
			}
			done, err := do()
			if err != nil {
				return err
			}
			called, err := w.probe.Statistics()
			if err != nil {
				return err
			}
			if err := fixture.WriteOut(w.fs.Directory); err != nil {
				return err
			}
			later, err := w.probe.Statistics()
			if err != nil {
				return err
			}
			if clock, err = counting.ClockNanoseconds(); err != nil {
				return err
			}
			programs = append(programs, rows[n].enter(float64(done.Calls), clock, before, called, later)...)
			return nil
		})
		if err != nil {
			return nil, 0, err
		}
	}
	return programs, clock, nil
}

// enter adds the programs' runs and cost between the readings: before the calls,
// after them, and after the write-out.
func (r *Row) enter(calls, clock float64, before, called, later []journal.ProgramStatistics) (programs []ProgramCost) {
	perCall := func(from, to journal.ProgramStatistics) (runs, cost float64) {
		runs = float64(to.Runs - from.Runs)
		cost = max(0, float64(to.Nanoseconds-from.Nanoseconds)-runs*clock)
		return runs / calls, cost / calls
	}
	// All readings list the same programs in the same order.
	for n := range later {
		if later[n].Runs == before[n].Runs {
			continue
		}
		p := ProgramCost{Operation: r.Operation, Unit: r.Unit, Program: later[n].Program}
		p.Events, p.Cost = perCall(before[n], called[n])
		p.LaterEvents, p.LaterCost = perCall(called[n], later[n])
		programs = append(programs, p)
		r.Events += p.Events
		r.Programs += p.Cost
		r.Later += p.LaterCost
	}
	return programs
}
