package figure

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/daybook-project/daybook/internal/safetext"
)

// Curves is a sheet of panels, two in a row, that compare the same subjects:
// rates over a number of threads, or amounts as bars.
type Curves struct {
	Title string
	// Note is a line below the title with the conditions of the measurement.
	Note string
	// Panels are at most maxPanels.
	Panels []CurvePanel
}

// CurvePanel has either lines or bars.
type CurvePanel struct {
	Title string
	// XName and YName are along the axes; YName is not used with bars.
	XName, YName string
	// X are the positions of the lines' points; they are drawn evenly spaced,
	// whatever their values.
	X     []float64
	Lines []Curve
	Bars  []CurveBar
}

// Curve is one subject over X. Values outside 0 to a million are not drawn.
type Curve struct {
	Name string
	Y    []float64
	// Points draws no line between the points: measured values beside a model's
	// line.
	Points bool
}

// CurveBar is one amount, 0 or more; bars are on a logarithmic scale.
type CurveBar struct {
	Name  string
	Value float64
	// Text is the label of the amount.
	Text string
}

const (
	maxPanels       = 14
	curveColumns    = 2
	curvePanelWidth = (sheetWidth - 2*margin - 2*axisRoom - columnGap) / curveColumns
	curveHeight     = 210
)

// SVG draws the panels. A subject has the same colour in all of them.
func (c Curves) SVG() (SVG, error) {
	if len(c.Panels) == 0 || len(c.Panels) > maxPanels {
		return nil, fmt.Errorf("cannot draw %d panels: want 1 to %d", len(c.Panels), maxPanels)
	}
	names := c.names()
	if len(names) > maxContainers {
		return nil, fmt.Errorf("cannot draw %d subjects: want at most %d", len(names), maxContainers)
	}
	for _, p := range c.Panels {
		for _, line := range p.Lines {
			if len(line.Y) != len(p.X) {
				return nil, fmt.Errorf("cannot draw %q: %d values at %d places", line.Name, len(line.Y), len(p.X))
			}
		}
	}
	var legend []item
	for n, name := range names {
		legend = append(legend, item{mark: containerMark(n), room: markRoom, text: bodyInk.fit(safetext.Line(name), 300)})
	}
	top := vg.Length(margin + 14 + 24 + 22)
	if c.Note == "" {
		top -= 22
	}
	top += flow(legend, bodyInk, sheetWidth-2*margin, nil) + 8
	rows := (len(c.Panels) + curveColumns - 1) / curveColumns
	pitch := vg.Length(headingRoom + captionGap + curveHeight + footRoom + rowGap)
	s := newSheet(sheetWidth, top+vg.Length(rows)*pitch)
	y := vg.Length(margin + 14)
	s.text(margin, y, titleInk, text.XLeft, titleInk.fit(safetext.Line(c.Title), sheetWidth-2*margin))
	y += 24
	if c.Note != "" {
		s.text(margin, y, bodyInk, text.XLeft, bodyInk.fit(safetext.Line(c.Note), sheetWidth-2*margin))
		y += 22
	}
	s.items(margin, y, legend, bodyInk, sheetWidth-2*margin)
	for n, p := range c.Panels {
		x := margin + axisRoom + vg.Length(n%curveColumns)*(curvePanelWidth+columnGap+axisRoom)
		y := top + vg.Length(n/curveColumns)*pitch
		s.text(x, y+15, headingInk, text.XLeft, headingInk.fit(safetext.Line(p.Title), curvePanelWidth))
		y += headingRoom + captionGap
		if len(p.Bars) > 0 {
			p.drawBars(s, names, x-axisRoom, y, curvePanelWidth+axisRoom)
			continue
		}
		p.drawLines(s, names, x, y)
	}
	return s.finish(c.describe()), nil
}

