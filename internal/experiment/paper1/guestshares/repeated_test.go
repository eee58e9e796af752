package guestshares

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/control/law"
	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/experiment/scenario"
)

// counted is a run in a guest that counts instructions: the shares of a minute and of the worst
// interval under control, as distances from the target, and the throughput.
func counted(name string, repetition int, off, interval, throughput float64) Run {
	container := func(name string, off float64) scenario.ContainerSummary {
		return scenario.ContainerSummary{Name: name, TargetShare: 0.5, Share: 0.5 + off, WorstInterval: interval, ChargedBytes: uint64(500 * throughput)}
	}
	uncontrolled := scenario.PhaseSummary{Name: scenario.Uncontrolled, Seconds: 60, DiskBytes: 1000, Containers: []scenario.ContainerSummary{container("A", -0.2), container("B", 0.2)}}
	controlled := scenario.PhaseSummary{Name: "controlled", Law: law.FeedbackLaw, Seconds: 60, DiskBytes: uint64(1000 * throughput), Containers: []scenario.ContainerSummary{container("A", -off), container("B", off)}}
	return Run{Kernel: "6.1", Divider: "io.cost", Bounded: true, Counted: true, Repetition: repetition,
		Summary: scenario.Summary{Scenario: name, Phases: []scenario.PhaseSummary{uncontrolled, controlled}}}
}

func TestAllRunsOfAScenarioAreShown(t *testing.T) {
	result := Result{Runs: []Run{
		counted("50:50", 1, 0.002, 0.01, 1),
		counted("50:50", 2, 0.099, 0.202, 0.99),
		counted("50:50", 3, 0.004, 0.02, 0.96),
		counted("70:30", 1, 0.001, 0.005, 1),
		counted("70:30", 2, 0.003, 0.004, 1),
		counted("70:30", 3, 0.002, 0.003, 1),
	}}
	page, err := result.Report()
	if err != nil {
		t.Fatal(err)
	}
	want := [][]string{
		{"6.1", "io.cost", "50:50", "3", "1", "0.40, 9.90", "2.00, 20.20", "0.990, 0.960"},
		{"6.1", "io.cost", "70:30", "3", "3", "0.20, 0.30", "0.40, 0.50", "1.000, 1.000"},
	}
	if len(page.Tables) != 3 || !slices.EqualFunc(page.Tables[0].Rows, want, slices.Equal) {
		t.Errorf("%+v", page.Tables)
	}
	if got := page.Tables[1].Title; got != "Linux 6.1, io.cost, 50:50: run 2, the worst of 3" {
		t.Error(got)
	}
	if got := page.Tables[2].Title; got != "Linux 6.1, io.cost, 70:30: run 1, the worst of 3" {
		t.Error(got)
	}
	err = result.Check()
	for _, line := range []string{
		"6.1, io.cost, 50:50, run 2: A is off its target by -9.90 points of 1.5 allowed",
		"6.1, io.cost, 50:50, run 3: the throughput is 0.960 of the uncontrolled one; want 0.97",
	} {
		if err == nil || !strings.Contains(err.Error(), line) {
			t.Errorf("%v; want %s", err, line)
		}
	}
	if err != nil && strings.Contains(err.Error(), "70:30") {
		t.Error(err)
	}
}

func TestOneRunOfEachScenarioHasNoTableOfRuns(t *testing.T) {
	page, err := Result{Runs: []Run{counted("50:50", 1, 0.002, 0.01, 1)}}.Report()
	if err != nil || len(page.Tables) != 1 || page.Tables[0].Title != "Linux 6.1, io.cost, 50:50" {
		t.Errorf("%+v, %v", page.Tables, err)
	}
}

// fakeGuest measures nothing: a phase under control has half the throughput.
type fakeGuest struct{ laws []string }

func (*fakeGuest) Kernel() string { return "6.1.9-amd64" }
func (*fakeGuest) Close() error   { return nil }
func (g *fakeGuest) Run(_ context.Context, c Case, _ func(string)) (scenario.Phase, error) {
	g.laws = append(g.laws, c.Law)
	phase := scenario.Phase{Name: c.Law, Device: account.Device{Device: "disk", DiskBytes: 1000}, Samples: []account.Sample{{IntervalSeconds: 5}}}
	if c.Law != scenario.Uncontrolled {
		phase.Device.DiskBytes = 500
	}
	return phase, nil
}

// Every other run begins with control; its throughput is still that over the uncontrolled phase.
func TestRunsBeginInTurnWithControl(t *testing.T) {
	g := &fakeGuest{}
	result, err := Bench(t.Context(), fixture.Lab{}, Options{
		Boot:    func(context.Context, string) (Guest, error) { return g, nil },
		Kernels: []string{"6.1"}, Dividers: []string{fixture.IOCost}, Scenarios: 1, Repetitions: 3, CountInstructions: true,
	})
	want := []string{scenario.Uncontrolled, law.FeedbackLaw, law.FeedbackLaw, scenario.Uncontrolled, scenario.Uncontrolled, law.FeedbackLaw}
	if err != nil || !slices.Equal(g.laws, want) || len(result.Runs) != 3 {
		t.Fatalf("%q, %v; want %q", g.laws, err, want)
	}
	for _, run := range result.Runs {
		if d := run.distance(); d.throughput != 0.5 || run.Phases[0].Name != scenario.Uncontrolled || run.Phases[1].Law != law.FeedbackLaw {
			t.Errorf("run %d: %+v, throughput %g", run.Repetition, run.Phases, d.throughput)
		}
	}
}

// What was not measured under control, or only for comparison, is no kept bound.
func TestNothingMeasuredIsNoKeptBound(t *testing.T) {
	for name, o := range map[string]Options{
		"no kernel":  {Kernels: []string{}},
		"no divider": {Kernels: []string{"6.1"}, Dividers: []string{}},
	} {
		if _, err := Bench(t.Context(), fixture.Lab{}, o); err == nil || !strings.Contains(err.Error(), "nothing to measure") {
			t.Errorf("%s: %v", name, err)
		}
	}
	compared, uncontrolled := counted("50:50", 1, 0.002, 0.01, 1), counted("50:50", 1, 0.002, 0.01, 1)
	compared.Bounded = false
	uncontrolled.Phases = uncontrolled.Phases[:1]
	for name, result := range map[string]Result{"no run": {}, "for comparison": {Runs: []Run{compared}}, "uncontrolled": {Runs: []Run{uncontrolled}}} {
		if err := result.Check(); err == nil || !strings.Contains(err.Error(), "nothing was measured that has a bound") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := (Result{Runs: []Run{compared, counted("70:30", 1, 0.002, 0.01, 1)}}).Check(); err != nil {
		t.Error(err)
	}
}
