package control

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/account"
)

// lacking is a window of 5 s in which /ca lacks a part of its half of 200 MB that /cb has, and
// hidden is the journal of /cb as a part of the disk. Both have I/O outstanding all the time.
func lacking(lack, hidden float64) func() account.Sample {
	return func() account.Sample {
		const disk = 200e6
		ca := did("/ca", uint64((0.5-lack)*disk), 0)
		cb := did("/cb", uint64((0.5+lack-hidden)*disk), uint64(hidden*disk))
		ca.BusySeconds, cb.BusySeconds = 5, 5
		return sampleOf(ca, cb)
	}
}

// actuatorsBy returns what enforced the shares after each window, under io.cost or not.
func actuatorsBy(t *testing.T, config string, byCost bool, windows ...func() account.Sample) (actuators []string, log string) {
	t.Helper()
	f := newFakeHost("/ca", "/cb")
	f.scheduler = "none"
	options := fakeOptions(t, f, config+twoEqual, windows...)
	options.Disks[0].Host.CostDivides = byCost
	var out bytes.Buffer
	options.Log = slog.New(slog.NewTextHandler(&out, nil))
	options.OnInterval = func(Decision) {
		ideals, err := LoadIdeals(options.Config.StateDir, "loop0", fakeCgroups{f}.ID)
		if err != nil {
			t.Fatal(err)
		}
		actuators = append(actuators, ideals.Control.Actuator)
	}
	if err := Run(context.Background(), options); err != nil {
		t.Fatal(err)
	}
	return actuators, out.String()
}

// times is n of the same window.
func times(n int, window func() account.Sample) []func() account.Sample {
	return slices.Repeat([]func() account.Sample{window}, n)
}

// onlyTheOther is a window in which only /cb does something.
func onlyTheOther() account.Sample {
	cb := did("/cb", 170e6, 30e6)
	cb.BusySeconds = 5
	return sampleOf(did("/ca", 0, 0), cb)
}

// passedCost counts the warnings about io.cost.
func passedCost(log string) int {
	return strings.Count(log, "of what all do, which io.cost neither counts nor holds back")
}

func TestLimitsTakeOverAtOnceWhereIOCostLetsMuchPassAndAShareIsMissed(t *testing.T) {
	limits, weights := account.ActuatorLimits, account.ActuatorWeights
	for _, c := range []struct {
		name     string
		config   string
		byCost   bool
		windows  []func() account.Sample
		want     []string
		warnings int
	}{
		{"missed in the second window", "", true, append(times(1, lacking(0, 0.15)), times(2, lacking(0.06, 0.15))...), []string{weights, limits, limits}, 1},
		{"missed in the first", "", true, times(3, lacking(0.025, 0.15)), []string{limits, limits, limits}, 1},
		{"the one whose journal passes lacks a part", "", true, append(times(1, lacking(0, 0.15)), times(3, lacking(-0.045, 0.06))...), slices.Repeat([]string{weights}, 4), 0},
		{"and by far", "", true, append(times(1, lacking(0, 0.15)), times(3, lacking(-0.06, 0.06))...), []string{weights, weights, limits, limits}, 0},
		{"held", "", true, times(4, lacking(0.015, 0.15)), slices.Repeat([]string{weights}, 4), 0},
		{"little that passes", "", true, times(4, lacking(0.04, 0.04)), slices.Repeat([]string{weights}, 4), 0},
		{"little that passes, and missed by far", "", true, times(3, lacking(0.06, 0.04)), []string{weights, limits, limits}, 0},
		{"not under io.cost", "", false, times(4, lacking(0.04, 0.15)), slices.Repeat([]string{weights}, 4), 0},
		{"limits are not allowed", "actuator: weights\n", true, times(60, lacking(0.025, 0.15)), slices.Repeat([]string{weights}, 60), 1},
		{"one begins in a window", "", true, append([]func() account.Sample{onlyTheOther, onlyTheOther}, append(times(1, lacking(0.1, 0.15)), times(3, lacking(0, 0.15))...)...),
			slices.Repeat([]string{weights}, 6), 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			actuators, log := actuatorsBy(t, c.config, c.byCost, c.windows...)
			if !slices.Equal(actuators, c.want) {
				t.Errorf("%q; want %q", actuators, c.want)
			}
			if n := passedCost(log); n != c.warnings {
				t.Errorf("%d warnings; want %d:\n%s", n, c.warnings, log)
			}
			if advised := strings.Contains(log, "allow limits: actuator: auto"); advised != (c.config != "") {
				t.Errorf("advised to allow limits: %t:\n%s", advised, log)
			}
		})
	}
}

