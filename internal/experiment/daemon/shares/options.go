package shares

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/daybook-project/daybook/internal/experiment/report"
)

// Options select what bench-shares measures.
type Options struct {
	Settings
	Repetitions int
	// Only are the names of the scenarios to measure; none means all. The runs of
	// the others are kept from Before.
	Only []string
	// Before is a result to continue; with Anew, the runs of Only are measured again.
	Before *Result
	Anew   bool
	// Version of the program that measures.
	Version string
	// Recordings is the directory for those of bad runs; "": none are kept.
	Recordings string
	// Save keeps the result, after each run.
	Save func(Result) error
	// Say receives a line for each run that ended.
	Say func(line string)
}

// Full is the benchmark, Quick a short run that tests it.
var (
	Full = Options{
		Settings:    Settings{UncontrolledSeconds: 15, ControlledSeconds: 75, FairSeconds: 30, IntervalSeconds: 5, WarmUpSeconds: 5},
		Repetitions: 20,
	}
	Quick = Options{
		Settings:    Settings{UncontrolledSeconds: 2, ControlledSeconds: 5, FairSeconds: 2, IntervalSeconds: 1, WarmUpSeconds: 1},
		Repetitions: 1,
	}
)

// Names lists the scenarios.
func Names() []string {
	var names []string
	for _, s := range Full.plan() {
		names = append(names, s.Name)
	}
	return names
}

// Begin returns the result that the options continue, or the reason why it cannot
// be continued.
func Begin(o Options) (Result, error) {
	result := Result{Host: report.ThisHost(), Settings: o.Settings, Repetitions: o.Repetitions, Plan: o.plan()}
	for _, name := range o.Only {
		if !slices.ContainsFunc(result.Plan, func(s Scenario) bool { return s.Name == name }) {
			return result, fmt.Errorf("no scenario %q: choose of\n  %s", name, strings.Join(Names(), "\n  "))
		}
	}
	if o.Before == nil {
		if len(o.Only) > 0 {
			result.Plan = slices.DeleteFunc(result.Plan, func(s Scenario) bool { return !slices.Contains(o.Only, s.Name) })
		}
		return result, nil
	}
	before := *o.Before
	if err := result.continues(before); err != nil {
		return result, err
	}
	result.Plan = slices.DeleteFunc(result.Plan, func(s Scenario) bool {
		return !slices.ContainsFunc(before.Plan, s.sameAs) && !slices.Contains(o.Only, s.Name)
	})
	result.Repetitions = max(result.Repetitions, before.Repetitions)
	anew := func(run Run) bool {
		return o.Anew && run.Kind == Judged && slices.Contains(o.Only, run.Scenario)
	}
	// Runs that failed are repeated: they have no figures.
	result.Repeated = slices.DeleteFunc(slices.Clone(before.Repeated), anew)
	for _, run := range before.Runs {
		switch {
		case anew(run):
		case run.Failed != "":
			result.Repeated = append(result.Repeated, run)
		default:
			result.Runs = append(result.Runs, run)
		}
	}
	return result, nil
}

// continues refuses runs that may not stand beside those of the result.
func (r Result) continues(before Result) error {
	if err := report.SameHost(before.Host, r.Host); err != nil {
		return err
	}
	switch {
	case before.Settings != r.Settings:
		return fmt.Errorf("the runs before were made with other settings, %+v; now %+v", before.Settings, r.Settings)
	case len(before.Plan) == 0:
		return errors.New("the file has no scenarios: it is of another version of this benchmark")
	}
	for _, s := range before.Plan {
		if !slices.ContainsFunc(r.Plan, s.sameAs) {
			return fmt.Errorf("the runs before were made with another version of the scenario %q", s.Name)
		}
	}
	return nil
}
