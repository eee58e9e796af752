package overhead

import (
	"testing"

	"github.com/daybook-project/daybook/internal/experiment/fixture/fixturetest"
	"github.com/daybook-project/daybook/internal/workload"
)

// The test does not check rates. It checks that each operation causes its
// events.
func TestOverheadCountsEveryOperationAndItsEvents(t *testing.T) {
	lab := fixturetest.New(t)
	o, err := Run(t.Context(), lab, Options{Program: fixturetest.BuildDaybook(t), Pairs: 2, Scale: 50})
	if err != nil {
		t.Fatal(err)
	}
	events := make(map[[2]string]float64)
	for _, p := range o.Programs {
		events[[2]string{p.Operation, p.Program}] = p.Events
	}
	for _, row := range o.Rows {
		t.Logf("%+v", row)
		if row.SecondsWith <= 0 || row.SecondsWithout <= 0 || row.Low > row.Ratio || row.Ratio > row.High {
			t.Errorf("%s: %+v", row.Operation, row)
		}
		if events[[2]string{row.Operation, "handle_stats"}] < 1 {
			t.Errorf("%s stops %g handles a call; want at least one", row.Operation, events[[2]string{row.Operation, "handle_stats"}])
		}
	}
	if len(o.Rows) != len(measuredLoads) {
		t.Errorf("%d rows", len(o.Rows))
	}
	// Not exactly 1: programs are counted on the whole host.
	if commits := events[[2]string{workload.AppendFsync, "run_stats"}]; commits < 0.9 {
		t.Errorf("%g commits an fsync; want about one", commits)
	}
	if _, err := o.Report(); err != nil {
		t.Error(err)
	}
}

func TestOverheadFailsOnlyIfTheRangeIsBelowTheBound(t *testing.T) {
	noisy := Result{Rows: []Row{{Operation: "mkdir", Bounded: true, Ratio: 0.95, Low: 0.8, High: 1.01}}}
	if err := noisy.Check(); err != nil {
		t.Errorf("a range that contains the bound: %v", err)
	}
	slow := Result{Rows: []Row{{Operation: "mkdir", Bounded: true, Ratio: 0.95, Low: 0.94, High: 0.96}}}
	if slow.Check() == nil {
		t.Error("a range at 5 % below is accepted")
	}
}
