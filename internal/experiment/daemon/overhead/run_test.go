package overhead

import (
	"context"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/experiment/fixture/fixturetest"
	"github.com/daybook-project/daybook/internal/workload"
)

// The test does not check costs. It checks that each operation causes its events, and
// that a detached program sees none.
func TestOverheadCountsEveryOperationAndItsEvents(t *testing.T) {
	lab := fixturetest.New(t)
	o, err := Run(t.Context(), lab, Options{Extent: Extent{Pairs: 2, Scale: 10}})
	if err != nil {
		t.Fatal(err)
	}
	events := make(map[[2]string]float64)
	for _, p := range o.Programs {
		events[[2]string{p.Operation, p.Program}] = p.Events
	}
	for _, row := range o.Rows {
		t.Logf("%+v", row)
		if row.Unit != Nanoseconds || row.Detached <= 0 || row.Attached <= 0 || row.Low > row.Ratio || row.Ratio > row.High || row.Verdict == "" {
			t.Errorf("%s: %+v", row.Operation, row)
		}
		if events[[2]string{row.Operation, "handle_stats"}] < 1 {
			t.Errorf("%s stops %g handles a call; want at least one", row.Operation, events[[2]string{row.Operation, "handle_stats"}])
		}
	}
	if len(o.Rows) != len(hostLoads) {
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

// fakeGuest executes 1 % and a bit more instructions with the programs attached.
type fakeGuest struct{ closed bool }

func (g *fakeGuest) Kernel() string { return "6.1.9-amd64" }
func (g *fakeGuest) Close() error   { g.closed = true; return nil }
func (g *fakeGuest) Run(_ context.Context, e Extent, tell func(string)) (Result, error) {
	tell("now")
	row := Row{Operation: "mkdir", Unit: Instructions, Calls: 100 / e.Scale, Pairs: e.Pairs, Detached: 1000, Attached: 1011, Ratio: 1.011, Low: 1.011, High: 1.011}
	row.judge()
	return Result{Rows: []Row{row}, Programs: []ProgramCost{{Operation: "mkdir", Unit: Instructions, Program: "handle_stats", Events: 1, Cost: 11}}}, nil
}

func TestOverheadNamesTheGuestThatMissesTheBound(t *testing.T) {
	g := &fakeGuest{}
	o, err := Run(t.Context(), fixture.Lab{}, Options{
		Extent: Extent{Scale: 4}, GuestPairs: 3, Kernels: []string{"6.1"},
		Boot: func(context.Context, string) (Guest, error) { return g, nil },
	})
	if err != nil || !g.closed || len(o.Rows) != 1 || o.Rows[0].Kernel != g.Kernel() || o.Programs[0].Kernel != g.Kernel() || o.Rows[0].Pairs != 3 {
		t.Fatalf("closed %v, %+v, %v", g.closed, o, err)
	}
	if err := o.Check(); err == nil || !strings.Contains(err.Error(), g.Kernel()) {
		t.Errorf("1.1 %% more: %v", err)
	}
	page, err := o.Report()
	// The table of times on the host has no rows, and is left out.
	if err != nil || len(page.Tables) != 2 || len(page.Tables[0].Rows) != 1 || page.Tables[1].Title != "The BPF programs" {
		t.Errorf("%+v, %v", page.Tables, err)
	}
}

func TestOverheadFailsOnlyIfTheRangeIsAboveTheBound(t *testing.T) {
	for want, row := range map[Verdict]Row{
		NotConfirmed: {Operation: "mkdir", Ratio: 1.05, Low: 0.99, High: 1.2},
		Missed:       {Operation: "mkdir", Ratio: 1.05, Low: 1.04, High: 1.06},
		Met:          {Operation: "mkdir", Ratio: 1.005, Low: 1.001, High: 1.01},
	} {
		row.judge()
		if row.Verdict != want {
			t.Errorf("%+v: want %s", row, want)
		}
		if err := (Result{Rows: []Row{row}}).Check(); (err != nil) != (want == Missed) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestNothingMeasuredIsNoMetBound(t *testing.T) {
	if _, err := Run(t.Context(), fixture.Lab{}, Options{Extent: Extent{Scale: 1}, GuestPairs: 3}); err == nil || !strings.Contains(err.Error(), "nothing to measure") {
		t.Errorf("no pair on the host and no guest: %v", err)
	}
	if err := (Result{}).Check(); err == nil {
		t.Error("a result without an operation is within the bound")
	}
}
