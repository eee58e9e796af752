package overhead

import (
	"context"
	"errors"

	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/journal"
	"github.com/daybook-project/daybook/internal/workload"
)

// countPrograms measures the BPF programs under each load with the kernel's
// statistics: during the calls, and then during the write-out of their changes.
func (r *rounds) countPrograms(ctx context.Context, result *Result) (err error) {
	r.lab.Announce("overhead", "counting runs of the BPF programs", nil)
	counting, err := journal.CountPrograms()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, counting.Close()) }()
	probe, err := journal.Open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, probe.Close()) }()
	disk := r.fs.Disk.Device.Dev
	if err := probe.Observe([]uint32{disk.Kernel()}); err != nil {
		return err
	}
	for n := range measuredLoads {
		err := r.one(ctx, n, func(do func() (workload.Result, error)) error {
			before, err := probe.Statistics()
			if err != nil {
				return err
			}
			done, err := do()
			if err != nil {
				return err
			}
			called, err := probe.Statistics()
			if err != nil {
				return err
			}
			if err := fixture.WriteOut(r.fs.Directory); err != nil {
				return err
			}
			written, err := probe.Statistics()
			if err != nil {
				return err
			}
			if result.ClockNanoseconds, err = counting.ClockNanoseconds(); err != nil {
				return err
			}
			result.enter(n, done.Calls, before, called, written)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// enter adds the programs' runs and time between the readings: before the calls,
// after them, and after the write-out.
func (o *Result) enter(load int, calls int64, before, called, written []journal.ProgramStatistics) {
	row := &o.Rows[load]
	perCall := func(from, to journal.ProgramStatistics) (runs, nanoseconds float64) {
		runs = float64(to.Runs - from.Runs)
		nanoseconds = max(0, float64(to.Nanoseconds-from.Nanoseconds)-runs*o.ClockNanoseconds)
		return runs / float64(calls), nanoseconds / float64(calls)
	}
	// All readings list the same programs in the same order.
	for n := range written {
		if written[n].Runs == before[n].Runs {
			continue
		}
		cost := ProgramCost{Operation: row.Operation, Program: written[n].Program}
		cost.Events, cost.Nanoseconds = perCall(before[n], called[n])
		cost.WrittenEvents, cost.WrittenNanoseconds = perCall(called[n], written[n])
		o.Programs = append(o.Programs, cost)
		row.Events += cost.Events
		row.Nanoseconds += cost.Nanoseconds
		row.WrittenNanoseconds += cost.WrittenNanoseconds
	}
}
