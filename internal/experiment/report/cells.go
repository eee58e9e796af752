package report

import (
	"fmt"

	"github.com/daybook-project/daybook/internal/experiment/statistics"
)

// Kibibytes and percentage are cells.
func Kibibytes(bytes uint64) string { return fmt.Sprintf("%.1f", float64(bytes)/1024) }

func Percentage(ratio float64) string { return fmt.Sprintf("%+.2f %%", 100*ratio) }

func Nanoseconds(value float64) string { return fmt.Sprintf("%.0f", value) }

func Microseconds(value float64) string { return fmt.Sprintf("%.2f", value*1e6) }

func Milliseconds(seconds float64) string { return fmt.Sprintf("%.2f", 1e3*seconds) }

func Megabytes(bytes uint64) string { return fmt.Sprintf("%.1f", float64(bytes)/1e6) }

func NanosecondsOf(s statistics.Spread) string {
	return fmt.Sprintf("%.0f (%.0f to %.0f)", s.Median, s.Low, s.High)
}

func Counted(value *float64, format string) string {
	if value == nil {
		return "not counted"
	}
	return fmt.Sprintf(format, *value)
}
