package shares

import (
	"slices"

	"github.com/daybook-project/daybook/internal/control/law"
	"github.com/daybook-project/daybook/internal/experiment/scenario"
)

const (
	// fairRepetitions are enough for a median: the fair disk varies little.
	fairRepetitions = 3
	// aloneRepetitions is how often the scenario aloneName runs alone, to see
	// whether lanes disturb each other.
	aloneRepetitions = 3
)

// aloneConditions are those in which shares vary least.
func aloneConditions() Conditions { return base.fair() }

// job is a run that is not measured yet.
type job struct {
	kind       Kind
	scenario   Scenario
	repetition int
}

// jobs lists the runs that are missing or failed: first those alone, then one
// repetition after the other, so that a change of the host affects all scenarios.
func (r Result) jobs() []job {
	done := func(j job) bool {
		return slices.ContainsFunc(r.Runs, func(run Run) bool {
			return run.Kind == j.kind && run.Scenario == j.scenario.Name && run.Repetition == j.repetition && run.Failed == ""
		})
	}
	var jobs []job
	add := func(j job) {
		if !done(j) {
			jobs = append(jobs, j)
		}
	}
	if r.Settings.Lanes > 1 {
		for repetition := range min(aloneRepetitions, r.Repetitions) {
			add(job{Alone, r.Settings.scenario(aloneConditions()), repetition + 1})
		}
	}
	for repetition := 1; repetition <= r.Repetitions; repetition++ {
		for _, s := range r.Plan {
			add(job{Judged, s, repetition})
		}
		if repetition > fairRepetitions {
			continue
		}
		var fairs []string
		for _, s := range r.Plan {
			name := s.fair().name()
			measured := slices.ContainsFunc(r.Plan, func(other Scenario) bool { return other.Name == name })
			if !measured && !slices.Contains(fairs, name) {
				fairs = append(fairs, name)
				add(job{FairDisk, r.Settings.scenario(s.fair()), repetition})
			}
		}
	}
	return jobs
}

// parts returns the parts of the job's run. The first phase alternates, so that the
// remains of the loads, such as metadata that is not written yet, affect both.
func (j job) parts(s Settings) []scenario.Part {
	if j.kind == FairDisk {
		return []scenario.Part{{Law: scenario.Uncontrolled, Seconds: s.FairSeconds}}
	}
	parts := []scenario.Part{{Law: scenario.Uncontrolled, Seconds: s.UncontrolledSeconds}, {Law: law.FeedbackLaw, Seconds: s.ControlledSeconds}}
	if j.controlledFirst() {
		slices.Reverse(parts)
	}
	return parts
}

func (j job) controlledFirst() bool { return j.kind != FairDisk && j.repetition%2 == 0 }
