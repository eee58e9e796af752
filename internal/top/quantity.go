package top

import (
	"fmt"
	"math"

	"github.com/daybook-project/daybook/internal/digits"
)

// rate formats bytes over seconds as bytes per second in at most five cells:
// "0", "512", "9.8K", "123M". K is 1024. A negative rate takes six cells.
func rate(bytes, seconds float64) string {
	if !(seconds > 0) {
		return "-"
	}
	return size(bytes / seconds)
}

// size formats a number of bytes in at most five cells, six if negative.
func size(bytes float64) string {
	if bytes < 0 {
		return "-" + size(-bytes)
	}
	if math.IsNaN(bytes) || math.IsInf(bytes, 0) {
		return "-"
	}
	if bytes < 999.5 {
		return fmt.Sprintf("%.0f", bytes)
	}
	for _, unit := range "KMGTP" {
		bytes /= 1024
		// 9.95 and 999.5 would be rounded to one digit more.
		if bytes < 9.95 {
			return fmt.Sprintf("%.1f%c", bytes, unit)
		}
		if bytes < 999.5 || unit == 'P' && bytes < 9999 {
			return fmt.Sprintf("%.0f%c", bytes, unit)
		}
	}
	return "huge"
}

// percent formats a ratio as "49.9%", in at most six cells.
func percent(ratio float64) string {
	if math.IsNaN(ratio) || math.IsInf(ratio, 0) {
		return "-"
	}
	return fmt.Sprintf("%.1f%%", ratio*100)
}

// count formats a number in at most six cells.
func count(n uint64) string {
	switch {
	case n < 1_000_000:
		return fmt.Sprint(n)
	case n < 1_000_000_000:
		return fmt.Sprintf("%dm", n/1_000_000)
	default:
		return ">999m"
	}
}

// duration formats seconds as "0 ms", "23.4 ms", "1.25 s".
func duration(seconds float64) string {
	switch {
	case math.IsNaN(seconds) || math.IsInf(seconds, 0) || seconds < 0:
		return "-"
	case seconds == 0:
		return "0 ms"
	case seconds < 0.9995:
		return digits.Of(seconds*1000, 3) + " ms"
	default:
		return digits.Of(seconds, 3) + " s"
	}
}
