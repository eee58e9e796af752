package shares

import (
	"fmt"
	"math"
	"time"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/experiment/scenario"
)

// Kind is the purpose of a run.
type Kind string

// The kinds of runs.
const (
	// Judged runs must reach the goals.
	Judged Kind = "judged"
	// FairDisk runs are uncontrolled, for the throughput of the fair disk.
	FairDisk Kind = "fair disk"
	// Alone runs have no other lane beside them.
	Alone Kind = "alone"
)

// Run is the result of one run of a scenario. Errors and deviations are of shares,
// absolute, 0..1.
type Run struct {
	Scenario string `json:"scenario"`
	Kind     Kind   `json:"kind"`
	// Repetition counts from 1, Lane from 0.
	Repetition int `json:"repetition"`
	Lane       int `json:"lane"`
	// Began is the start of the run, and Seconds its duration with the preparation.
	Began   time.Time `json:"began"`
	Seconds float64   `json:"seconds"`
	// Version is that of the program that measured.
	Version string `json:"version,omitempty"`
	// Failed is the reason why there are no figures.
	Failed string `json:"failed,omitempty"`
	// ControlledFirst: the uncontrolled phase came after the controlled one.
	ControlledFirst bool         `json:"controlled_first"`
	Uncontrolled    PhaseFigures `json:"uncontrolled"`
	Controlled      PhaseFigures `json:"controlled"`
	// Recording of the controlled phase, if a goal for shares was missed.
	Recording string `json:"recording,omitempty"`
	// CPUSeconds is the processor time of the run with its disk and loads.
	CPUSeconds float64 `json:"cpu_seconds"`
}

// PhaseFigures are those of the intervals that count: in a controlled phase, all
// but the first three.
type PhaseFigures struct {
	// MeanError is the largest over the containers of their mean shares' errors.
	MeanError float64 `json:"mean_error"`
	// Within is the part of the intervals in which all containers were within 5
	// points of their targets.
	Within float64 `json:"within"`
	// WorstDeviation is the largest of any container in any interval.
	WorstDeviation float64 `json:"worst_deviation"`
	BytesPerSecond float64 `json:"bytes_per_second"`
	// Shares are the means, by container; IntervalShares those of all intervals,
	// the first three too.
	Shares         []float64   `json:"shares"`
	IntervalShares [][]float64 `json:"interval_shares"`
	// LimitedIntervals is the number of intervals in which limits held the shares.
	// IgnoredIntervals is the number in which control reported ignored weights.
	LimitedIntervals int `json:"limited_intervals"`
	IgnoredIntervals int `json:"ignored_intervals"`
	// Busy and Stolen are parts of the host's processor time.
	Busy   float64 `json:"busy"`
	Stolen float64 `json:"stolen"`
}

// withinPoints is the error up to which an interval counts in Within.
// warmUpIntervals is how many intervals a law has to find its weights.
const (
	near            = 0.05
	warmUpIntervals = 3
)

// figuresOf measures a phase, without its first skip intervals.
func figuresOf(s scenario.Scenario, phase scenario.Phase, skip int) (f PhaseFigures, err error) {
	if len(phase.Samples) <= skip {
		return f, fmt.Errorf("%d intervals: want more than %d", len(phase.Samples), skip)
	}
	targets := s.Targets()
	within, seconds := 0, 0.0
	for n, sample := range phase.Samples {
		shares := s.Shares(sample)
		f.IntervalShares = append(f.IntervalShares, rounded(shares))
		if n < skip {
			continue
		}
		off := largest(shares, targets)
		if f.WorstDeviation = max(f.WorstDeviation, off); off <= near {
			within++
		}
		seconds += sample.IntervalSeconds
		for _, d := range sample.Devices {
			if d.Control == nil {
				continue
			}
			if d.Control.Actuator == account.ActuatorLimits {
				f.LimitedIntervals++
			}
			if d.Control.WeightsIgnored {
				f.IgnoredIntervals++
			}
		}
	}
	counted := phase.Samples[skip:]
	device := account.Sum(counted)
	f.Shares = s.Shares(account.Sample{Devices: []account.Device{device}})
	f.MeanError = largest(f.Shares, targets)
	f.Within = float64(within) / float64(len(counted))
	f.BytesPerSecond = float64(device.DiskBytes) / seconds
	f.Busy, f.Stolen = processors(phase.Processors)
	return f, nil
}

// largest difference.
func largest(shares, targets []float64) float64 {
	var most float64
	for n := range shares {
		most = max(most, math.Abs(shares[n]-targets[n]))
	}
	return most
}

// rounded to a hundredth of a point, for a file that people may read.
func rounded(shares []float64) []float64 {
	out := make([]float64, len(shares))
	for n, share := range shares {
		out[n] = math.Round(share*1e4) / 1e4
	}
	return out
}

func processors(p fixture.Processors) (busy, stolen float64) {
	if p.All <= 0 {
		return 0, 0
	}
	return 1 - (p.Idle+p.Stolen)/p.All, p.Stolen / p.All
}
