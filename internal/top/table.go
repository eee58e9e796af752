package top

import (
	"bufio"
	"fmt"
	"io"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/digits"
)

// WriteTable writes the sample as plain text, all devices one below the other.
// Width limits the lines in cells and drops columns to fit; 0 means no limit.
func WriteTable(w io.Writer, sample account.Sample, sortKey string, reverse bool, width int) error {
	out := bufio.NewWriter(w)
	bound := func(text string) string {
		if text = Safe(text); width > 0 {
			return cut(text, width)
		}
		return text
	}
	fmt.Fprintln(out, bound(fmt.Sprintf("%s, %s s, %s", sample.Time.Format("2006-01-02 15:04:05"),
		digits.Of(sample.IntervalSeconds, 3), sample.Estimator)))
	if len(sample.Devices) == 0 {
		fmt.Fprintln(out, bound("no disk with a journalling file system is mounted"))
	}
	columns := fit(width)
	column := Columns[max(columnByKey(sortKey), 0)]
	for _, d := range sample.Devices {
		fmt.Fprintln(out)
		fmt.Fprintln(out, bound(deviceName(d)))
		for _, l := range deviceLines(d, sample.IntervalSeconds) {
			fmt.Fprintln(out, bound(l))
		}
		for i, c := range columns {
			writeCell(out, c.title, i == len(columns)-1, c.width)
		}
		for _, c := range sorted(d.Containers, column, reverse) {
			for i, column := range columns {
				text := column.cell(c, sample.IntervalSeconds)
				if i == len(columns)-1 && width > 0 {
					text = cut(text, width-lastColumn(columns))
				}
				writeCell(out, text, i == len(columns)-1, column.width)
			}
		}
	}
	return out.Flush()
}

func writeCell(out *bufio.Writer, text string, last bool, width int) {
	if last {
		fmt.Fprintln(out, text)
		return
	}
	fmt.Fprint(out, right(text, width), " ")
}
