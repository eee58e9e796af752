package guestvolumes

import (
	"fmt"
	"strings"

	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/experiment/report"
)

// Report tells the result to people.
func (r Result) Report() (report.Report, error) {
	page := report.Report{
		Title: "Volumes on cgroup v2, under io.cost and under BFQ",
		Lead: []string{
			fmt.Sprintf("Does a volume get the share of the disk that its weight promises? Two containers with weights of %d (A) and %d (B) on one virtio disk of %.1f MB/s (QEMU's limit on reads and writes together), "+
				"in guests with Debian's kernels and cgroup v2. Both are fio with %d writers in threads, each writing a file of its own in blocks of 1 MiB through the page cache, with an fsync after each. "+
				"**growing**: the files get longer all the time. **rewriting**: files of %d MiB, again and again.",
				fixture.WeightA, fixture.WeightB, float64(DiskBytesPerSecond)/1e6, writers, rewritingBytes[0]>>20),
			"**VX**: a volume each, full, with direct I/O, in a pool on an XFS, attached as `daybook volume attach` does it, jbd2 in PARENT/journal. **P**: no Daybook, a partition with an ext4 each, jbd2 moved by hand.",
			fmt.Sprintf("**io.cost** has a model of three quarters of what the disk can do, so that what has to wait waits before the disk, and a period of %d ms. **io.cost-short** has the same model and a period of 1 ms, which is what the kernel takes if io.cost.qos names no latency: "+
				"a write of 1 MiB takes the disk some 30 of those. **io.cost-full** has a model of all that the disk can do. **bfq** is BFQ.", 2*costLatency.Milliseconds()),
			fmt.Sprintf("The bound is on VX under io.cost: A within %.0f points of %.0f %%, with at least %.0f %% of what the model allows used. The others are for comparison.",
				100*maxError, 100*fixture.TargetA, 100*minUse),
			"Shares are of what io.stat of the two parent cgroups counts on the disk, data, journal and all. “Requests in the disk” is their mean number in the disk and its scheduler; what io.cost holds back is not there yet. “Held back” is the part of the time in which io.cost had something of the container waiting (cost.wait): where it has not, the container asks for less than its share. " +
				"“Idle” is the guest's processors: they are emulated, and would spoil the shares if the loads waited for them.",
			"Under BFQ a partition gets its share and a volume does not. On Linux 6.18 with cgroup v1 this was traced: a loop device's I/O reaches the disk from kworkers that all loop devices share, and BFQ's queues belong to threads, so that a queue moves from cgroup to cgroup with what is in it. " +
				"io.cost asks each bio for its cgroup, and the loop driver gives it that of who asked.",
			"The model must be below what the disk can do. Else what it lets through waits in the disk (“requests in the disk”), which takes turns without weights, and a commit of jbd2 waits behind all of it: A, whose writers then all wait for the same commit, has often nothing that could be held back, and asks for less than its share. " +
				"And the period must be longer than a write takes: with one of 1 ms, io.cost lets through more than its model says (“of what they may”).",
			"To be seen beside each other: a volume under io.cost and a partition under io.cost. Where both are off by as much, as in rewriting, it is not the volume; why io.cost gives A less there, though it has something waiting, is not known.",
		},
		Host: r.Host,
	}
	for _, kernel := range r.kernels() {
		table := report.Table{
			Title: "Linux " + kernel,
			Columns: []string{"arrangement, load, divider", "share of A", "off by", "intervals", "A MB/s", "B MB/s", "of what they may", "journal of A, B MB",
				"sync of A, B ms", "A, B held back", "requests in the disk", "idle", "bound kept"},
		}
		settings := make(map[string]string)
		for _, run := range r.Runs {
			if run.Kernel != kernel {
				continue
			}
			table.Rows = append(table.Rows, run.row())
			settings[run.Divider] = run.Settings
		}
		var notes []string
		for _, divider := range Dividers() {
			if text, measured := settings[divider]; measured {
				notes = append(notes, fmt.Sprintf("%s: `%s`.", divider, text))
			}
		}
		table.Note = strings.Join(notes, " ")
		page.Tables = append(page.Tables, table)
	}
	return page, nil
}

// kernels lists them in the order of the runs.
func (r Result) kernels() []string {
	var all []string
	for _, run := range r.Runs {
		if len(all) == 0 || all[len(all)-1] != run.Kernel {
			all = append(all, run.Kernel)
		}
	}
	return all
}

func (r Run) row() []string {
	rate := func(bytes uint64) string { return fmt.Sprintf("%.2f", float64(bytes)/1e6/r.MeasuredSeconds) }
	low, high := 1.0, 0.0
	for _, share := range r.Shares {
		low, high = min(low, share), max(high, share)
	}
	kept := "–"
	if r.bounded() {
		kept = "yes"
		if r.missed() != nil {
			kept = "**no**"
		}
	}
	held := "–"
	if r.Divider != BFQ {
		held = fmt.Sprintf("%.0f, %.0f %%", 100*r.A.Held, 100*r.B.Held)
	}
	return []string{
		fmt.Sprintf("%s, %s, %s", r.Arrangement, r.Load, r.Divider), fmt.Sprintf("%.1f %%", 100*r.ShareA), fmt.Sprintf("%+.1f", 100*(r.ShareA-fixture.TargetA)),
		fmt.Sprintf("%.0f to %.0f %%", 100*low, 100*high), rate(r.A.Bytes), rate(r.B.Bytes), fmt.Sprintf("%.0f %%", 100*r.used()),
		report.Megabytes(r.A.JournalBytes) + ", " + report.Megabytes(r.B.JournalBytes),
		fmt.Sprintf("%.0f, %.0f", 1e3*r.A.SyncMeanSeconds, 1e3*r.B.SyncMeanSeconds),
		held, fmt.Sprintf("%.1f", r.Queue), fmt.Sprintf("%.0f %%", 100*r.Idle), kept,
	}
}
