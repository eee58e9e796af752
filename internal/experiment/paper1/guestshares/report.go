package guestshares

import (
	"fmt"

	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/experiment/report"
	"github.com/daybook-project/daybook/internal/experiment/scenario"
	"github.com/daybook-project/daybook/internal/figure"
)

// Report returns the result as a report.
func (r Result) Report() (report.Report, error) {
	page := report.Report{
		Title: "Shares of a disk on cgroup v2, in guests",
		Lead: []string{
			fmt.Sprintf("Two containers read files of their own from a virtio disk of %.1f MB/s (QEMU's limit on reads and writes together), and B makes directories besides. "+
				"Each scenario is run uncontrolled, then under Daybook's own law, on a new ext4 with its journal on the same disk, with the same settings in both phases, in guests with Debian's kernels.",
				float64(DiskBytesPerSecond)/1e6),
			"Shares count charged I/O, journal, in-place metadata and uncharged data. “Returned” is what the kernel charged to a container and was hidden I/O. " +
				"The guests' processors are emulated, so disk and load are slow; what is compared is the shares.",
			"io.cost lets metadata through and charges them later: no weight limits a burst of in-place metadata, and a burst near the end of a minute distorts its mean. " +
				"`daybook control` says so at its start.",
			"“" + fixture.IOCostAuto + "” is for comparison and has no bound: the kernel's own table takes the disk for a faster one, so io.cost limits no container, and `daybook control` says so at its start.",
		},
		Host: r.Host,
	}
	if len(r.Runs) > 0 && r.Runs[0].Counted {
		page.Title, page.Lead = "Shares of a disk under io.cost, in guests that count instructions", countedLead()
	}
	if table := r.repeated(); table != nil {
		page.Tables = append(page.Tables, *table)
	}
	for _, run := range r.worst() {
		title := fmt.Sprintf("Linux %s, %s, %s", run.Kernel, run.Divider, run.Scenario)
		if n := len(r.repetitions(run)); n > 1 {
			title += fmt.Sprintf(": run %d, the worst of %d", run.Repetition, n)
		}
		table := report.Table{
			Title:   title,
			Note:    "Settings: `" + run.Settings + "`",
			Columns: []string{"container", "target", "share", "off by", "worst 5 s", "charged MB", "journal MB", "metadata MB", "uncharged MB", "returned MB", "directories/s"},
		}
		for _, phase := range run.Phases {
			name := phase.Name
			if phase.Law != "" {
				name = phase.Law + " law"
			}
			row := []string{fmt.Sprintf("**%s**, throughput %.3f", name, phase.Throughput()/run.Phases[0].Throughput())}
			table.Rows = append(table.Rows, append(row, make([]string, len(table.Columns)-1)...))
			for _, c := range phase.Containers {
				table.Rows = append(table.Rows, []string{
					c.Name, fmt.Sprintf("%.1f %%", 100*c.TargetShare), fmt.Sprintf("%.2f %%", 100*c.Share), fmt.Sprintf("%+.2f", 100*(c.Share-c.TargetShare)), fmt.Sprintf("%.2f", 100*c.WorstInterval),
					report.Megabytes(c.ChargedBytes), report.Megabytes(c.JournalBytes), report.Megabytes(c.MetadataBytes), report.Megabytes(c.UnchargedBytes), report.Megabytes(c.ReturnedBytes),
					fmt.Sprintf("%.0f", float64(c.Directories)/phase.Seconds),
				})
			}
		}
		page.Tables = append(page.Tables, table)
	}
	var err error
	page.Picture, err = r.picture()
	return page, err
}

// countedLead is the lead of the page of guests that count instructions.
func countedLead() []string {
	return []string{
		fmt.Sprintf("Two containers read files of their own from a disk of %.1f MB/s, and B makes directories besides. Each scenario is run uncontrolled and under Daybook's own law (every other run begins with the law), "+
			"with the same settings of io.cost in both phases, on a new disk with a new ext4 and its journal, in guests with Debian's kernels and cgroup v2.", float64(DiskBytesPerSecond)/1e6),
		"“" + fixture.IOCost + "” has a model of the whole disk and a period of 1 ms. “" + fixture.IOCostProposed + "” is what `daybook calibrate --io-cost` proposes for this disk: a model of three quarters of it, and a period of 16 ms.",
		"The guest's clocks count instructions, one for each nanosecond, and the disk is null_blk's, in the guest's memory, with a budget for each 50 ms. It is no real disk: no seek, no cache, no queue below the kernel.",
		fmt.Sprintf("The bounds under control: each mean of a minute within %.1f points of its target, each interval of 5 s after the third within %.0f, and %.2f of the uncontrolled throughput. "+
			"“Worst 5 s” is the largest distance of such an interval, in points. “Returned” is what the kernel charged to a container and was hidden I/O.", 100*maxCountedError, 100*maxCountedInterval, minThroughput),
		"io.cost lets metadata through. Under control, its writeback starts at each step (`metadata: auto`); uncontrolled, the kernel writes it every 30 s.",
	}
}

// maxPictured is the maximum number of phases in a picture.
const maxPictured = 8

// picture shows the first scenario of each kernel and divider, uncontrolled and
// controlled.
func (r Result) picture() (figure.SVG, error) {
	var shares figure.Shares
	for _, run := range r.worst() {
		if len(run.phases) == 0 || run.Scenario != r.Runs[0].Scenario || len(shares.Phases)+len(run.phases) > maxPictured {
			continue
		}
		if shares.Device == "" {
			shares.Device = run.phases[0].Device.Device
			for n, target := range run.scenario.Targets() {
				name := run.scenario.Actors[n].Name
				shares.Containers = append(shares.Containers, figure.Container{Cgroup: name, Name: name, Target: target})
			}
		}
		for _, phase := range run.phases {
			state := "controlled"
			if phase.Name == scenario.Uncontrolled {
				state = scenario.Uncontrolled
			}
			shares.Phases = append(shares.Phases, figure.Phase{Name: fmt.Sprintf("%.4s %s %s", run.Kernel, run.Divider, state), Samples: phase.SamplesByName(shares.Device)})
		}
	}
	if len(shares.Phases) == 0 {
		return nil, nil
	}
	return shares.SVG()
}
