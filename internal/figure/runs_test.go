package figure

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

func someRuns() Runs {
	return Runs{
		Title: "Errors in all runs", Note: "20 runs of each scenario", MeanLimit: 0.01, WorstLimit: 0.1,
		Rows: []RunsRow{
			{Scenario: "3 readers, depth 8, storm, BFQ default", Mean: []float64{0.002, 0.31}, Worst: []float64{0.04, 0.452}},
			{Scenario: "4 writers with fsync, depth 32, storm, BFQ recommended", Mean: []float64{0.003}, Worst: []float64{0.05}},
			{Scenario: "nothing"},
		},
	}
}

func TestRunsShowEachRunAndTheWorst(t *testing.T) {
	svg := must(t)(someRuns().SVG())
	checkLegible(t, svg)
	d := parse(t, svg)
	for _, want := range []string{"Errors in all runs", "31.0", "45.2", "0.3", "4 writers with fsync, depth 32, storm, BFQ recommended", "goal for each interval: 10"} {
		if !d.has(want) {
			t.Errorf("%q is not written", want)
		}
	}
	fewer := someRuns()
	fewer.Rows[0].Mean = fewer.Rows[0].Mean[1:]
	if less := must(t)(fewer.SVG()); len(less) >= len(svg) {
		t.Error("a run more has no dot of its own")
	}
}

func TestRunsTakeAnyNumbers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.OneOf(rapid.Float64(), rapid.Float64Range(-1, 2), rapid.Just(math.NaN()), rapid.Just(math.Inf(1)))
		r := someRuns()
		for n := range r.Rows[0].Mean {
			r.Rows[0].Mean[n], r.Rows[0].Worst[n] = number.Draw(t, "mean"), number.Draw(t, "worst")
		}
		svg, err := r.SVG()
		if err != nil {
			t.Fatal(err)
		}
		checkLegible(t, svg)
	})
}
