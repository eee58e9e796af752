package guestshares

import (
	"fmt"
	"math"

	"github.com/daybook-project/daybook/internal/control/law"
	"github.com/daybook-project/daybook/internal/experiment/report"
	"github.com/daybook-project/daybook/internal/experiment/statistics"
)

// repetitions are the runs of a run's kernel, divider and scenario, in order.
func (r Result) repetitions(of Run) (runs []Run) {
	for _, run := range r.Runs {
		if run.Kernel == of.Kernel && run.Divider == of.Divider && run.Scenario == of.Scenario {
			runs = append(runs, run)
		}
	}
	return runs
}

// firsts are the first runs of each kernel, divider and scenario.
func (r Result) firsts() (runs []Run) {
	for _, run := range r.Runs {
		if run.Repetition <= 1 {
			runs = append(runs, run)
		}
	}
	return runs
}

// worst are the runs with the worst interval under control, of each kernel, divider and scenario.
func (r Result) worst() (runs []Run) {
	for _, first := range r.firsts() {
		worst := first
		for _, run := range r.repetitions(first) {
			if run.distance().interval > worst.distance().interval {
				worst = run
			}
		}
		runs = append(runs, worst)
	}
	return runs
}

// distance is how far a run's shares under control are from their targets, at most, of all
// containers: the mean of a minute, and the worst interval. throughput is a part of the
// uncontrolled one.
type distance struct{ mean, interval, throughput float64 }

func (run Run) distance() (d distance) {
	for _, phase := range run.Phases {
		if phase.Law != law.FeedbackLaw {
			continue
		}
		d.throughput = phase.Throughput() / run.Phases[0].Throughput()
		for _, c := range phase.Containers {
			d.mean, d.interval = max(d.mean, math.Abs(c.Share-c.TargetShare)), max(d.interval, c.WorstInterval)
		}
	}
	return d
}

// keepsBounds reports whether the run keeps the bounds of guests that count instructions.
func (run Run) keepsBounds() bool {
	for _, phase := range run.Phases {
		if phase.Law == law.FeedbackLaw && len(run.checkCounted(phase)) > 0 {
			return false
		}
	}
	return true
}

// repeated is the table of all runs; nil if each scenario ran once.
func (r Result) repeated() *report.Table {
	table := report.Table{
		Title:   "All runs, under control",
		Note:    "Medians, and after them the worst run, in percentage points. “Off” is the distance of the mean of a minute from its target, “worst 5 s” that of the worst interval after the third, of the container that is farther off.",
		Columns: []string{"kernel", "divider", "scenario", "runs", "within the bounds", "off", "worst 5 s", "throughput"},
	}
	repeated := false
	for _, first := range r.firsts() {
		runs, kept := r.repetitions(first), 0
		repeated = repeated || len(runs) > 1
		for _, run := range runs {
			if run.keepsBounds() {
				kept++
			}
		}
		mean := statistics.SpreadBy(runs, func(run Run) float64 { return 100 * run.distance().mean })
		interval := statistics.SpreadBy(runs, func(run Run) float64 { return 100 * run.distance().interval })
		throughput := statistics.SpreadBy(runs, func(run Run) float64 { return run.distance().throughput })
		table.Rows = append(table.Rows, []string{
			first.Kernel, first.Divider, first.Scenario, fmt.Sprint(len(runs)), fmt.Sprint(kept),
			fmt.Sprintf("%.2f, %.2f", mean.Median, mean.High), fmt.Sprintf("%.2f, %.2f", interval.Median, interval.High),
			fmt.Sprintf("%.3f, %.3f", throughput.Median, throughput.Low),
		})
	}
	if !repeated {
		return nil
	}
	return &table
}
