package figure

import (
	"math"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
)

// niceStep is the smallest step of 1, 2 or 5 times a power of ten that divides
// span into at most parts.
func niceStep(span float64, parts int) float64 {
	if !(span > 0) || math.IsInf(span, 1) {
		return 1
	}
	least := span / float64(parts)
	power := math.Pow(10, math.Floor(math.Log10(least)))
	for _, m := range []float64{1, 2, 5} {
		if m*power >= least*(1-1e-9) {
			return m * power
		}
	}
	return 10 * power
}

// timeStep is niceStep for seconds: whole parts of a minute and an hour.
func timeStep(span float64, parts int) float64 {
	for _, step := range []float64{1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600} {
		if span <= step*float64(parts) {
			if span < 2*step {
				break
			}
			return step
		}
	}
	return niceStep(span, parts)
}

// ticks are the labelled multiples of step from lo to hi.
func ticks(lo, hi, step float64) plot.ConstantTicks {
	decimals := max(0, -int(math.Floor(math.Log10(step)+1e-9)))
	var list plot.ConstantTicks
	first, last := math.Ceil(lo/step-1e-6), math.Floor(hi/step+1e-6)
	for k := first; k <= last && len(list) < 100; k++ {
		list = append(list, plot.Tick{Value: k * step, Label: number(k*step, decimals)})
	}
	return list
}

// number formats a value with a true minus sign and without a negative zero.
func number(value float64, decimals int) string {
	text := strconv.FormatFloat(value, 'f', decimals, 64)
	if digits, negative := strings.CutPrefix(text, "-"); negative {
		if strings.Trim(digits, "0.") == "" {
			return digits
		}
		return "−" + digits
	}
	return text
}

func percent(ratio float64, decimals int) string { return number(100*ratio, decimals) + " %" }

// rateUnit returns the most readable unit for a greatest rate in bytes per
// second: MB/s unless that gives tiny or huge numbers. Prefixes are decimal, as
// for disks.
func rateUnit(greatest float64) (name string, bytes float64) {
	if greatest <= 0 {
		return "MB/s", 1e6
	}
	switch {
	case greatest < 1e3:
		return "B/s", 1
	case greatest < 1e5:
		return "kB/s", 1e3
	}
	bytes = 1e6
	for _, name := range []string{"MB/s", "GB/s", "TB/s", "PB/s"} {
		if greatest < 2000*bytes {
			return name, bytes
		}
		bytes *= 1e3
	}
	return "EB/s", bytes
}

// symlog is a scale that is logarithmic in both directions and passes through
// zero: linear up to about linear, one power of ten per step beyond it.
type symlog struct{ linear float64 }

var _ plot.Normalizer = symlog{}

func (s symlog) position(x float64) float64 {
	return math.Copysign(math.Log10(1+math.Abs(x)/s.linear), x)
}

// Normalize returns the position of x between lo and hi, 0..1.
func (s symlog) Normalize(lo, hi, x float64) float64 {
	low := s.position(lo)
	return (s.position(x) - low) / (s.position(hi) - low)
}
