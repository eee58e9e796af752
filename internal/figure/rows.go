package figure

import (
	"cmp"
	"fmt"
	"image/color"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// maxRows bounds the rows of a chart.
const maxRows = 200

// Layout of a chart with a name and numbers for each row, in CSS pixels.
const (
	rowPitch   = 24
	widestName = 240
	widestCell = 160
	cellGap    = 18
)

// rowChart is a chart with one row for each measured item: its name at the
// left, marks in the middle, the same numbers as a table at the right.
type rowChart struct {
	title, note string
	legend      []item
	columns     []string
	rows        []chartRow
	x           span
	scale       plot.Normalizer
	xLabel      string
	// good is the range in which a result meets its target.
	good [2]float64
	// center is the value of no difference.
	center float64
	// lines are drawn besides.
	lines []chartLine
	// names is the room for the rows' names; 0: widestName.
	names vg.Length
}

type chartLine struct {
	at    float64
	color color.Color
}

type chartRow struct {
	name  string
	cells []string
	marks []mark
}

// mark is one result; low and high are its range where they differ.
type mark struct {
	at, low, high float64
	color         color.Color
	shape         draw.GlyphDrawer
}

func (c rowChart) draw() SVG {
	widest := cmp.Or(c.names, widestName)
	var names vg.Length
	for _, r := range c.rows {
		names = max(names, bodyInk.width(bodyInk.fit(r.name, widest)))
	}
	cells := make([]vg.Length, len(c.columns))
	var table vg.Length
	for i, title := range c.columns {
		cells[i] = phaseInk.width(title)
		for _, r := range c.rows {
			cells[i] = max(cells[i], bodyInk.width(r.cells[i]))
		}
		table += cells[i] + cellGap
	}
	left := margin + names + 14
	width := vg.Length(sheetWidth) - left - table - margin
	rows := max(1, len(c.rows))
	height := vg.Length(rows) * rowPitch

	y := vg.Length(margin + 14)
	top := y + 24 + flow(c.legend, bodyInk, sheetWidth-2*margin, nil) + 18
	if c.note != "" {
		top += 18
	}
	s := newSheet(sheetWidth, top+height+footRoom+margin)
	s.text(margin, y, titleInk, text.XLeft, titleInk.fit(c.title, sheetWidth-2*margin))
	y += 24
	if c.note != "" {
		s.text(margin, y, bodyInk, text.XLeft, bodyInk.fit(c.note, sheetWidth-2*margin))
		y += 22
	}
	s.items(margin, y, c.legend, bodyInk, sheetWidth-2*margin)

	x := vg.Length(sheetWidth - margin)
	for i := len(c.columns) - 1; i >= 0; i-- {
		s.text(x, top-8, phaseInk, text.XRight, c.columns[i])
		for k, r := range c.rows {
			s.text(x, top+vg.Length(k)*rowPitch+16, bodyInk, text.XRight, r.cells[i])
		}
		x -= cells[i] + cellGap
	}
	for k, r := range c.rows {
		base := top + vg.Length(k)*rowPitch
		s.text(left-10, base+16, bodyInk, text.XRight, bodyInk.fit(r.name, widest))
		if k > 0 {
			s.line(draw.LineStyle{Color: faint, Width: 1}, margin, base, sheetWidth-margin, base)
		}
	}
	c.x.ticks = c.spaced(width)
	s.plot(c.plot(float64(rows)), left, top, width, height)
	s.emptyNote(len(c.rows) == 0, "nothing measured", left, top, width, height)
	return s.finish(c.title)
}

// spaced removes the labels of ticks that would overlap others, on an axis of
// the given width; those next to the center stay.
func (c rowChart) spaced(width vg.Length) plot.ConstantTicks {
	ticks := slices.Clone(c.x.ticks)
	slices.SortStableFunc(ticks, func(a, b plot.Tick) int {
		return cmp.Compare(math.Abs(a.Value-c.center), math.Abs(b.Value-c.center))
	})
	type place struct{ left, right vg.Length }
	var taken []place
	for i, t := range ticks {
		if t.Label == "" {
			continue
		}
		half := softInk.width(t.Label)/2 + 2
		at := vg.Length(c.scale.Normalize(c.x.min, c.x.max, t.Value)) * width
		here := place{at - half, at + half}
		if slices.ContainsFunc(taken, func(o place) bool { return here.left < o.right && o.left < here.right }) {
			ticks[i].Label = ""
			continue
		}
		taken = append(taken, here)
	}
	return ticks
}

func (c rowChart) plot(rows float64) *plot.Plot {
	p := newPlot(c.x, span{0, rows, nil}, c.xLabel, "")
	p.X.Scale = c.scale
	p.Add(stripe{c.good[0], c.good[1]}, gridOf{x: c.x.ticks})
	addLine(p, plotter.XYs{{X: c.center, Y: 0}, {X: c.center, Y: rows}}, draw.LineStyle{Color: axis, Width: 1})
	for _, at := range c.good {
		if at != c.center && at >= c.x.min && at <= c.x.max {
			addLine(p, plotter.XYs{{X: at, Y: 0}, {X: at, Y: rows}}, targetLine(soft))
		}
	}
	for _, line := range c.lines {
		addLine(p, plotter.XYs{{X: line.at, Y: 0}, {X: line.at, Y: rows}}, targetLine(line.color))
	}
	for k, r := range c.rows {
		y := rows - float64(k) - 0.5
		for _, m := range r.marks {
			if m.low < m.high {
				addLine(p, plotter.XYs{{X: m.low, Y: y}, {X: m.high, Y: y}}, draw.LineStyle{Color: m.color, Width: 2})
				for _, end := range []float64{m.low, m.high} {
					addLine(p, plotter.XYs{{X: end, Y: y - 0.16}, {X: end, Y: y + 0.16}}, draw.LineStyle{Color: m.color, Width: 2})
				}
			}
			addDot(p, m.at, y, m.color, m.shape, 4.5)
		}
	}
	return p
}

// stripe fills a range of x with a light colour.
type stripe struct{ low, high float64 }

func (b stripe) Plot(c draw.Canvas, p *plot.Plot) {
	x, _ := p.Transforms(&c)
	low, high := x(max(b.low, p.X.Min)), x(min(b.high, p.X.Max))
	if low >= high {
		return
	}
	c.SetColor(band)
	c.Fill(vg.Rectangle{Min: vg.Point{X: low, Y: c.Min.Y}, Max: vg.Point{X: high, Y: c.Max.Y}}.Path())
}

// glyphMark is a dot in a legend.
func glyphMark(c color.Color, shape draw.GlyphDrawer) func(*sheet, vg.Length, vg.Length) {
	return func(s *sheet, x, y vg.Length) {
		s.canvas.DrawGlyphNoClip(draw.GlyphStyle{Color: c, Radius: 4.5, Shape: shape}, vg.Point{X: x + 6, Y: s.height - y + 4})
	}
}

func tooMany(what string, n int) error {
	if n > maxRows {
		return fmt.Errorf("cannot draw %s: it has %d rows; want at most %d", what, n, maxRows)
	}
	return nil
}
