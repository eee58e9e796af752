package guestlvm

import (
	"context"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/fio"
)

// fakeGuest has thin volumes that take twice as long.
type fakeGuest struct{ closed bool }

func (g *fakeGuest) Kernel() string { return "6.1.9-amd64" }
func (g *fakeGuest) Close() error   { g.closed = true; return nil }
func (g *fakeGuest) Run(_ context.Context, c Case, tell func(string)) (all []Sample, _ error) {
	tell("now")
	for round := range c.Rounds {
		for _, neighbour := range Neighbours() {
			for _, kind := range order(round) {
				took := map[Kind]float64{Thick: 0.01, Thin: 0.02}[kind]
				all = append(all, Sample{Round: round, Kind: kind, Neighbour: neighbour,
					Writer: fio.Result{Seconds: 1, Syncs: uint64(1 / took), SyncP50Seconds: took, SyncP99Seconds: took}})
			}
		}
	}
	return all, nil
}

func TestTheReportComparesThinWithThickOfTheSameRound(t *testing.T) {
	g := &fakeGuest{}
	o := Full
	o.Boot = func(context.Context, string) (Guest, error) { return g, nil }
	result, err := Bench(t.Context(), fixture.Lab{}, o)
	if err != nil || !g.closed || result.Check() != nil {
		t.Fatalf("closed %v, %v, %v", g.closed, err, result.Check())
	}
	page, err := result.Report()
	if err != nil || len(page.Tables) != 3 {
		t.Fatalf("%+v, %v", page, err)
	}
	if row := strings.Join(page.Tables[0].Rows[0][:4], "|"); row != "none|0.50 (0.50 to 0.50)|2.00 (2.00 to 2.00)|2.00 (2.00 to 2.00)" {
		t.Errorf("%s", row)
	}
	if result.Samples[0].Kind != Thick || result.Samples[len(Neighbours())*2].Kind != Thin {
		t.Error("the rounds do not alternate")
	}
	missing := result
	missing.Samples = result.Samples[:len(result.Samples)-2*len(Neighbours())*(o.Rounds-MinRounds+1)]
	if missing.Check() == nil {
		t.Errorf("%d samples are enough", len(missing.Samples))
	}
}

func TestACaseThatCannotBeIsRefused(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"no round":          func(o *Options) { o.Rounds = 0 },
		"no time":           func(o *Options) { o.Time = 0 },
		"a flush before it": func(o *Options) { o.FlushMilliseconds = -1 },
	} {
		o := Quick
		change(&o)
		if _, err := Bench(t.Context(), fixture.Lab{}, o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
