package agent

import (
	"slices"
	"time"

	"github.com/daybook-project/daybook/internal/adopt"
)

// Report is what the last round found.
type Report struct {
	Time    time.Time
	Volumes []VolumeReport
	// Problems are the errors of the last round, unused annotations, and volumes without a
	// journal that can be placed.
	Problems []string
	// Rounds, Failures and Releases count since the start.
	Rounds, Failures, Releases uint64
	// Listings counts how often the container runtime listed its pods.
	Listings uint64
}

// VolumeReport is one file system of pods, and where its journal is.
type VolumeReport struct {
	Placement Placement
	Device    string // its name in /sys/class/block
	Status    adopt.Status

	kept *adopt.Kept // nil: it has no place
}

// Report is the report of the last round, with the present status of its placements. Rounds do
// not ask for the status: on a node with many volumes that would cost more than all else.
func (a *Agent) Report() Report {
	report := a.lastRound()
	report.Volumes = slices.Clone(report.Volumes)
	for i := range report.Volumes {
		if v := &report.Volumes[i]; v.kept != nil {
			v.Status = v.kept.Status()
		}
	}
	return report
}

// lastRound is the report of the last round without the status of its placements.
func (a *Agent) lastRound() Report {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.report
}

// finish makes the report, and logs each new problem once.
func (a *Agent) finish(reports []VolumeReport, problems []string, failures []error) {
	kept := map[string]*adopt.Kept{}
	for _, k := range a.keeper.Placements() {
		kept[k.Name()] = &k
	}
	for i := range reports {
		reports[i].kept = kept[reports[i].Device]
	}
	failed := uint64(0)
	for _, err := range failures {
		if err != nil {
			failed++
			problems = append(problems, err.Error())
		}
	}
	a.mu.Lock()
	r := &a.report
	r.Time, r.Volumes, r.Problems = time.Now(), reports, problems
	r.Rounds, r.Failures = r.Rounds+1, r.Failures+failed
	a.mu.Unlock()
	now := map[string]string{}
	for _, problem := range problems {
		now[problem] = ""
		if _, known := a.logged[problem]; !known {
			a.log.Warn("cannot do all of a round", "why", problem)
		}
	}
	a.logged = now
}
