package digits

import (
	"math"
	"testing"
)

func TestNumbersHaveNoExponent(t *testing.T) {
	for _, c := range []struct {
		x      float64
		digits int
		want   string
	}{
		{0, 3, "0"}, {5, 3, "5"}, {3.01042, 3, "3.01"}, {999.6, 3, "1000"}, {3600.2, 3, "3600"}, {12345, 3, "12300"}, {86399.98, 3, "86400"},
		{1.15, 2, "1.1"}, {124, 2, "120"}, {-0.25, 2, "-0.25"}, {0.00012345, 3, "0.000123"}, {1.0 / 3600, 3, "0.000278"}, {4e-7, 3, "0.0000004"},
		{math.NaN(), 3, "NaN"}, {math.Inf(1), 3, "+Inf"},
	} {
		if got := Of(c.x, c.digits); got != c.want {
			t.Errorf("%g in %d digits is %q; want %q", c.x, c.digits, got, c.want)
		}
	}
}