func TestTheWarningNamesTheContainerAndWhatPasses(t *testing.T) {
	want := "for 5 s /ca has lacked 8 % of the disk that is due to it, and the journal and metadata of a container were 15 % of what all do"
	if _, log := actuatorsBy(t, "", true, lacking(0, 0.15), lacking(0.08, 0.15)); !strings.Contains(log, want) {
		t.Errorf("want %q:\n%s", want, log)
	}
}

// Weights would miss the shares again, as long as as much passes io.cost. What passes is a mean of
// 20 s; it is little below half of what makes limits take over.
func TestWeightsAreTriedAgainOnceLittlePassesIOCost(t *testing.T) {
	missed := []func() account.Sample{lacking(0, 0.15), lacking(0.12, 0.15)}
	nothing := func() account.Sample { return sampleOf(did("/ca", 0, 0), did("/cb", 0, 0)) }
	for _, c := range []struct {
		name     string
		windows  []func() account.Sample
		from, to int // the first window after which weights are in force; -1: none
	}{
		{"as much passes", times(40, lacking(0, 0.15)), -1, -1}, // 200 s: more than firstPause
		{"some passes", append(times(30, lacking(0, 0.15)), times(20, lacking(0, 0.035))...), -1, -1},
		{"little passes", append(times(30, lacking(0, 0.15)), times(15, lacking(0, 0.01))...), 31, 45},
		{"all are idle", append(times(30, lacking(0, 0.15)), times(15, nothing)...), 31, 40},
	} {
		t.Run(c.name, func(t *testing.T) {
			actuators, _ := actuatorsBy(t, "", true, append(slices.Clone(missed), c.windows...)...)
			actuators = actuators[1:]
			if n := slices.Index(actuators, account.ActuatorWeights); n < c.from || n > c.to {
				t.Errorf("weights are in force again after window %d; want %d to %d:\n%q", n, c.from, c.to, actuators)
			}
		})
	}
}

// Weights that miss the shares again end the try.
func TestLimitsReturnIfWeightsMissTheSharesAgainUnderIOCost(t *testing.T) {
	windows := []func() account.Sample{lacking(0, 0.15), lacking(0.12, 0.15)}
	windows = append(windows, times(30, lacking(0, 0.15))...)
	windows = append(windows, times(12, lacking(0, 0.01))...)
	windows = append(windows, times(60, lacking(0.025, 0.15))...)
	actuators, log := actuatorsBy(t, "", true, windows...)
	if last := actuators[len(actuators)-1]; last != account.ActuatorLimits {
		t.Errorf("in the end: %s:\n%q", last, actuators)
	}
	if n := passedCost(log); n != 2 {
		t.Errorf("%d warnings; want 2:\n%s", n, log)
	}
}

// Limits that cost throughput end also while much passes io.cost.
func TestLimitsThatCostThroughputEndUnderIOCost(t *testing.T) {
	slow := func() account.Sample {
		ca, cb := did("/ca", 5e6, 0), did("/cb", 3.5e6, 1.5e6)
		ca.BusySeconds, cb.BusySeconds = 5, 5
		return sampleOf(ca, cb)
	}
	windows := append(times(4, lacking(0, 0.15)), times(1, lacking(0.12, 0.15))...)
	windows = append(windows, times(30, lacking(0, 0.15))...) // more than firstPause
	windows = append(windows, times(20, slow)...)
	actuators, log := actuatorsBy(t, "", true, windows...)
	if !slices.Contains(actuators[35:], account.ActuatorWeights) || !strings.Contains(log, "limits cost the disk's throughput") {
		t.Errorf("%q:\n%s", actuators, log)
	}
}

// Nothing corrects the weights in a dry run, so that shares are missed says nothing.
func TestADryRunDoesNotBlameIOCost(t *testing.T) {
	f := newFakeHost("/ca", "/cb")
	f.scheduler = "none"
	options := fakeOptions(t, f, twoEqual, times(3, lacking(0.08, 0.15))...)
	options.Disks[0].Host.CostDivides, options.DryRun = true, true
	var out bytes.Buffer
	options.Log = slog.New(slog.NewTextHandler(&out, nil))
	if err := Run(context.Background(), options); err != nil {
		t.Fatal(err)
	}
	if n := passedCost(out.String()); n != 0 {
		t.Errorf("%d warnings:\n%s", n, out.String())
	}
}