// names are the subjects in the order of their first use.
func (c Curves) names() []string {
	var names []string
	add := func(name string) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, p := range c.Panels {
		for _, line := range p.Lines {
			add(line.Name)
		}
		for _, b := range p.Bars {
			add(b.Name)
		}
	}
	return names
}

// greatestCurve is the largest value that is drawn: callers choose a unit that
// fits.
const greatestCurve = 1e6

func drawable(y float64) bool { return y >= 0 && y <= greatestCurve }

func (p CurvePanel) drawLines(s *sheet, names []string, x, y vg.Length) {
	var top float64
	for _, line := range p.Lines {
		for _, value := range line.Y {
			if drawable(value) {
				top = max(top, value)
			}
		}
	}
	var places plot.ConstantTicks
	for n, value := range p.X {
		label := number(value, 0)
		// With many positions, only some have space for a label.
		if len(p.X) > 10 && n%((len(p.X)+7)/8) != 0 && n != len(p.X)-1 {
			label = ""
		}
		places = append(places, plot.Tick{Value: float64(n), Label: label})
	}
	xAxis := span{-0.3, max(0.7, float64(len(p.X))-0.7), places}
	panel := newPlot(xAxis, upTo(1.04*top, 5), p.XName, p.YName)
	for _, line := range p.Lines {
		style := lineOf(slices.Index(names, line.Name))
		var points plotter.XYs
		flush := func() {
			addLine(panel, points, style)
			points = nil
		}
		for n, value := range line.Y {
			switch {
			case !drawable(value):
				flush()
			case line.Points:
				addDot(panel, float64(n), value, style.Color, draw.CircleGlyph{}, 4)
			default:
				points = append(points, plotter.XY{X: float64(n), Y: value})
			}
		}
		flush()
	}
	s.plot(panel, x, y, curvePanelWidth, curveHeight)
	s.emptyNote(top == 0, "nothing measured", x, y, curvePanelWidth, curveHeight)
}

// drawBars draws the bars from a power of ten below the least.
func (p CurvePanel) drawBars(s *sheet, names []string, x, y, width vg.Length) {
	least, most := math.Inf(1), 0.0
	for _, b := range p.Bars {
		if drawable(b.Value) && b.Value > 0 {
			least, most = min(least, b.Value), max(most, b.Value)
		}
	}
	pitch := vg.Length(curveHeight) / vg.Length(len(p.Bars))
	for n, b := range p.Bars {
		base := y + vg.Length(n)*pitch
		amount := softInk.width(b.Text)
		s.text(x, base+11, softInk, text.XLeft, softInk.fit(safetext.Line(b.Name), width-amount-10))
		s.text(x+width, base+11, softInk, text.XRight, b.Text)
		if !(b.Value > 0) || !drawable(b.Value) {
			continue
		}
		part := 1.0
		if low := math.Log10(least) - 0.5; math.Log10(most) > low {
			part = (math.Log10(b.Value) - low) / (math.Log10(most) - low)
		}
		s.fill(x, base+15, width*vg.Length(part), min(10, pitch-18), containerColors[slices.Index(names, b.Name)])
	}
	s.text(x, y+curveHeight+22, softInk, text.XLeft, softInk.fit(p.XName+" (logarithmic)", width))
}

// describe is the sheet as text.
func (c Curves) describe() string {
	var b strings.Builder
	b.WriteString(c.Title + ".")
	for _, p := range c.Panels {
		b.WriteString(" " + p.Title + ":")
		for _, line := range p.Lines {
			first, last := slices.IndexFunc(line.Y, drawable), len(line.Y)-1
			for last > first && !drawable(line.Y[last]) {
				last--
			}
			if first >= 0 {
				fmt.Fprintf(&b, " %s %s at %s, %s at %s;", line.Name, number(line.Y[first], 2), number(p.X[first], 0), number(line.Y[last], 2), number(p.X[last], 0))
			}
		}
		for _, bar := range p.Bars {
			b.WriteString(" " + bar.Name + " " + bar.Text + ";")
		}
	}
	return b.String()
}
