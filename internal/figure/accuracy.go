package figure

import (
	"fmt"
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg/draw"

	"github.com/daybook-project/daybook/internal/safetext"
)

// Accuracy is the error of the two estimators against the bytes that reached an
// external journal device, as in Table 1 of paper 1.
type Accuracy struct {
	// Title may be empty for the default title.
	Title string
	// Note is a line below the title with the conditions of the measurement.
	Note string
	// Limit is the acceptable error as a ratio, such as 0.01; 0 marks none.
	Limit float64
	// Rows are at most 200, in the order of display.
	Rows []AccuracyRow
}

// AccuracyRow is one operation or mix of operations. An error is relative and
// signed: (estimate - truth) / truth; 0.01 is one percent too much. NaN and
// infinite values mean not measured.
type AccuracyRow struct {
	Operation string
	Handles   float64
	Syscalls  float64
}

// linearError is where the scale of errors changes from linear to logarithmic:
// our measurements cannot distinguish errors below a thousandth.
const linearError = 0.001

// greatestError is the end of the scale; larger errors are drawn there.
const greatestError = 1000

var (
	handlesColor, handlesShape   = containerColors[0], draw.GlyphDrawer(draw.CircleGlyph{})
	syscallsColor, syscallsShape = containerColors[1], draw.GlyphDrawer(draw.BoxGlyph{})
)

// SVG draws operations from top to bottom and errors from left to right, on a
// scale that is logarithmic in both directions.
func (a Accuracy) SVG() (SVG, error) {
	if err := tooMany("the accuracy", len(a.Rows)); err != nil {
		return nil, err
	}
	if !(a.Limit >= 0 && a.Limit < 1) {
		return nil, fmt.Errorf("cannot draw the accuracy: the limit is %g; want 0 or more and less than 1", a.Limit)
	}
	chart := rowChart{
		title: safetext.Line(firstOf(a.Title, "Error of the estimated journal bytes, by operation")),
		note:  safetext.Line(a.Note),
		legend: []item{
			{mark: glyphMark(handlesColor, handlesShape), room: 18, text: "handles"},
			{mark: glyphMark(syscallsColor, syscallsShape), room: 18, text: "syscalls (paper 1)"},
		},
		columns: []string{"handles", "syscalls"},
		scale:   symlog{linearError},
		xLabel:  "relative error (%), logarithmic to both sides",
	}
	if a.Limit > 0 {
		chart.good = [2]float64{-a.Limit, a.Limit}
		chart.legend = append(chart.legend, item{
			mark: lineMark(targetLine(soft)), room: markRoom, text: "±" + percent(a.Limit, decimalsOf(a.Limit)),
		})
	}
	low, high := -0.01, 0.01
	for _, r := range a.Rows {
		row := chartRow{name: safetext.Line(r.Operation)}
		// The mark of the handles estimator is drawn last, on top, because it
		// is the main result.
		for _, m := range []struct {
			value float64
			color color.Color
			shape draw.GlyphDrawer
		}{{r.Syscalls, syscallsColor, syscallsShape}, {r.Handles, handlesColor, handlesShape}} {
			row.cells = append([]string{signedPercent(m.value)}, row.cells...)
			if finite(m.value) {
				at := max(-greatestError, min(greatestError, m.value))
				low, high = min(low, at), max(high, at)
				row.marks = append(row.marks, mark{at: at, low: at, high: at, color: m.color, shape: m.shape})
			}
		}
		chart.rows = append(chart.rows, row)
	}
	chart.x = errorAxis(low, high)
	return chart.draw(), nil
}

// errorAxis has labels at zero and at the powers of ten in both directions,
// with a margin beyond low and high.
func errorAxis(low, high float64) span {
	axis := span{min: 1.4 * low, max: 1.4 * high}
	// On a long scale the labels around zero would overlap.
	wide := max(-low, high) > 0.2
	for exponent := 3; exponent >= -3; exponent-- {
		if v := -math.Pow(10, float64(exponent)); v >= axis.min {
			axis.ticks = append(axis.ticks, plot.Tick{Value: v, Label: tickPercent(v, wide)})
		}
	}
	axis.ticks = append(axis.ticks, plot.Tick{Value: 0, Label: "0"})
	for exponent := -3; exponent <= 3; exponent++ {
		if v := math.Pow(10, float64(exponent)); v <= axis.max {
			axis.ticks = append(axis.ticks, plot.Tick{Value: v, Label: tickPercent(v, wide)})
		}
	}
	return axis
}

func tickPercent(ratio float64, wide bool) string {
	switch {
	case math.Abs(ratio) > 0.005:
		return number(100*ratio, 0)
	case wide:
		return ""
	}
	return number(100*ratio, 1)
}

func finite(value float64) bool { return !math.IsNaN(value) && !math.IsInf(value, 0) }

// signedPercent keeps about three digits and always the sign.
func signedPercent(ratio float64) string {
	switch {
	case !finite(ratio):
		return "–"
	case ratio > greatestError:
		return "over +" + percent(greatestError, 0)
	case ratio < -greatestError:
		return "under " + percent(-greatestError, 0)
	}
	decimals := 2
	switch size := math.Abs(ratio); {
	case size >= 1:
		decimals = 0
	case size >= 0.1:
		decimals = 1
	}
	text := percent(ratio, decimals)
	if ratio > 0 && text != percent(0, decimals) {
		return "+" + text
	}
	return text
}
