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
	options := fakeOptions(t, f, config+"tunables: none\n"+twoEqual, windows...)
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

func TestLimitsTakeOverAtOnceWhereIOCostLetsMuchPassAndAShareIsMissed(t *testing.T) {
	limits, weights := account.ActuatorLimits, account.ActuatorWeights
	for _, c := range []struct {
		name    string
		config  string
		byCost  bool
		windows []func() account.Sample
		want    []string
	}{
		{"missed in the second window", "", true, []func() account.Sample{lacking(0.07, 0.15), lacking(0.025, 0.15), lacking(0.025, 0.15)}, []string{weights, limits, limits}},
		{"missed by far in the first", "", true, []func() account.Sample{lacking(0.08, 0.15), lacking(0, 0.15)}, []string{limits, limits}},
		{"held", "", true, slices.Repeat([]func() account.Sample{lacking(0.015, 0.15)}, 4), slices.Repeat([]string{weights}, 4)},
		{"little that passes", "", true, slices.Repeat([]func() account.Sample{lacking(0.04, 0.04)}, 2), []string{weights, weights}},
		{"not under io.cost", "", false, slices.Repeat([]func() account.Sample{lacking(0.04, 0.15)}, 2), []string{weights, weights}},
		{"limits are not allowed", "actuator: weights\n", true, []func() account.Sample{lacking(0.12, 0.15), lacking(0.12, 0.15)}, []string{weights, weights}},
	} {
		t.Run(c.name, func(t *testing.T) {
			actuators, log := actuatorsBy(t, c.config, c.byCost, c.windows...)
			if !slices.Equal(actuators, c.want) {
				t.Errorf("%q; want %q", actuators, c.want)
			}
			warned := strings.Contains(log, "15 % of the disk, which io.cost neither counts nor holds back")
			if want := slices.Contains(c.want, limits) || c.config != ""; warned != want {
				t.Errorf("warned %t; want %t:\n%s", warned, want, log)
			}
		})
	}
}

// Weights would miss the shares again, as long as as much passes io.cost.
func TestWeightsAreTriedAgainOnceLittlePassesIOCost(t *testing.T) {
	windows := []func() account.Sample{lacking(0.12, 0.15)}
	windows = append(windows, slices.Repeat([]func() account.Sample{lacking(0, 0.15)}, 30)...) // 150 s: more than firstPause
	windows = append(windows, slices.Repeat([]func() account.Sample{lacking(0, 0.01)}, 8)...)
	actuators, _ := actuatorsBy(t, "", true, windows...)
	if n := slices.Index(actuators, account.ActuatorWeights); n < 31 || n > 38 {
		t.Errorf("weights are in force again after window %d; want 31 to 38:\n%q", n, actuators)
	}
}
