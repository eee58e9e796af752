package volumes

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/experiment/pair"
	"github.com/daybook-project/daybook/internal/experiment/report"
	"github.com/daybook-project/daybook/internal/fio"
)

// Separate parts, which are no loads of a container: the scheduler's slices, the pool's journal.
const (
	slicesLoad = "slices"
	poolLoad   = "pool"
)

// Loads lists all loads, and the separate parts.
func Loads() []string {
	return []string{pair.Fio, pair.MariaDB, pair.PostgreSQL, slicesLoad, poolLoad}
}

// Disks lists all disks.
func Disks() []string { return []string{pair.HDD, pair.Plain} }

// Result is the result of bench-volumes.
type Result struct {
	Host report.Host `json:"host"`
	// Parts are in the order of the plan.
	Parts []Part `json:"parts"`
}

// Part is one load on one disk in one data mode, in all arrangements, one
// after the other.
type Part struct {
	pair.Part
	// The loads "pool" and "slices" have these in place of phases.
	Pool   []PoolJournal `json:"pool,omitempty"`
	Slices []SliceTrial  `json:"slices,omitempty"`
}

// part returns the part of a case, nil if it was not measured.
func (r Result) part(c pair.Case) *Part {
	for i, p := range r.Parts {
		if p.Case == c {
			return &r.Parts[i]
		}
	}
	return nil
}

// Bench runs the requested parts.
func Bench(ctx context.Context, l fixture.Lab, o Options) (Result, error) {
	result := Result{Host: report.ThisHost()}
	if err := o.Check(); err != nil {
		return result, err
	}
	if len(o.Before.Parts) > 0 {
		if err := report.SameHost(o.Before.Host, result.Host); err != nil {
			return result, err
		}
	}
	if err := fixture.RemoveLeftovers(); err != nil {
		return result, err
	}
	for _, planned := range plan() {
		before := o.Before.part(planned.Case)
		if !o.asks(planned) {
			if before != nil {
				result.Parts = append(result.Parts, *before)
			}
			continue
		}
		part, err := runPart(ctx, l, o, planned, before)
		if err != nil {
			return result, fmt.Errorf("%s: %w", planned, err)
		}
		result.Parts = append(result.Parts, part)
	}
	return result, nil
}

// copyPhases copies the phases beside other neighbours than these from before, if it
// was measured with the same settings. before may be nil.
func (p *Part) copyPhases(before *Part, neighbours []fio.Neighbour) {
	if before == nil || before.Settings != p.Settings {
		return
	}
	for _, phase := range before.Phases {
		if !slices.Contains(neighbours, phase.Neighbour) {
			p.Phases = append(p.Phases, phase)
		}
	}
}

// runPart measures a part. It copies phases beside neighbours that are not
// requested from before, which may be nil.
func runPart(ctx context.Context, l fixture.Lab, o Options, planned plannedPart, before *Part) (part Part, err error) {
	part = Part{Part: pair.NewPart(planned.Case)}
	switch planned.Load {
	case poolLoad:
		part.Pool, err = poolJournals(ctx, l, o, planned)
		return part, err
	case slicesLoad:
		part.Settings = pair.Describe(planned.Disk)
		part.Slices, err = sliceTrials(ctx, l, o, planned)
		return part, err
	}
	neighbours := o.beside(planned)
	part.copyPhases(before, neighbours)
	var rounds []pair.Phase
	for round := range o.Rounds {
		for _, arrangement := range o.order(planned, round) {
			phases, err := pair.Measure(ctx, l, planned.in(arrangement), planned.Load, neighbours, o.Measurement)
			if err != nil {
				return part, fmt.Errorf("arrangement %s: %w", arrangement, err)
			}
			rounds = append(rounds, phases...)
		}
	}
	part.Phases = append(part.Phases, medianPhases(rounds)...)
	return part, nil
}

// medianPhases keeps one phase of each arrangement and neighbour: the one with the
// median rate. Of an even number of phases it keeps the slower of the two in the middle.
func medianPhases(rounds []pair.Phase) []pair.Phase {
	var medians []pair.Phase
	for len(rounds) > 0 {
		var same, others []pair.Phase
		for _, phase := range rounds {
			if phase.Arrangement == rounds[0].Arrangement && phase.Neighbour == rounds[0].Neighbour {
				same = append(same, phase)
			} else {
				others = append(others, phase)
			}
		}
		slices.SortStableFunc(same, func(a, b pair.Phase) int { return cmp.Compare(a.Rate, b.Rate) })
		median := same[(len(same)-1)/2]
		median.Rounds = len(same)
		medians, rounds = append(medians, median), others
	}
	return medians
}
