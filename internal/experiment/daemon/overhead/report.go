package overhead

import (
	"fmt"
	"strconv"

	"github.com/daybook-project/daybook/internal/experiment/report"
	"github.com/daybook-project/daybook/internal/figure"
)

// Report returns the overhead as a report.
func (o Result) Report() (report.Report, error) {
	rates := report.Table{
		Title: "Rates with the daemon and without it",
		Columns: []string{"operation", "calls a round", "pairs", "µs a call without", "with", "rate, ratio", "95 % range",
			"BPF runs a call", "BPF ns a call", "ratio by BPF time", "later, ns"},
		Note: fmt.Sprintf("Target: at least %.2f. The ratio is the median over pairs, each of three rounds without and three with the daemon, of which the medians count; its range is by bootstrap. "+
			"The ratio by BPF time takes the time of the BPF programs during the calls as if all of it was in the caller's way, though "+
			"what runs for jbd2 while the caller does not wait is not; it is free of the noise of the rates. Later: when what the "+
			"calls left behind is written out, in no caller's way.", Bound),
	}
	picture := figure.Overhead{
		Note:  fmt.Sprintf("daybook control, interval %g s; a simulated disk; Linux %s", o.IntervalSeconds, o.Host.Kernel),
		Range: "95 % range", Limit: Bound,
	}
	for _, r := range o.Rows {
		rates.Rows = append(rates.Rows, []string{r.Operation, strconv.Itoa(r.Calls), strconv.Itoa(r.Pairs),
			report.Microseconds(r.SecondsWithout), report.Microseconds(r.SecondsWith), fmt.Sprintf("%.4f", r.Ratio),
			fmt.Sprintf("%.4f to %.4f", r.Low, r.High), fmt.Sprintf("%.2f", r.Events), report.Nanoseconds(r.Nanoseconds),
			fmt.Sprintf("%.4f", r.Expected()), report.Nanoseconds(r.WrittenNanoseconds)})
		picture.Rows = append(picture.Rows, figure.OverheadRow{Workload: r.Operation, Ratio: r.Ratio, Low: r.Low, High: r.High})
	}
	programs := report.Table{
		Title:   "The BPF programs",
		Columns: []string{"program", "under", "runs a call", "ns a run", "ns a call", "later: runs", "ns"},
		Note: fmt.Sprintf("By the kernel's own statistics of BPF programs, less the %.0f ns a run that the counting itself takes "+
			"(the mean of a program that does nothing). Measured apart from the rates, with the programs attached and no daemon.", o.ClockNanoseconds),
	}
	for _, p := range o.Programs {
		programs.Rows = append(programs.Rows, []string{p.Program, p.Operation, fmt.Sprintf("%.3f", p.Events),
			report.Nanoseconds(p.PerEvent()), report.Nanoseconds(p.Nanoseconds), fmt.Sprintf("%.3f", p.WrittenEvents), report.Nanoseconds(p.WrittenNanoseconds)})
	}
	svg, err := picture.SVG()
	return report.Report{
		Title: "What the daemon costs the programs on the host",
		Lead: []string{
			"`daybook control` runs on the disk, with the load's cgroup under control, in every second round; rounds with and " +
				"without it alternate and are compared in pairs. The load is one thread that makes one kind of call in a loop and " +
				"nothing else; its files are removed, and everything is written out, between the rounds.",
			"The disk is an embedded one (a FUSE file under a loop device with BFQ). It takes no time for calls that only change memory, " +
				"and that of a SATA solid-state disk (60 µs a request, 0.5 ms a flush) for an fsync. “No disk time” is an fsync " +
				"on a disk that takes none: faster than any flash, so that no disk hides what the daemon adds; it has no bound.",
		},
		Tables: []report.Table{rates, programs}, Picture: svg, Host: o.Host,
	}, err
}
