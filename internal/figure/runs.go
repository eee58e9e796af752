package figure

import (
	"fmt"
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg/draw"

	"github.com/daybook-project/daybook/internal/safetext"
)

// Runs are all runs of several scenarios, with two errors each. Errors are of shares,
// absolute, 0 to 1.
type Runs struct {
	Title string
	// Note is a line below the title: what was measured where.
	Note string
	// MeanLimit and WorstLimit are the greatest good ones; 0: none is marked.
	MeanLimit, WorstLimit float64
	// Rows are at most 200, in the order to show them.
	Rows []RunsRow
}

// RunsRow is one scenario: for each run the error of the mean shares, and of the worst
// interval. What is not a number from 0 to 1 is not drawn.
type RunsRow struct {
	Scenario    string
	Mean, Worst []float64
}

// linearShare is up to where the scale is linear.
const linearShare = 0.01

// shareTicks are labelled in points.
var shareTicks = []float64{0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1}

// widestScenario is the room for a row's name.
const widestScenario = 360

// SVG draws a dot for each error of each run.
func (r Runs) SVG() (SVG, error) {
	if err := tooMany("the runs", len(r.Rows)); err != nil {
		return nil, err
	}
	meanColor, worstColor := containerColors[0], containerColors[1]
	chart := rowChart{
		title: safetext.Line(r.Title), note: safetext.Line(r.Note), names: widestScenario,
		legend: []item{
			{mark: glyphMark(meanColor, draw.CircleGlyph{}), room: 18, text: "mean of a minute"},
			{mark: glyphMark(worstColor, draw.RingGlyph{}), room: 18, text: "worst interval"},
		},
		columns: []string{"worst mean", "worst interval"},
		scale:   symlog{linearShare},
		xLabel:  "off the target, in points of the share (logarithmic above 1)",
	}
	for _, goal := range []struct {
		at    float64
		color color.Color
		name  string
	}{{r.MeanLimit, meanColor, "goal for the mean"}, {r.WorstLimit, worstColor, "goal for each interval"}} {
		if goal.at > 0 {
			chart.lines = append(chart.lines, chartLine{goal.at, goal.color})
			chart.legend = append(chart.legend, item{mark: lineMark(targetLine(goal.color)), room: markRoom, text: goal.name + ": " + number(100*goal.at, 0)})
		}
	}
	most := 0.1
	for _, row := range r.Rows {
		drawn := chartRow{name: safetext.Line(row.Scenario)}
		// The means last: there is more to see of rings below dots.
		for _, errors := range []struct {
			values []float64
			color  color.Color
			shape  draw.GlyphDrawer
		}{{row.Worst, worstColor, draw.RingGlyph{}}, {row.Mean, meanColor, draw.CircleGlyph{}}} {
			worst := -1.0
			for _, value := range errors.values {
				if !(value >= 0 && value <= 1) {
					continue
				}
				worst, most = max(worst, value), max(most, value)
				drawn.marks = append(drawn.marks, mark{at: value, low: value, high: value, color: errors.color, shape: errors.shape})
			}
			cell := "–"
			if worst >= 0 {
				cell = number(100*worst, 1)
			}
			drawn.cells = append([]string{cell}, drawn.cells...)
		}
		chart.rows = append(chart.rows, drawn)
	}
	chart.x = span{min: 0, max: 1.1 * most}
	for _, value := range shareTicks {
		if value <= chart.x.max {
			chart.x.ticks = append(chart.x.ticks, plot.Tick{Value: value, Label: fmt.Sprintf("%.0f", 100*value)})
		}
	}
	return chart.draw(), nil
}
