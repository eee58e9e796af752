package figure

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"gonum.org/v1/plot"
	"pgregory.net/rapid"

	"github.com/daybook-project/daybook/internal/safetext"
)

func TestEachErrorIsWrittenBesideItsMark(t *testing.T) {
	svg := must(t)(accuracyRun().SVG())
	checkLegible(t, svg)
	d := parse(t, svg)
	for _, want := range []string{"mkdir", "+0.02 %", "+1.10 %", "truncate", "0.00 %", "append + fsync", "+340 %", "−100 %", "–", "±1 %"} {
		if !d.has(want) {
			t.Errorf("%q is not written", want)
		}
	}
}

func TestWhatWasNotMeasuredHasNoMark(t *testing.T) {
	rows := func(handles float64) Accuracy {
		return Accuracy{Rows: []AccuracyRow{{"op", handles, 0.5}}}
	}
	measured := bytes.Count(must(t)(rows(0.3).SVG()), []byte("<path"))
	for _, missing := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		svg := must(t)(rows(missing).SVG())
		checkLegible(t, svg)
		if got := bytes.Count(svg, []byte("<path")); got != measured-1 {
			t.Errorf("%g: %d paths; want one less than %d", missing, got, measured)
		}
	}
}

func TestTheOverheadShowsRatioAndRange(t *testing.T) {
	svg := must(t)(overheadRun().SVG())
	checkLegible(t, svg)
	d := parse(t, svg)
	for _, want := range []string{"mkdir", "0.996", "0.992 to 1.001", "target: at least 0.990"} {
		if !d.has(want) {
			t.Errorf("%q is not written", want)
		}
	}
	var whiskers int
	for _, p := range d.lines(0) {
		if len(p.points) == 2 && p.points[0][1] == p.points[1][1] {
			whiskers++
		}
	}
	if whiskers != 3 {
		t.Errorf("%d ranges; want 3", whiskers)
	}
}

func TestChartsOfRowsAcceptAnyNumbers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.OneOf(rapid.Float64(), rapid.Float64Range(-2, 2), rapid.Just(math.NaN()))
		var a Accuracy
		o := Overhead{Range: rapid.String().Draw(t, "range")}
		for range rapid.IntRange(0, 5).Draw(t, "rows") {
			name := rapid.String().Draw(t, "name")
			a.Rows = append(a.Rows, AccuracyRow{name, number.Draw(t, "handles"), number.Draw(t, "syscalls")})
			o.Rows = append(o.Rows, OverheadRow{name, number.Draw(t, "ratio"), number.Draw(t, "low"), number.Draw(t, "high")})
		}
		for _, draw := range []func() (SVG, error){a.SVG, o.SVG} {
			checkLegible(t, must(t)(draw()))
		}
	})
}

func TestChartsOfRowsRejectWrongLimits(t *testing.T) {
	for _, limit := range []float64{-1, 2, math.NaN()} {
		if _, err := (Accuracy{Limit: limit}).SVG(); err == nil {
			t.Errorf("accuracy took the limit %g", limit)
		}
		if _, err := (Overhead{Limit: limit}).SVG(); err == nil {
			t.Errorf("overhead took the limit %g", limit)
		}
	}
	if _, err := (Accuracy{Rows: make([]AccuracyRow, maxRows+1)}).SVG(); err == nil {
		t.Error("accuracy took too many rows")
	}
}

func TestTheErrorScaleIsSymmetricAndRises(t *testing.T) {
	scale := symlog{linearError}
	rapid.Check(t, func(t *rapid.T) {
		x := rapid.Float64Range(-1000, 1000).Draw(t, "x")
		y := rapid.Float64Range(-1000, 1000).Draw(t, "y")
		at := func(v float64) float64 { return scale.Normalize(-1000, 1000, v) }
		if math.Abs(at(x)+at(-x)-1) > 1e-12 {
			t.Fatalf("%g is drawn at %g, its opposite at %g", x, at(x), at(-x))
		}
		if x < y && at(x) > at(y) {
			t.Fatalf("%g is drawn right of %g", x, y)
		}
	})
}

func TestTicksAreFewEvenAndInRange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		top := math.Pow(10, rapid.Float64Range(-9, 18).Draw(t, "exponent"))
		parts := rapid.IntRange(2, 8).Draw(t, "parts")
		axis := upTo(top, parts)
		if axis.max < top*(1-1e-6) || axis.max > 3*top {
			t.Fatalf("the axis for %g ends at %g", top, axis.max)
		}
		if n := len(axis.ticks); n < 2 || n > parts+2 {
			t.Fatalf("%d ticks for %d parts up to %g", n, parts, top)
		}
		seen := map[string]bool{}
		for _, tick := range axis.ticks {
			if seen[tick.Label] {
				t.Fatalf("the label %q is there twice: %v", tick.Label, axis.ticks)
			}
			seen[tick.Label] = true
		}
	})
}

func TestTheErrorAxisIsLabelledAtPowersOfTen(t *testing.T) {
	labels := func(ticks plot.ConstantTicks) string {
		var out []string
		for _, tick := range ticks {
			out = append(out, tick.Label)
		}
		return strings.Join(out, " ")
	}
	if got := labels(errorAxis(-0.01, 0.03).ticks); got != "−1 −0.1 0 0.1 1" {
		t.Errorf("short axis: %s", got)
	}
	if got := labels(errorAxis(-1, 8).ticks); got != "−100 −10 −1  0  1 10 100 1000" {
		t.Errorf("long axis: %s", got)
	}
}

func TestNumbersHaveATrueMinusAndNoNegativeZero(t *testing.T) {
	for want, got := range map[string]string{
		"−1.5": number(-1.5, 1), "0.0": number(-0.04, 1), "0": number(-0.2, 0), "12": number(12.3, 0),
		"1\u2009234\u2009567.89": grouped("1234567.89"), "−123.40": grouped("−123.40"), "−1\u2009234.00": grouped("−1234.00"),
		"+0.1": signedPoints(0.001), "0.0 ": signedPoints(0.0001) + " ", "−2.0": signedPoints(-0.02),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestAnyTextBecomesOnePrintableLine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		raw := string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")) + rapid.String().Draw(t, "text")
		text := safetext.Line(raw)
		if safetext.Line(text) != text {
			t.Fatalf("%q became %q and then %q", raw, text, safetext.Line(text))
		}
		width := 20 + 10*bodyInk.size
		short := bodyInk.fit(text, width)
		if bodyInk.width(short) > width {
			t.Fatalf("%q takes %g of %g", short, bodyInk.width(short), width)
		}
		for _, line := range bodyInk.wrap(text, width) {
			if bodyInk.width(line) > width {
				t.Fatalf("the line %q takes %g of %g", line, bodyInk.width(line), width)
			}
		}
	})
}
