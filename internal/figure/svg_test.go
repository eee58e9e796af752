package figure

import (
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"gonum.org/v1/plot/vg"
)

// tester is a test or a property check.
type tester interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// drawing is a parsed figure: y grows downward.
type drawing struct {
	width, height float64
	texts         []writing
	paths         []path
}

// writing is a text with the box that it needs in the widest usual font.
type writing struct {
	text                     string
	left, right, top, bottom float64
	rotated                  bool
}

// path is a stroked line (fill empty) or a filled area.
type path struct {
	stroke, fill string
	dashed       bool
	points       [][2]float64
}

// parse parses a figure of this package and fails the test if it is not XML.
func parse(t tester, svg SVG) drawing {
	t.Helper()
	var d drawing
	var rotated int // depth of groups since the rotation
	var open *writing
	var anchor string
	var k ink
	decoder := xml.NewDecoder(strings.NewReader(string(svg)))
	for {
		token, err := decoder.Token()
		if err == io.EOF {
			return d
		}
		if err != nil {
			t.Fatalf("not XML: %v\n%s", err, svg)
		}
		switch e := token.(type) {
		case xml.StartElement:
			attributes := map[string]string{}
			for _, a := range e.Attr {
				attributes[a.Name.Local] = a.Value
			}
			style := styleOf(attributes["style"])
			switch e.Name.Local {
			case "svg":
				d.width, d.height = float(t, attributes["width"]), float(t, attributes["height"])
			case "g":
				if rotated > 0 || strings.HasPrefix(attributes["transform"], "rotate") {
					rotated++
				}
			case "text":
				x, y := float(t, attributes["x"]), d.height+float(t, attributes["y"])
				size := float(t, strings.TrimSuffix(style["font-size"], "px"))
				k = ink{size: vg.Length(size), bold: style["font-weight"] == "bold"}
				anchor = attributes["text-anchor"]
				open = &writing{left: x, right: x, top: y - 0.75*size, bottom: y + 0.2*size, rotated: rotated > 0}
			case "path":
				p := path{fill: style["fill"], stroke: style["stroke"], dashed: style["stroke-dasharray"] != ""}
				for _, pair := range strings.FieldsFunc(attributes["d"], func(r rune) bool { return r == 'M' || r == 'L' }) {
					if x, y, ok := strings.Cut(strings.TrimSuffix(pair, "Z"), ","); ok && !strings.ContainsAny(pair, "A") {
						p.points = append(p.points, [2]float64{float(t, x), d.height - float(t, y)})
					}
				}
				d.paths = append(d.paths, p)
			}
		case xml.CharData:
			if open != nil {
				open.text += string(e)
			}
		case xml.EndElement:
			if e.Name.Local == "g" && rotated > 0 {
				rotated--
			}
			if e.Name.Local == "text" {
				width := float64(k.width(open.text))
				switch anchor {
				case "end":
					open.left -= width
				case "middle":
					open.left -= width / 2
					open.right += width / 2
				default:
					open.right += width
				}
				d.texts = append(d.texts, *open)
				open = nil
			}
		}
	}
}

func styleOf(text string) map[string]string {
	style := map[string]string{}
	for _, part := range strings.Split(text, ";") {
		name, value, _ := strings.Cut(part, ":")
		style[name] = value
	}
	return style
}

func float(t tester, text string) float64 {
	t.Helper()
	value, err := strconv.ParseFloat(text, 64)
	if err != nil || !finite(value) {
		t.Fatalf("%q is no coordinate", text)
	}
	return value
}

// checkLegible fails the test if texts overlap or exceed the figure.
func checkLegible(t tester, svg SVG) {
	t.Helper()
	d := parse(t, svg)
	for i, a := range d.texts {
		if a.rotated {
			continue
		}
		if a.left < 0 || a.right > d.width || a.top < 0 || a.bottom > d.height {
			t.Errorf("%q is clipped: %s in %g by %g", a.text, a.box(), d.width, d.height)
		}
		for _, b := range d.texts[:i] {
			if !b.rotated && a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom {
				t.Errorf("%q (%s) overlaps %q (%s)", a.text, a.box(), b.text, b.box())
			}
		}
	}
}

func (w writing) box() string {
	return fmt.Sprintf("x %.0f to %.0f, y %.0f to %.0f", w.left, w.right, w.top, w.bottom)
}

// lines are the stroked lines in a container's colour, without the marks of
// legends and captions, which are 16 long.
func (d drawing) lines(i int) []path {
	var found []path
	for _, p := range d.paths {
		mark := len(p.points) == 2 && math.Abs(p.points[1][0]-p.points[0][0]-16) < 0.02 && p.points[0][1] == p.points[1][1]
		if p.stroke == hexOf(i) && !mark {
			found = append(found, p)
		}
	}
	return found
}

func hexOf(i int) string {
	r, g, b, _ := containerColors[i].RGBA()
	return fmt.Sprintf("#%02X%02X%02X", r>>8, g>>8, b>>8)
}

// has reports whether the figure contains a text.
func (d drawing) has(text string) bool {
	for _, w := range d.texts {
		if w.text == text {
			return true
		}
	}
	return false
}

func must(t tester) func(SVG, error) SVG {
	return func(svg SVG, err error) SVG {
		t.Helper()
		if err != nil {
			t.Fatalf("%v", err)
		}
		return svg
	}
}
