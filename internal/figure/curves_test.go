package figure

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

func curvesRun() Curves {
	return Curves{
		Title: "Updates a second", Note: "2 processors",
		Panels: []CurvePanel{
			{Title: "varmail", XName: "threads", YName: "millions/s", X: []float64{1, 2, 4}, Lines: []Curve{
				{Name: "nvjournal", Y: []float64{2, 3.7, 3.6}},
				{Name: "one lock", Y: []float64{3, 2, math.NaN()}},
			}},
			{Title: "bytes", XName: "bytes of an update", Bars: []CurveBar{
				{Name: "nvjournal", Value: 212, Text: "212 B"}, {Name: "blocks", Value: 4160, Text: "4160 B"},
			}},
			{Title: "a model", XName: "cores", YName: "millions/s", X: []float64{1, 2, 4, 8}, Lines: []Curve{
				{Name: "nvjournal", Y: []float64{2, 4, 8, 15}},
				{Name: "nvjournal, measured", Y: []float64{2, 3.7, math.NaN(), math.NaN()}, Points: true},
			}},
		},
	}
}

func TestCurvesNameSubjectsPlacesAndAmounts(t *testing.T) {
	svg := must(t)(curvesRun().SVG())
	checkLegible(t, svg)
	d := parse(t, svg)
	for _, want := range []string{"Updates a second", "nvjournal", "one lock", "4160 B", "threads", "a model", "8"} {
		if !d.has(want) {
			t.Errorf("%q is not written", want)
		}
	}
}

func TestCurvesRejectInvalidInput(t *testing.T) {
	short := curvesRun()
	short.Panels[0].Lines[0].Y = short.Panels[0].Lines[0].Y[:2]
	if _, err := short.SVG(); err == nil {
		t.Error("a line with fewer values than places was drawn")
	}
	if _, err := (Curves{}).SVG(); err == nil {
		t.Error("no panel was drawn")
	}
	var many []Curve
	for n := range maxContainers + 1 {
		many = append(many, Curve{Name: string(rune('a' + n)), Y: []float64{1}})
	}
	if _, err := (Curves{Panels: []CurvePanel{{X: []float64{1}, Lines: many}}}).SVG(); err == nil {
		t.Error("more subjects than colours were drawn")
	}
}

func TestCurvesAcceptAnyNumbers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.OneOf(rapid.Float64(), rapid.Float64Range(-2, 2), rapid.Just(math.NaN()), rapid.Just(math.Inf(1)))
		c := curvesRun()
		for n := range c.Panels[0].Lines[0].Y {
			c.Panels[0].Lines[0].Y[n] = number.Draw(t, "y")
		}
		c.Panels[1].Bars[0].Value = number.Draw(t, "bar")
		svg, err := c.SVG()
		if err != nil {
			t.Fatal(err)
		}
		checkLegible(t, svg)
	})
}
