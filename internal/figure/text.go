package figure

import (
	"image/color"
	"sort"
	"strings"
	"unicode"

	stdfont "golang.org/x/image/font"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/vg"
)

// wideFallback is the ratio of the widest usual sans-serif fonts (DejaVu,
// Verdana) to Liberation Sans. Every width that keeps two texts apart includes
// it.
const wideFallback, wideBold = 1.17, 1.21

// ink is the style of a text.
type ink struct {
	size  vg.Length
	bold  bool
	color color.Color
}

var (
	titleInk   = ink{16, true, dark}
	headingInk = ink{13, true, dark}
	phaseInk   = ink{12, true, dark}
	bodyInk    = ink{12, false, dark}
	softInk    = ink{11, false, soft}
)

func (k ink) font() font.Font {
	f := font.Font{Typeface: "Liberation", Variant: "Sans", Size: k.size}
	if k.bold {
		f.Weight = stdfont.WeightBold
	}
	return f
}

// width is an upper bound of the width of the text in any of the usual fonts.
func (k ink) width(text string) vg.Length {
	face := font.DefaultCache.Lookup(k.font(), k.size)
	var known strings.Builder
	var width vg.Length
	for _, r := range text {
		// Scripts that Liberation does not have are up to a full em wide.
		if r >= 0x0500 && (r < 0x1e00 || r >= 0x2300) {
			width += k.size
			continue
		}
		known.WriteRune(r)
	}
	factor := vg.Length(wideFallback)
	if k.bold {
		factor = wideBold
	}
	return width + factor*face.Width(known.String())
}

// fit shortens a text in the middle to at most width, because the middle of
// container IDs and paths is the least informative part.
func (k ink) fit(text string, width vg.Length) string {
	if k.width(text) <= width {
		return text
	}
	runes := []rune(text)
	short := func(cut int) string {
		keep := len(runes) - cut
		head := (keep + 1) / 2
		tail := runes[len(runes)-(keep-head):]
		for len(tail) > 0 && unicode.Is(unicode.M, tail[0]) {
			tail = tail[1:]
		}
		return string(runes[:head]) + "…" + string(tail)
	}
	return short(sort.Search(len(runes), func(cut int) bool { return k.width(short(cut)) <= width }))
}

// wrap breaks a text between words into lines of at most width; a word that is
// too long for a line is shortened.
func (k ink) wrap(text string, width vg.Length) []string {
	var lines []string
	for _, word := range strings.Fields(text) {
		if n := len(lines); n > 0 && k.width(lines[n-1]+" "+word) <= width {
			lines[n-1] += " " + word
		} else {
			lines = append(lines, k.fit(word, width))
		}
	}
	return lines
}
