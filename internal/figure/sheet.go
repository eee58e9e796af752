package figure

import (
	"bytes"
	"fmt"
	"html"
	"image/color"
	"math"
	"regexp"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/daybook-project/daybook/internal/safetext"
)

// fontFamily is the font list of the SVG: fonts with the widths of Liberation
// Sans first, then whatever the host has.
const fontFamily = `'Liberation Sans',Arimo,Arial,Helvetica,sans-serif`

// sheet is the drawing area of one figure. Its unit is the CSS pixel, and y
// grows downward from the upper edge.
type sheet struct {
	pen           *pen
	canvas        draw.Canvas
	width, height vg.Length
}

// pen stores how each text is anchored, which vgsvg cannot express: a text that
// ends at a position must end there in every font, so the viewer has to align
// it.
type pen struct {
	*vgsvg.Canvas
	anchor  string // of the next text
	anchors []string
}

// FillString draws a text as vgsvg does.
func (p *pen) FillString(face font.Face, at vg.Point, text string) {
	p.anchors = append(p.anchors, p.anchor)
	p.anchor = ""
	p.Canvas.FillString(face, at, text)
}

// anchorOf names an alignment: 0 starts, -0.5 is centred, -1 ends at the
// position.
func anchorOf(align text.XAlignment) string {
	switch {
	case align < -0.75:
		return "end"
	case align < -0.25:
		return "middle"
	}
	return ""
}

// labels draws the texts of a gonum plot with their anchors.
type labels struct {
	text.Plain
	pen *pen
}

// Draw draws a line of text.
func (l labels) Draw(c vg.Canvas, line string, style text.Style, at vg.Point) {
	if line == "" {
		return
	}
	l.pen.anchor = anchorOf(style.XAlign)
	style.XAlign = text.XLeft
	l.Plain.Draw(c, line, style, at)
}

func newSheet(width, height vg.Length) *sheet {
	width, height = ceil(width), ceil(height)
	p := &pen{Canvas: vgsvg.New(width, height)}
	s := &sheet{pen: p, canvas: draw.New(p), width: width, height: height}
	s.fill(0, 0, width, height, white)
	return s
}

func ceil(x vg.Length) vg.Length { return vg.Length(math.Ceil(float64(x))) }

// rect converts a rectangle of the sheet to the coordinates of the canvas.
func (s *sheet) rect(x, y, w, h vg.Length) vg.Rectangle {
	return vg.Rectangle{
		Min: vg.Point{X: x, Y: s.height - y - h},
		Max: vg.Point{X: x + w, Y: s.height - y},
	}
}

func (s *sheet) fill(x, y, w, h vg.Length, c color.Color) {
	s.canvas.SetColor(c)
	s.canvas.Fill(s.rect(x, y, w, h).Path())
}

func (s *sheet) line(style draw.LineStyle, x0, y0, x1, y1 vg.Length) {
	s.canvas.StrokeLine2(style, x0, s.height-y0, x1, s.height-y1)
}

// text writes a line with its base line at y; align is text.XLeft for a text
// that starts at x, XCenter for one around it and XRight for one that ends
// there.
func (s *sheet) text(x, y vg.Length, k ink, align text.XAlignment, line string) {
	if line == "" {
		return
	}
	s.canvas.SetColor(k.color)
	s.pen.anchor = anchorOf(align)
	s.canvas.FillString(font.DefaultCache.Lookup(k.font(), k.size), vg.Point{X: x, Y: s.height - y}, line)
}

// plot draws p so that its data fill the given rectangle, whatever space its
// labels take outside it.
func (s *sheet) plot(p *plot.Plot, x, y, w, h vg.Length) {
	handler := labels{text.Plain{Fonts: font.DefaultCache}, s.pen}
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Label.TextStyle.Handler, a.Tick.Label.Handler = handler, handler
	}
	want := s.rect(x, y, w, h)
	c := draw.Canvas{Canvas: s.canvas.Canvas, Rectangle: want}
	// The space for the labels at the ends depends a little on the size.
	for range 4 {
		got := p.DataCanvas(c)
		c.Min.X += want.Min.X - got.Min.X
		c.Min.Y += want.Min.Y - got.Min.Y
		c.Max.X += want.Max.X - got.Max.X
		c.Max.Y += want.Max.Y - got.Max.Y
	}
	p.Draw(c)
}

