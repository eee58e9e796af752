package shares

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/daybook-project/daybook/internal/experiment/report"
	"github.com/daybook-project/daybook/internal/experiment/statistics"
)

// Goals of each run.
const (
	goalMeanError  = 0.01
	goalWithin     = 0.95
	goalDeviation  = 0.10
	goalThroughput = 0.95
)

// Settings are the settings that all runs of a result share.
type Settings struct {
	UncontrolledSeconds float64 `json:"uncontrolled_seconds"`
	ControlledSeconds   float64 `json:"controlled_seconds"`
	FairSeconds         float64 `json:"fair_seconds"`
	// IntervalSeconds is the interval of the shares, WarmUpSeconds the time before
	// each phase.
	IntervalSeconds float64 `json:"interval_seconds"`
	WarmUpSeconds   float64 `json:"warm_up_seconds"`
	// Lanes is the number of concurrent runs.
	Lanes int `json:"lanes"`
}

// Result is the result of bench-shares, complete or not.
type Result struct {
	Host     report.Host `json:"host"`
	Settings Settings    `json:"settings"`
	// Repetitions is the requested number.
	Repetitions int        `json:"repetitions"`
	Plan        []Scenario `json:"plan"`
	Runs        []Run      `json:"runs"`
	// Repeated are the runs that failed before those that took their place.
	Repeated []Run `json:"repeated,omitempty"`
}

// runsOf returns a scenario's runs of a kind that have figures.
func (r Result) runsOf(kind Kind, name string) []Run {
	var runs []Run
	for _, run := range r.Runs {
		if run.Scenario == name && run.Kind == kind && run.Failed == "" {
			runs = append(runs, run)
		}
	}
	return runs
}

// fairThroughput is the median throughput of the same load on BFQ with the
// recommended tunables, uncontrolled, in bytes a second; 0 if it was not measured.
func (r Result) fairThroughput(s Scenario) float64 {
	name := s.fair().name()
	var rates []float64
	for _, kind := range []Kind{Judged, FairDisk} {
		for _, run := range r.runsOf(kind, name) {
			rates = append(rates, run.Uncontrolled.BytesPerSecond)
		}
	}
	if len(rates) == 0 {
		return 0
	}
	return statistics.Median(rates)
}

// Summary summarizes the runs of one scenario.
type Summary struct {
	Scenario Scenario
	// Runs is the number of runs that ended. Failed is the number of those without
	// figures.
	Runs, Failed int
	// Baseline is the throughput to which that of each run is related, in bytes a
	// second: Uncontrolled or Fair, whichever is greater; both are medians.
	Baseline, Uncontrolled, Fair float64
	// Controlled is in bytes a second, Throughput over Baseline.
	Controlled, Throughput       Figure
	MeanError, Within, Deviation Figure
	UncontrolledError            Figure
	Busy, Stolen, CPUSeconds     Figure
	// Limited, Ignored and Missed are numbers of runs: with an interval in which
	// limits held the shares, with one in which control reported ignored weights,
	// and with a missed goal or a failure.
	Limited, Ignored, Missed int
}

// Figure is a figure over the runs of a scenario. Worst is the largest error, or
// the smallest of a figure that should be large.
type Figure struct{ Median, Worst float64 }

// overRuns returns NaN for both if there are no values.
func overRuns(values []float64, worst func([]float64) float64) Figure {
	if len(values) == 0 {
		return Figure{math.NaN(), math.NaN()}
	}
	return Figure{statistics.Median(values), worst(values)}
}

// summarize summarizes the scenario's judged runs; false if there is none.
func (r Result) summarize(s Scenario) (Summary, bool) {
	sum := r.summarizeRuns(s, r.runsOf(Judged, s.Name))
	for _, run := range r.Runs {
		if run.Scenario == s.Name && run.Kind == Judged && run.Failed != "" {
			sum.Runs++
			sum.Failed++
			sum.Missed++
		}
	}
	return sum, sum.Runs > 0
}

