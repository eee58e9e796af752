package calibrate

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/daybook-project/daybook/internal/safetext"
	"github.com/daybook-project/daybook/internal/statusline"
)

// WriteTable prints the rows with those of the paper.
func WriteTable(w io.Writer, t Table) error {
	paper := make(map[string]Row)
	for _, row := range Paper() {
		paper[row.Operation] = row
	}
	calls, runs := 0, 0
	if len(t.Rows) > 0 {
		calls, runs = t.Rows[0].Calls, t.Rows[0].Runs
	}
	fmt.Fprintf(w, "Journal bytes of %d calls, %d runs, on %s (%s)\n\n", calls, runs, safetext.Line(t.FileSystem.MountPoint), t.FileSystem.Dev)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "operation\tmean KiB\tstddev\tcv\tbytes/call\tpaper: mean KiB\tstddev\tcv\t")
	for _, row := range t.Rows {
		fmt.Fprintf(table, "%s\t%.1f\t%.1f\t%.3f\t%.0f\t", row.Operation, row.MeanKiB, row.StddevKiB, row.CV, row.BytesPerCall())
		if p, ok := paper[row.Operation]; ok {
			fmt.Fprintf(table, "%.1f\t%.1f\t%.3f\t\n", p.MeanKiB, p.StddevKiB, p.CV)
		} else {
			fmt.Fprint(table, "-\t-\t-\t\n")
		}
	}
	return table.Flush()
}

// silence is how long work runs before its progress is reported.
const silence = 2 * time.Second

// NewProgress returns an Options.Progress that writes after two seconds: on a
// terminal one line that is overwritten, else a line for each operation. end
// removes the line.
func NewProgress(w io.Writer) (progress func(operation string, done, total int), end func()) {
	begin := time.Now()
	line := statusline.On(w)
	shown := ""
	progress = func(operation string, done, total int) {
		switch {
		case time.Since(begin) < silence:
		case line.Terminal():
			line.Show(fmt.Sprintf("calibrating %s, %d of %d runs", operation, done, total))
		case operation != shown:
			fmt.Fprintf(w, "calibrating %s, %d of %d runs\n", operation, done, total)
			shown = operation
		}
	}
	return progress, line.End
}