// svgHead is the output of vgsvg before the drawing: sizes in points.
var svgHead = regexp.MustCompile(`^(?s).*?<svg [^>]*>`)

// finish returns the figure; label describes it for readers who cannot see it.
func (s *sheet) finish(label string) SVG {
	var drawn bytes.Buffer
	if _, err := s.pen.WriteTo(&drawn); err != nil {
		panic("a bytes.Buffer cannot fail: " + err.Error())
	}
	body := svgHead.ReplaceAllLiteral(drawn.Bytes(), nil)
	var out bytes.Buffer
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" width="%g" height="%g" viewBox="0 0 %g %g" role="img" aria-label="%s">`,
		float64(s.width), float64(s.height), float64(s.width), float64(s.height), html.EscapeString(safetext.Line(label)))
	// Texts cannot contain "<" or a quotation mark unescaped, so these replace
	// markup only.
	const begin = "<text "
	for i, part := range bytes.Split(body, []byte(begin)) {
		if i > 0 {
			out.WriteString(begin)
			if anchor := s.pen.anchors[i-1]; anchor != "" {
				out.WriteString(`text-anchor="` + anchor + `" `)
			}
		}
		out.Write(bytes.Replace(part, []byte(`style="font-family:Liberation Sans;font-variant:normal;`),
			[]byte(`style="font-family:`+fontFamily+`;`), 1))
	}
	return out.Bytes()
}

// item is a mark with a text beside it, in a legend or a caption.
type item struct {
	mark func(s *sheet, x, y vg.Length) // at the base line; nil: none
	// room is the width of the mark.
	room vg.Length
	text string
	// alone allows the item to start a line.
	alone bool
}

const (
	flowLine = 16 // from base line to base line
	flowGap  = 14 // between items
)

// flow arranges items in lines of the given width and calls place for each with
// its position (of the base line) relative to the first. It returns the height.
func flow(items []item, k ink, width vg.Length, place func(it item, x, y vg.Length)) vg.Length {
	var x, y vg.Length
	for i, it := range items {
		w := it.room + k.width(it.text)
		if i > 0 && (it.alone || x+w > width) {
			x, y = 0, y+flowLine
		}
		if place != nil {
			place(it, x, y)
		}
		x += w + flowGap
	}
	if len(items) == 0 {
		return 0
	}
	return y + flowLine
}

// items draws a flow with its first base line at y.
func (s *sheet) items(x, y vg.Length, items []item, k ink, width vg.Length) {
	flow(items, k, width, func(it item, dx, dy vg.Length) {
		if it.mark != nil {
			it.mark(s, x+dx, y+dy)
		}
		s.text(x+dx+it.room, y+dy, k, text.XLeft, it.text)
	})
}

// markRoom is the width of a lineMark and the space after it.
const markRoom = 22

// lineMark is a short line.
func lineMark(style draw.LineStyle) func(*sheet, vg.Length, vg.Length) {
	style.Width = max(style.Width, 1.2)
	return func(s *sheet, x, y vg.Length) { s.line(style, x, y-4, x+16, y-4) }
}

// containerMark is the line of container i, broader than in a panel.
func containerMark(i int) func(*sheet, vg.Length, vg.Length) {
	style := lineOf(i)
	style.Width = 3
	return lineMark(style)
}

// boxMark is a filled square.
func boxMark(c color.Color) func(*sheet, vg.Length, vg.Length) {
	return func(s *sheet, x, y vg.Length) { s.fill(x, y-9, 10, 10, c) }
}