// summarizeRuns summarizes runs that have figures.
func (r Result) summarizeRuns(s Scenario, runs []Run) Summary {
	each := func(value func(Run) float64) []float64 {
		var values []float64
		for _, run := range runs {
			values = append(values, value(run))
		}
		return values
	}
	sum := Summary{Scenario: s, Runs: len(runs), Fair: r.fairThroughput(s)}
	sum.Uncontrolled = overRuns(each(func(run Run) float64 { return run.Uncontrolled.BytesPerSecond }), slices.Min).Median
	sum.Baseline = max(sum.Uncontrolled, sum.Fair)
	sum.MeanError = overRuns(each(func(run Run) float64 { return run.Controlled.MeanError }), slices.Max)
	sum.Within = overRuns(each(func(run Run) float64 { return run.Controlled.Within }), slices.Min)
	sum.Deviation = overRuns(each(func(run Run) float64 { return run.Controlled.WorstDeviation }), slices.Max)
	sum.Controlled = overRuns(each(func(run Run) float64 { return run.Controlled.BytesPerSecond }), slices.Min)
	sum.CPUSeconds = overRuns(each(func(run Run) float64 { return run.CPUSeconds }), slices.Max)
	sum.Throughput = overRuns(each(func(run Run) float64 { return run.Controlled.BytesPerSecond / sum.Baseline }), slices.Min)
	sum.UncontrolledError = overRuns(each(func(run Run) float64 { return run.Uncontrolled.MeanError }), slices.Max)
	sum.Busy = overRuns(each(func(run Run) float64 { return run.Controlled.Busy }), slices.Max)
	sum.Stolen = overRuns(each(func(run Run) float64 { return run.Controlled.Stolen }), slices.Max)
	for _, run := range runs {
		if run.Controlled.LimitedIntervals > 0 {
			sum.Limited++
		}
		if run.Controlled.IgnoredIntervals > 0 {
			sum.Ignored++
		}
		if len(run.misses(sum.Baseline)) > 0 {
			sum.Missed++
		}
	}
	return sum
}

// Miss is a goal that a run missed.
type Miss struct {
	Run  Run
	What string
	// Severity is the ratio to the goal. A run that failed has none and comes
	// first.
	Severity float64
}

func (m Miss) String() string {
	return fmt.Sprintf("%s, run %d: %s", m.Run.Scenario, m.Run.Repetition, m.What)
}

// misses returns the missed goals of a run. baseline is the throughput for the
// ratio; 0 means that it is not checked.
func (run Run) misses(baseline float64) []Miss {
	var misses []Miss
	check := func(value, allowed float64, format string, arguments ...any) {
		if value > allowed*(1+1e-9) {
			misses = append(misses, Miss{run, fmt.Sprintf(format, arguments...), value / allowed})
		}
	}
	c := run.Controlled
	check(c.MeanError, goalMeanError, "mean of a minute %.1f points off, %.0f allowed", 100*c.MeanError, 100*goalMeanError)
	check(c.WorstDeviation, goalDeviation, "an interval %.1f points off, %.0f allowed", 100*c.WorstDeviation, 100*goalDeviation)
	check(1-c.Within, 1-goalWithin, "%.0f %% of the intervals within 5 points, want %.0f %%", 100*c.Within, 100*goalWithin)
	if baseline > 0 {
		ratio := c.BytesPerSecond / baseline
		check(1-ratio, 1-goalThroughput, "throughput %.3f, want %.2f", ratio, goalThroughput)
	}
	return misses
}

// Misses lists all misses, the worst first.
func (r Result) Misses() []Miss {
	var misses []Miss
	for _, s := range r.Plan {
		sum, _ := r.summarize(s)
		for _, run := range r.Runs {
			switch {
			case run.Scenario != s.Name || run.Kind != Judged:
			case run.Failed != "":
				misses = append(misses, Miss{Run: run, What: "failed: " + run.Failed})
			default:
				misses = append(misses, run.misses(sum.Baseline)...)
			}
		}
	}
	slices.SortStableFunc(misses, func(a, b Miss) int {
		if failedA, failedB := a.Severity == 0, b.Severity == 0; failedA != failedB {
			if failedA {
				return -1
			}
			return 1
		}
		return cmp.Compare(b.Severity, a.Severity)
	})
	return misses
}

// Check returns the missed goals, the worst first, and what is missing.
func (r Result) Check() error {
	var errs []error
	for _, m := range r.Misses() {
		errs = append(errs, errors.New(m.String()))
	}
	for _, s := range r.Plan {
		if r.fairThroughput(s) == 0 {
			errs = append(errs, fmt.Errorf("%s: the fair disk was not measured, so that the goal for throughput is not checked against it", s.Name))
		}
	}
	if left := len(r.jobs()); left > 0 {
		errs = append(errs, fmt.Errorf("%d runs are missing or failed; --resume measures them", left))
	}
	return errors.Join(errs...)
}
