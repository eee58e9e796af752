package statistics

import (
	"math"
	"testing"
)

func TestASpreadIsOfAllRounds(t *testing.T) {
	double := func(round int) float64 { return 2 * float64(round) }
	if got, want := SpreadBy([]int{3, 1, 2, 7}, double), (Spread{Median: 5, Low: 2, High: 14}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := SpreadBy(nil, double); got != (Spread{}) {
		t.Errorf("of no round: %+v", got)
	}
}

func TestARatioOverZeroIsUndefined(t *testing.T) {
	if got := Ratio(3, 4); got != 0.75 {
		t.Errorf("3/4 is %g", got)
	}
	if got := Ratio(3, 0); !math.IsNaN(got) {
		t.Errorf("3/0 is %g", got)
	}
}

func TestMedianAndItsRange(t *testing.T) {
	if got := Median([]float64{3, 1, 2}); got != 2 {
		t.Errorf("median of three is %g", got)
	}
	if got := Median([]float64{4, 1, 2, 3}); got != 2.5 {
		t.Errorf("median of four is %g", got)
	}
	if low, high := Bootstrap([]float64{1, 1, 1}); low != 1 || high != 1 {
		t.Errorf("equal values have the range %g to %g", low, high)
	}
	var values []float64
	for i := range 101 {
		values = append(values, float64(i))
	}
	low, high := Bootstrap(values)
	// The median of 101 even values has a standard error of about 5.
	if low < 30 || low > 47 || high < 53 || high > 70 {
		t.Errorf("0 to 100 have the range %g to %g; want about 40 to 60", low, high)
	}
	if again, _ := Bootstrap(values); again != low {
		t.Error("the same values have another range")
	}
}
