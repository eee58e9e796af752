package figure

import (
	"strings"

	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
)

// Layout of the grid of panels, in CSS pixels.
const (
	sheetWidth   = 900
	margin       = 18
	axisRoom     = 52 // left of the first column: label and ticks
	columnGap    = 32
	leastColumn  = 175
	widestColumn = 420
	headingRoom  = 24 // a row's heading
	captionGap   = 10 // between a panel's caption and the panel
	footRoom     = 40 // below a panel: ticks and label
	rowGap       = 16
	plotHeight   = 150
	barPitch     = 34 // of Composition: a label and a bar
)

// grid is the geometry that all rows share.
type grid struct {
	e       experiment
	width   vg.Length // of the sheet
	column  vg.Length // of a panel
	lefts   []vg.Length
	kinds   []Panel
	panels  []panelRow
	heights []vg.Length
}

// panelRow describes one kind of panel; see panels.go.
type panelRow struct {
	heading string
	// legend is beside the heading.
	legend []item
	// captions are above the panels, below the name of the phase.
	captions [][]item
	height   vg.Length
	// foot is the space below the panels.
	foot vg.Length
	draw func(s *sheet, phase int, x, y, w, h vg.Length)
}

func drawGrid(e experiment, kinds []Panel) SVG {
	g := newGrid(e, kinds)
	legend := g.legend()
	legendHeight := flow(legend, bodyInk, g.width-2*margin, nil)
	height := vg.Length(margin + 22 + legendHeight + 6)
	for _, h := range g.heights {
		height += h
	}
	s := newSheet(g.width, height)
	y := vg.Length(margin + 14)
	s.text(margin, y, titleInk, text.XLeft, titleInk.fit("I/O on "+e.device+" by container, the journal included", g.width-2*margin))
	y += 24
	s.items(margin, y, legend, bodyInk, g.width-2*margin)
	y += legendHeight + 2
	for i, row := range g.panels {
		g.drawRow(s, row, y)
		y += g.heights[i]
	}
	return s.finish(e.describe())
}

func newGrid(e experiment, kinds []Panel) *grid {
	g := &grid{e: e, kinds: kinds, width: sheetWidth}
	n := vg.Length(len(e.phases))
	free := g.width - 2*margin - axisRoom - (n-1)*columnGap
	g.column = min(max(free/n, leastColumn), widestColumn)
	g.width = max(520, 2*margin+axisRoom+n*g.column+(n-1)*columnGap)
	for i := range e.phases {
		g.lefts = append(g.lefts, margin+axisRoom+vg.Length(i)*(g.column+columnGap))
	}
	for _, kind := range kinds {
		row := g.row(kind)
		g.panels = append(g.panels, row)
		g.heights = append(g.heights, g.headingHeight(row)+g.nameHeight()+g.captionHeight(row)+captionGap+row.height+row.foot+rowGap)
	}
	return g
}

// phaseLines is the maximum number of lines of a phase's name.
const phaseLines = 2

// phaseName returns the name of a phase in the lines above its panel.
func (g *grid) phaseName(phase int) []string {
	lines := phaseInk.wrap(g.e.phases[phase].name, g.column)
	if len(lines) > phaseLines {
		rest := strings.Join(lines[phaseLines-1:], " ")
		lines = append(lines[:phaseLines-1], phaseInk.fit(rest, g.column))
	}
	return lines
}

// nameHeight and captionHeight are the heights of the highest name and caption
// of a row, so that its panels are aligned.
func (g *grid) nameHeight() vg.Length {
	lines := 1
	for i := range g.e.phases {
		lines = max(lines, len(g.phaseName(i)))
	}
	return vg.Length(lines) * flowLine
}

func (g *grid) captionHeight(row panelRow) vg.Length {
	var most vg.Length
	for _, c := range row.captions {
		most = max(most, flow(c, softInk, g.column, nil))
	}
	return most
}

// legendPlace returns where the legend of a row starts and its maximum width.
func (g *grid) legendPlace(row panelRow) (x, room vg.Length) {
	x = margin + headingInk.width(row.heading) + 10
	return x, g.width - margin - x
}

func (g *grid) headingHeight(row panelRow) vg.Length {
	_, room := g.legendPlace(row)
	return headingRoom + max(0, flow(row.legend, softInk, room, nil)-flowLine)
}

func (g *grid) drawRow(s *sheet, row panelRow, y vg.Length) {
	base := y + 15
	s.text(margin, base, headingInk, text.XLeft, row.heading)
	x, room := g.legendPlace(row)
	s.items(x, base, row.legend, softInk, room)
	y += g.headingHeight(row)
	names, captions := g.nameHeight(), g.captionHeight(row)
	for i, x := range g.lefts {
		lines := g.phaseName(i)
		for k, line := range lines {
			// The last line is above the caption.
			above := vg.Length(len(lines)-k) * flowLine
			s.text(x, y+13+names-above, phaseInk, text.XLeft, line)
		}
		s.items(x, y+13+names, row.captions[i], softInk, g.column)
		row.draw(s, i, x, y+names+captions+captionGap, g.column, row.height)
	}
}

// legend explains the lines and targets of the containers.
func (g *grid) legend() []item {
	var items []item
	for i, name := range g.e.names {
		line := bodyInk.fit(name, 240)
		if target := g.e.target(i); target > 0 {
			line += "  (target " + percent(target, decimalsOf(target)) + ")"
		}
		items = append(items, item{mark: containerMark(i), room: markRoom, text: line})
	}
	return items
}

// target is the target of a container if it is the same in all phases, else 0.
func (e experiment) target(i int) float64 {
	target := e.phases[0].tracks[i].target
	for _, d := range e.phases {
		if d.tracks[i].target != target {
			return 0
		}
	}
	return target
}

// describe is the figure as text: each phase with the mean shares.
func (e experiment) describe() string {
	var b strings.Builder
	b.WriteString("I/O on " + e.device + " by container, the journal included.")
	for _, d := range e.phases {
		b.WriteString(" " + d.name + ":")
		if d.bytes() == 0 {
			b.WriteString(" no I/O.")
			continue
		}
		for i, t := range d.tracks {
			if i > 0 {
				b.WriteString(",")
			}
			b.WriteString(" " + e.names[i] + " " + percent(t.share, 1))
		}
		b.WriteString(".")
	}
	return b.String()
}

// decimalsOf is 0 for a ratio of whole percents, else 1.
func decimalsOf(ratio float64) int {
	if whole := 100 * ratio; whole-float64(int(whole+0.5)) > 0.05 || float64(int(whole+0.5))-whole > 0.05 {
		return 1
	}
	return 0
}
