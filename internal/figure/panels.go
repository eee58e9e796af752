package figure

import (
	"fmt"
	"image/color"
	"math"
	"slices"

	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// captionName is the maximum width of a container's name in a caption.
const captionName = 92

// manyPoints is the number of intervals from which a line has no dots.
const manyPoints = 32

func (g *grid) row(kind Panel) panelRow {
	switch kind {
	case Frequency:
		return g.frequencyRow()
	case Composition:
		return g.compositionRow()
	case Weights:
		return g.weightsRow()
	default:
		return g.throughputRow()
	}
}

// facts is a caption with one figure for each container. Where names would make
// it too high, only the marks identify the containers.
func (g *grid) facts(figure func(i int) string) []item {
	items := make([]item, len(g.e.names))
	for i, name := range g.e.names {
		items[i] = item{
			mark: containerMark(i), room: markRoom,
			text: softInk.fit(name, captionName) + " " + figure(i),
		}
	}
	if flow(items, softInk, g.column, nil) > 2*flowLine {
		for i := range items {
			items[i].text = figure(i)
		}
	}
	return items
}

// note is a caption of text.
func (g *grid) note(words string) []item {
	var lines []item
	for _, line := range softInk.wrap(words, g.column) {
		lines = append(lines, item{text: line, alone: true})
	}
	return lines
}

// firstOnly returns the name of the left axis in the first column only.
func firstOnly(phase int, name string) string {
	if phase > 0 {
		return ""
	}
	return name
}

// throughputRow draws Figs. 2 and 5 of paper 1.
func (g *grid) throughputRow() panelRow {
	row := panelRow{
		heading: "Throughput over time", height: plotHeight, foot: footRoom,
		legend: []item{{text: "figures: mean shares"}},
	}
	var top, seconds float64
	for _, d := range g.e.phases {
		seconds = max(seconds, d.length())
		for _, t := range d.tracks {
			top = max(top, slices.Max(append(t.rates, 0)))
		}
		caption := g.note("no I/O")
		if d.bytes() > 0 {
			caption = g.facts(func(i int) string { return percent(d.tracks[i].share, 1) })
		}
		row.captions = append(row.captions, caption)
	}
	unit, unitBytes := rateUnit(top)
	yAxis := upTo(top/unitBytes, 4)
	row.draw = func(s *sheet, k int, x, y, w, h vg.Length) {
		d := g.e.phases[k]
		p := newPlot(timeAxis(seconds, w), yAxis, "time (s)", firstOnly(k, unit))
		for i, t := range d.tracks {
			var points plotter.XYs
			for n := range t.rates {
				if !d.present[n] {
					addLine(p, points, lineOf(i))
					points = nil
					continue
				}
				points = append(points, plotter.XY{X: (d.begin[n] + d.end[n]) / 2, Y: t.rates[n] / unitBytes})
			}
			addLine(p, points, lineOf(i))
			if len(t.rates) > 0 && len(t.rates) < manyPoints {
				for n := range t.rates {
					if d.present[n] {
						addDot(p, (d.begin[n]+d.end[n])/2, t.rates[n]/unitBytes, containerColors[i], draw.CircleGlyph{}, 2.2)
					}
				}
			}
		}
		s.plot(p, x, y, w, h)
		s.emptyNote(d.presentNumber == 0, "no samples", x, y, w, h)
	}
	return row
}

// frequencyRow draws Figs. 3 and 6 of paper 1.
func (g *grid) frequencyRow() panelRow {
	row := panelRow{
		heading: "Cumulative frequency of the share in an interval",
		height:  plotHeight, foot: footRoom,
		legend: []item{{
			mark: lineMark(targetLine(soft)), room: markRoom, text: "target",
		}},
	}
	low, high := 1.0, 0.0
	for _, d := range g.e.phases {
		for i, t := range d.tracks {
			shares := d.sharesOf(i)
			if t.target > 0 {
				shares = append(shares, t.target)
			}
			for _, share := range shares {
				low, high = min(low, share), max(high, share)
			}
		}
		near, intervals, ok := d.held()
		caption := g.note("no I/O")
		switch {
		case ok:
			caption = g.note(fmt.Sprintf("%d of %d within %g points of target", near, intervals, 100*nearTarget))
		case intervals > 0:
			caption = g.note(fmt.Sprintf("%d intervals", intervals))
		}
		row.captions = append(row.captions, caption)
	}
	xAxis := shareAxis(low, high)
	row.draw = func(s *sheet, k int, x, y, w, h vg.Length) {
		d := g.e.phases[k]
		p := newPlot(xAxis, span{0, 100, ticks(0, 100, 25)}, "share of the containers' I/O (%)", firstOnly(k, "intervals (%)"))
		for target, c := range d.targets() {
			if d.bytes() == 0 {
				break
			}
			addLine(p, plotter.XYs{{X: 100 * target, Y: 0}, {X: 100 * target, Y: 100}}, targetLine(c))
		}
		for i := range d.tracks {
			addLine(p, cumulative(d.sharesOf(i)), lineOf(i))
		}
		s.plot(p, x, y, w, h)
		s.emptyNote(d.bytes() == 0, "no I/O", x, y, w, h)
	}
	return row
}

// targets yields each target once, in the order of the containers, with the
// colour of its container, or a neutral colour if several containers have it.
func (d phaseData) targets() func(yield func(float64, color.Color) bool) {
	return func(yield func(float64, color.Color) bool) {
		for i, t := range d.tracks {
			c := containerColors[i]
			first := true
			for k, other := range d.tracks {
				if k != i && math.Abs(other.target-t.target) < 1e-9 {
					c = soft
					first = first && k > i
				}
			}
			if t.target > 0 && first && !yield(t.target, c) {
				return
			}
		}
	}
}

// cumulative is the empirical distribution in percent: at each value it
// increases by the part of one interval.
func cumulative(shares []float64) plotter.XYs {
	shares = slices.Sorted(slices.Values(shares))
	var points plotter.XYs
	for k, share := range shares {
		points = append(points,
			plotter.XY{X: 100 * share, Y: 100 * float64(k) / float64(len(shares))},
			plotter.XY{X: 100 * share, Y: 100 * float64(k+1) / float64(len(shares))})
	}
	return points
}

// weightsRow shows the weights that a law set.
func (g *grid) weightsRow() panelRow {
	row := panelRow{
		heading: "Weight in force", height: plotHeight * 3 / 4, foot: footRoom,
		legend: []item{{text: "figures: means over time"}},
	}
	var top, seconds float64
	for _, d := range g.e.phases {
		seconds = max(seconds, d.length())
		some := false
		for _, t := range d.tracks {
			for _, w := range t.weights {
				top = max(top, float64(w))
				some = some || w > 0
			}
		}
		caption := g.note("none known")
		if some {
			caption = g.facts(func(i int) string {
				return number(d.tracks[i].meanWeight(d), 0)
			})
		}
		row.captions = append(row.captions, caption)
	}
	yAxis := upTo(1.04*top, 4)
	row.draw = func(s *sheet, k int, x, y, w, h vg.Length) {
		d := g.e.phases[k]
		p := newPlot(timeAxis(seconds, w), yAxis, "time (s)", firstOnly(k, "weight"))
		p.Add(steps{d})
		s.plot(p, x, y, w, h)
	}
	return row
}

// meanWeight is the mean of the known weights over time.
func (t track) meanWeight(d phaseData) float64 {
	var sum, seconds float64
	for n, weight := range t.weights {
		if weight > 0 {
			sum += float64(weight) * (d.end[n] - d.begin[n])
			seconds += d.end[n] - d.begin[n]
		}
	}
	if seconds == 0 {
		return 0
	}
	return sum / seconds
}

// compositionRow draws a bar for each container with the kinds of its bytes.
func (g *grid) compositionRow() panelRow {
	row := panelRow{
		heading: "Kinds of bytes",
		height:  vg.Length(len(g.e.names)) * barPitch, foot: footRoom,
	}
	for _, kind := range kindStyles {
		row.legend = append(row.legend, item{mark: boxMark(kind.color), room: 15, text: kind.name})
	}
	var top float64
	for _, d := range g.e.phases {
		caption := g.note("no I/O")
		if sum := d.sum(); sum.bytes() > 0 {
			hidden := float64(sum.bytes()-sum.charged) / float64(sum.bytes())
			caption = g.note(percent(hidden, 1) + " not charged to its container")
		}
		row.captions = append(row.captions, caption)
		for _, t := range d.tracks {
			top = max(top, d.rate(t.sum.bytes()))
		}
	}
	unit, unitBytes := rateUnit(top)
	xAxis := upTo(top/unitBytes, 5)
	row.draw = func(s *sheet, k int, x, y, w, h vg.Length) {
		d := g.e.phases[k]
		n := float64(len(d.tracks))
		p := newPlot(xAxis, span{0, n, nil}, "mean of the phase ("+unit+")", "")
		for i, t := range d.tracks {
			var begin float64
			for part, bytes := range t.sum.parts() {
				end := begin + d.rate(bytes)/unitBytes
				p.Add(bar{begin, end, n - 1 - float64(i), kindStyles[part].color})
				begin = end
			}
		}
		s.plot(p, x, y, w, h)
		for i, t := range d.tracks {
			base := y + vg.Length(i)*barPitch + 13
			amount := number(d.rate(t.sum.bytes())/unitBytes, 1) + " " + unit
			room := w - softInk.width(amount) - markRoom - 14
			s.items(x+5, base, []item{{mark: containerMark(i), room: markRoom, text: softInk.fit(g.e.names[i], room)}}, softInk, w)
			s.text(x+w-4, base, softInk, text.XRight, amount)
		}
	}
	return row
}

// rate is in bytes per second, over the intervals with the device.
func (d phaseData) rate(bytes uint64) float64 {
	if d.seconds == 0 {
		return 0
	}
	return float64(bytes) / d.seconds
}
