package figure

import (
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// span is the range of an axis and its labels.
type span struct {
	min, max float64
	ticks    plot.ConstantTicks
}

// upTo returns an axis from zero to a whole number of steps that includes top.
func upTo(top float64, parts int) span {
	if !(top > 0) {
		top = 1
	}
	step := niceStep(top, parts)
	end := step * math.Ceil(top/step-1e-9)
	return span{0, end, ticks(0, end, step)}
}

// timeAxis ends with the data.
func timeAxis(seconds float64, width vg.Length) span {
	if !(seconds > 0) {
		seconds = 1
	}
	parts := max(2, int(width/44))
	return span{0, seconds, ticks(0, seconds, timeStep(seconds, parts))}
}

// shareAxis includes the shares from low to high, in percent, with a margin.
func shareAxis(low, high float64) span {
	if low > high {
		low, high = 0, 1
	}
	low, high = 100*low, 100*high
	if high-low < 10 {
		middle := (low + high) / 2
		low, high = middle-5, middle+5
	}
	step := niceStep(high-low, 5)
	low = max(0, step*math.Floor((low-step/5)/step))
	high = min(100, step*math.Ceil((high+step/5)/step))
	return span{low, high, ticks(low, high, step)}
}

// newPlot returns an empty panel with a grid. A panel without a name for its
// left axis also has no numbers there: it shares the axis of the first panel in
// its row.
func newPlot(x, y span, xName, yName string) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = nil
	p.X.Min, p.X.Max = x.min, x.max
	p.Y.Min, p.Y.Max = y.min, y.max
	p.X.Tick.Marker, p.Y.Tick.Marker = x.ticks, y.ticks
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Padding = 0
		a.Color, a.Width = axis, 1
		a.Tick.Color, a.Tick.Width, a.Tick.Length = axis, 1, 4
		a.Tick.Label.Color, a.Tick.Label.Font = soft, softInk.font()
		a.Label.TextStyle.Color, a.Label.TextStyle.Font = soft, softInk.font()
		a.Label.Padding = 4
	}
	p.X.Label.Text, p.Y.Label.Text = xName, yName
	if yName == "" {
		p.Y.Tick.Length = 0
		p.Y.Tick.Marker = plot.ConstantTicks{}
	}
	p.Add(gridOf{x.ticks, y.ticks})
	return p
}

// gridOf draws lines at ticks that the axis itself may not show.
type gridOf struct{ x, y plot.ConstantTicks }

func (g gridOf) Plot(c draw.Canvas, p *plot.Plot) {
	style := draw.LineStyle{Color: faint, Width: 1}
	x, y := p.Transforms(&c)
	for _, t := range g.x {
		c.StrokeLine2(style, x(t.Value), c.Min.Y, x(t.Value), c.Max.Y)
	}
	for _, t := range g.y {
		c.StrokeLine2(style, c.Min.X, y(t.Value), c.Max.X, y(t.Value))
	}
}

// addLine adds a line through the points; a single one becomes a dot.
func addLine(p *plot.Plot, points plotter.XYs, style draw.LineStyle) {
	switch len(points) {
	case 0:
	case 1:
		addDot(p, points[0].X, points[0].Y, style.Color, draw.CircleGlyph{}, 2.5)
	default:
		p.Add(fixed{&plotter.Line{XYs: points, LineStyle: style}})
	}
}

func addDot(p *plot.Plot, x, y float64, c color.Color, shape draw.GlyphDrawer, radius vg.Length) {
	p.Add(fixed{&plotter.Scatter{
		XYs:        plotter.XYs{{X: x, Y: y}},
		GlyphStyle: draw.GlyphStyle{Color: c, Radius: radius, Shape: shape},
	}})
}

// fixed hides a plotter's request to change the range of the axes or to shrink
// the panel: panels of a row must stay equal.
type fixed struct{ plot.Plotter }

// steps draws the weights of a phase, constant in each interval. Lines of equal
// weights would cover each other, so they are drawn side by side, a line's
// width apart.
type steps struct{ d phaseData }

func (s steps) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	for i, t := range s.d.tracks {
		style := lineOf(i)
		style.Width = 2.2
		var points []vg.Point
		for n, weight := range t.weights {
			if weight == 0 {
				c.StrokeLines(style, points)
				points = nil
				continue
			}
			height := y(float64(weight)) + style.Width*vg.Length(s.offset(i, n))
			points = append(points,
				vg.Point{X: x(s.d.begin[n]), Y: height}, vg.Point{X: x(s.d.end[n]), Y: height})
		}
		c.StrokeLines(style, points)
	}
}

// offset is the position of container i among those with the same weight in
// interval n, around zero, the first one on top.
func (s steps) offset(i, n int) float64 {
	before, same := 0, 0
	for k, t := range s.d.tracks {
		if t.weights[n] == s.d.tracks[i].weights[n] {
			same++
			if k < i {
				before++
			}
		}
	}
	return float64(same-1)/2 - float64(before)
}

// bar is a part of a horizontal bar in the lower half of the row from y to y+1,
// so that a text fits above it.
type bar struct {
	begin, end, y float64
	color         color.Color
}

func (b bar) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	if x(b.end) <= x(b.begin) {
		return
	}
	c.SetColor(b.color)
	c.Fill(vg.Rectangle{
		Min: vg.Point{X: x(b.begin), Y: y(b.y + 0.12)},
		Max: vg.Point{X: x(b.end), Y: y(b.y + 0.5)},
	}.Path())
}

// emptyNote writes the reason why a panel is empty in its middle.
func (s *sheet) emptyNote(empty bool, line string, x, y, w, h vg.Length) {
	if empty {
		s.text(x+w/2, y+h/2, bodyInk, text.XCenter, line)
	}
}
