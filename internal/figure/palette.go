package figure

import (
	"image/color"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Neutral colours: text, axes, grid.
var (
	white = rgb(0xffffff)
	dark  = rgb(0x1f2933)
	soft  = rgb(0x52606d)
	axis  = rgb(0x9aa5b1)
	faint = rgb(0xe4e7eb)
	band  = rgb(0xeef2f6)
)

// containerColors distinguish containers, also for readers with red-green
// colour blindness: the palette of Okabe and Ito (2008) without its yellow,
// which is invisible on white, and with two dark colours that differ from all
// others in lightness.
var containerColors = [maxContainers]color.Color{
	rgb(0x0072b2), // blue
	rgb(0xd55e00), // vermilion
	rgb(0x009e73), // bluish green
	rgb(0xcc79a7), // reddish purple
	rgb(0x56b4e9), // sky blue
	rgb(0xe69f00), // orange
	rgb(0x333333), // near black
	rgb(0x7a5c3e), // brown
}

// lineOf is the line style of a container. From the fifth on lines are also
// dashed, because eight colours alone are hard to distinguish.
func lineOf(i int) draw.LineStyle {
	style := draw.LineStyle{Color: containerColors[i], Width: 1.8}
	if i >= 4 {
		style.Dashes = []vg.Length{7, 2}
	}
	return style
}

// targetLine marks a configured share.
func targetLine(c color.Color) draw.LineStyle {
	return draw.LineStyle{Color: c, Width: 1.2, Dashes: []vg.Length{3, 3}}
}

// kindStyles are the kinds of I/O in the order of usage.parts. Grey is the I/O
// that the kernel charges to the container. The violets, which differ in
// lightness, are the I/O that no tool based on a cgroup's counters shows.
var kindStyles = [4]struct {
	name  string
	color color.Color
}{
	{"charged", rgb(0xb4bfca)},
	{"journal", rgb(0x4b2e83)},
	{"metadata", rgb(0x8f6cc4)},
	{"uncharged data", rgb(0xcdb4ea)},
}

func rgb(hex uint32) color.Color {
	return color.NRGBA{R: uint8(hex >> 16), G: uint8(hex >> 8), B: uint8(hex), A: 0xff}
}
