package overhead

import (
	"fmt"
	"strconv"

	"github.com/daybook-project/daybook/internal/experiment/report"
	"github.com/daybook-project/daybook/internal/figure"
)

// Report returns the overhead as a report.
func (o Result) Report() (report.Report, error) {
	instructions := comparisons(o.Rows, "Executed instructions, in guests", Instructions)
	instructions.Note = fmt.Sprintf("Target: at most %.2f. An emulated guest with one processor counts each instruction that it executes, in all "+
		"processes and in the kernel (QEMU, `-icount shift=0`). Its disk is in memory (null_blk without a scheduler) and completes each request at "+
		"once, so that the processor is never idle: the fewest instructions that an fsync can need, and so the greatest ratio. "+
		"The BPF programs are compiled by the kernel's JIT. The cost is that of a typical call, the lower quartile of a window. Ratio, empty: with "+
		"programs that do nothing on the same tracepoints, so that no program on them can cost less.", Bound)
	times := comparisons(o.Rows, "Time, on the host", Nanoseconds)
	times.Note = fmt.Sprintf("Target: at most %.2f. The disk is a simulated one (a FUSE file under a loop device with BFQ). It takes no time for calls that "+
		"only change memory, and that of a SATA solid-state disk (60 µs a request, 0.5 ms a flush) for an fsync. “No disk time” is an "+
		"fsync on a disk that takes none: faster than any flash, so that no disk hides the cost.", Bound)
	programs := report.Table{
		Title:   "The BPF programs",
		Columns: []string{"program", "under", "where", "unit", "runs a call", "a run", "a call", "later: runs", "a call"},
		Note: fmt.Sprintf("By the kernel's own statistics of BPF programs, less what the counting itself takes for each run (the mean of a program "+
			"that does nothing; on the host %.0f ns). Measured apart from the comparisons. What the kernel does to call a program is not in it. "+
			"Later: when jbd2 writes out what the calls left behind, in no caller's way.", o.ClockNanoseconds),
	}
	for _, p := range o.Programs {
		programs.Rows = append(programs.Rows, []string{p.Program, p.Operation, where(p.Kernel), p.Unit, fmt.Sprintf("%.3f", p.Events),
			report.Nanoseconds(p.PerEvent()), report.Nanoseconds(p.Cost), fmt.Sprintf("%.3f", p.LaterEvents), report.Nanoseconds(p.LaterCost)})
	}
	picture := figure.Overhead{
		Title: "Cost with the BPF programs detached over cost with them attached",
		Note:  fmt.Sprintf("instructions in guests, time on Linux %s; a disk without delays but for %s", o.Host.Kernel, "append+fsync"),
		Range: "95 % range", Limit: 1 / Bound,
	}
	for _, r := range o.Rows {
		picture.Rows = append(picture.Rows, figure.OverheadRow{
			Workload: fmt.Sprintf("%s, %s (%s)", r.Operation, r.Unit, where(r.Kernel)), Ratio: 1 / r.Ratio, Low: 1 / r.High, High: 1 / r.Low,
		})
	}
	svg, err := picture.SVG()
	title, whose := "What the daemon costs the programs on the host", "that the daemon attaches to tracepoints"
	if o.Waits {
		title, whose = "What measuring waits costs the programs on the host", "of `daybook blame`, which are attached only while it runs, or with `--waits`"
	}
	page := report.Report{
		Title: title,
		Lead: []string{
			"The cost is that of the BPF programs " + whose + ". Short windows with the programs attached " +
				"and detached alternate and are compared in pairs; the ratio is the median over the pairs, its range is by bootstrap. The load is one " +
				"thread that makes one kind of call in a loop and nothing else; its files are removed, and everything is written out, between the windows.",
			"What the daemon does by itself, in its own process, is in [scale.md](scale.md).",
		},
		Picture: svg, Host: o.Host,
	}
	page.Add(instructions, times, programs)
	return page, err
}

// comparisons is the table of the rows in a unit.
func comparisons(rows []Row, title, unit string) report.Table {
	t := report.Table{
		Title: title,
		Columns: []string{"operation", "where", "calls a window", "pairs", unit + " a call, detached", "attached", "ratio, empty", "ratio", "95 % range", "target",
			"BPF runs a call", "in BPF programs", "later"},
	}
	for _, r := range rows {
		if r.Unit != unit {
			continue
		}
		t.Rows = append(t.Rows, []string{r.Operation, where(r.Kernel), strconv.Itoa(r.Calls), strconv.Itoa(r.Pairs),
			report.Nanoseconds(r.Detached), report.Nanoseconds(r.Attached), emptyRatio(r), fmt.Sprintf("%.4f", r.Ratio), fmt.Sprintf("%.4f to %.4f", r.Low, r.High), string(r.Verdict),
			fmt.Sprintf("%.2f", r.Events), report.Nanoseconds(r.Programs), report.Nanoseconds(r.Later)})
	}
	return t
}

// emptyRatio is the ratio with empty programs, if it was measured.
func emptyRatio(r Row) string {
	if r.EmptyRatio == 0 {
		return "-"
	}
	return fmt.Sprintf("%.4f", r.EmptyRatio)
}

// where names the guest's kernel, or the host.
func where(kernel string) string {
	if kernel == "" {
		return "host"
	}
	return kernel
}
