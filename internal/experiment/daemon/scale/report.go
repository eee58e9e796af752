package scale

import (
	"fmt"
	"strconv"

	"github.com/daybook-project/daybook/internal/experiment/report"
)

// Report returns the result as a report.
func (s Result) Report() (report.Report, error) {
	mebibytes := func(bytes uint64) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20)) }
	milliseconds := func(seconds float64) string { return fmt.Sprintf("%.1f ms", 1e3*seconds) }
	return report.Report{
		Title: "What the daemon needs on a host with many cgroups",
		Lead: []string{
			fmt.Sprintf("`daybook control` steers %d cgroups below one, on one disk, with an interval of %g s "+
				"(in which its law looks and corrects several times). A process goes from cgroup to cgroup "+
				"and makes a directory and writes a block in each, so that %d of them did I/O within an interval. Processor time and "+
				"memory are the kernel's figures for the daemon's process.", s.Cgroups, s.IntervalSeconds, s.Active),
		},
		Tables: []report.Table{{
			Title:   "Processor time and memory",
			Columns: []string{"figure", "measured", "target"},
			Rows: [][]string{
				{"cgroups", strconv.Itoa(s.Cgroups), ""},
				{"of them active in an interval", strconv.Itoa(s.Active), ""},
				{fmt.Sprintf("processor time of an interval, mean of %d", s.Intervals), milliseconds(s.CPUSeconds), "under " + milliseconds(IntervalBound.Seconds())},
				{"processor time of an interval, greatest", milliseconds(s.MaxCPUSeconds), ""},
				{"processor time of the start", milliseconds(s.StartCPUSeconds), ""},
				{"resident memory, peak", mebibytes(s.PeakBytes), "under " + mebibytes(ResidentBound)},
				{"resident memory at the end", mebibytes(s.ResidentBytes), ""},
				{"BPF maps, in the kernel", mebibytes(s.MapBytes), ""},
			},
		}},
		Host: s.Host,
	}, nil
}
