package guestvolumes

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/experiment/report"
	"github.com/daybook-project/daybook/internal/experiment/statistics"
)

// Report returns the result as a page.
func (r Result) Report() (report.Report, error) {
	page := report.Report{
		Title: "Volumes on cgroup v2, under io.cost and under BFQ",
		Lead: []string{
			fmt.Sprintf("Does a volume get the share of the disk that its weight gives it? Two containers with weights of %d (A) and %d (B) share one virtio disk of %.1f MB/s (QEMU's limit on reads and writes together), "+
				"in guests with Debian's kernels and cgroup v2. Both run fio with %d threads. Each thread writes its own file in blocks of 1 MiB through the page cache, and calls fsync after each block. "+
				"**growing**: the files grow during the whole phase. **rewriting**: files of %d MiB are rewritten again and again. **waiting**: B as in growing, and A is one thread that writes %d KiB and waits for each sync, as a database with one client; its share is not what its weight gives, so compare the syncs.",
				fixture.WeightA, fixture.WeightB, float64(DiskBytesPerSecond)/1e6, writers, rewritingBytes[0]>>20, waitingBlockBytes>>10),
			"**VX**: a volume for each container, full, with direct I/O, in a pool on XFS, attached as by `daybook volume attach`, jbd2 in PARENT/journal. **M**: images as in VX, but allocated only, and each under a mapping of its extents (dm-linear) instead of a loop device; without Daybook, jbd2 moved by hand. **U**: images as in VX, each served by a process of its own (ublk) instead of a loop device. The process does all I/O of the volume by one thread, in the cgroup PARENT/server, so the journal has no I/O of its own; jbd2 moved by hand; not on 6.1, which has no ublk. **P**: without Daybook, a partition with ext4 for each container, jbd2 moved by hand.",
			"**io.cost** is as `daybook calibrate --io-cost DEV --for volumes` proposes it for this disk: a model of three quarters of the disk's rate, so that requests wait in io.cost and not in the disk, and a period of 188 ms; a write of 1 MiB takes about 30 ms. " +
				"**io.cost-control** is as `daybook calibrate --io-cost DEV` proposes it for a host with control: the same model, and a period of 16 ms. " +
				"**io.cost-full** has a model of the disk's full rate, and the period of io.cost. **bfq** is BFQ.",
			fmt.Sprintf("The bounds apply to VX under io.cost: A's share within %.0f points of %.0f %%, and at least %.0f %% of the model's rate used; in waiting, at least %g times the syncs of A on a partition in the same round. The other rows are for comparison.",
				100*maxError, 100*fixture.TargetA, 100*minUse, minSyncs),
			"Shares are computed from io.stat of the two parent cgroups; they include data and journal. “Requests in the disk” is the mean number of requests in the disk and its scheduler, without those that io.cost holds back. “Held back” is the fraction of the time in which io.cost held back requests of the container (cost.wait). At all other times the container asks for less than its share. " +
				"“Idle” is the idle time of the guest's processors. They are emulated; the shares would be wrong if the loads waited for them.",
			"Under BFQ a partition gets its share and a volume does not. A trace on Linux 6.18 with cgroup v1 shows the reason. A loop device's I/O reaches the disk from kworkers that all loop devices share. BFQ's queues belong to threads, so a queue moves from cgroup to cgroup with its requests. " +
				"io.cost reads the cgroup of each bio, which the loop driver sets to the cgroup of the request.",
			"The model must be below the disk's rate. Otherwise requests wait in the disk (“requests in the disk”), which knows no weights, and a commit of jbd2 waits behind all of them. All writers of A then wait for this commit, so A often has no request that io.cost could hold back, and asks for less than its share. " +
				"And the period must be longer than a write takes: with a shorter one, io.cost lets through more than its model allows (“of the allowed rate”).",
			"Compare a volume under io.cost with a partition under io.cost. If both are off by the same amount, as in rewriting, the volume is not the reason. Why io.cost gives A less there, although A has requests waiting, is not known.",
		},
		Host: r.Host,
	}
	for _, kernel := range r.kernels() {
		table := report.Table{
			Title: "Linux " + kernel,
			Columns: []string{"arrangement, load, divider", "share of A", "off by", "intervals", "A MB/s", "B MB/s", "of the allowed rate", "journal of A, B MB",
				"syncs of A a second", "sync of A, B ms", "A, B held back", "requests in the disk", "idle", "bound kept"},
		}
		settings := make(map[string]string)
		for _, run := range r.Runs {
			if run.Kernel != kernel {
				continue
			}
			table.Rows = append(table.Rows, run.row(r.kept(run)))
			settings[run.Divider] = run.Settings
		}
		var notes []string
		for _, divider := range Dividers() {
			if text, measured := settings[divider]; measured {
				notes = append(notes, fmt.Sprintf("%s: `%s`.", divider, text))
			}
		}
		table.Note = strings.Join(notes, " ")
		page.Add(table, r.besidePartitions(kernel))
	}
	return page, nil
}

// kernels lists the kernels in the order of the runs.
func (r Result) kernels() []string {
	var all []string
	for _, run := range r.Runs {
		if len(all) == 0 || all[len(all)-1] != run.Kernel {
			all = append(all, run.Kernel)
		}
	}
	return all
}

// besidePartitions compares the syncs of A with those on a partition in the same round.
func (r Result) besidePartitions(kernel string) report.Table {
	table := report.Table{
		Title:   "Linux " + kernel + ": syncs beside those on a partition in the same round",
		Columns: []string{"arrangement, load, divider", "rounds", "syncs of A a second", "of the partition's", "in each round"},
		Note:    "The medians of the rounds. A round measures all arrangements, one after the other.",
	}
	for n := 0; n < len(r.Runs); {
		first := r.Runs[n]
		var rates, ratios []float64
		var each []string
		for ; n < len(r.Runs) && r.Runs[n].compare(first) == r.Runs[n].Round-first.Round; n++ {
			over, known := r.overPartition(r.Runs[n])
			if r.Runs[n].Kernel != kernel || !known {
				continue
			}
			rates, ratios = append(rates, r.Runs[n].syncs()), append(ratios, over)
			each = append(each, fmt.Sprintf("%.2f", over))
		}
		if len(rates) > 1 {
			table.Rows = append(table.Rows, []string{first.kind(), fmt.Sprint(len(rates)),
				fmt.Sprintf("%.1f", statistics.Median(rates)), fmt.Sprintf("%.2f", statistics.Median(ratios)), strings.Join(each, ", ")})
		}
	}
	return table
}

// overPartition is the syncs of A over those on a partition in the same round; false if
// there were none.
func (r Result) overPartition(run Run) (over float64, known bool) {
	for _, other := range r.Runs {
		if other.Arrangement == fixture.OwnPartitions && other.Kernel == run.Kernel && other.besides() == run.besides() && other.A.Syncs > 0 {
			return run.syncs() / other.syncs(), true
		}
	}
	return 0, false
}

// kept says whether a run is within its bounds, if it has any.
func (r Result) kept(run Run) string {
	_, known := r.overPartition(run)
	switch {
	case !run.bounded():
		return "–"
	case run.Load == Waiting && !known:
		return "no verdict"
	case r.missed(run) != nil:
		return "**no**"
	}
	return "yes"
}

// besides is what a run has in common with that on a partition in the same round.
func (r Run) besides() Case { return Case{Round: r.Round, Load: r.Load, Divider: r.Divider} }

// syncs is the number of syncs of A in a second.
func (r Run) syncs() float64 {
	return float64(r.A.Syncs) / cmp.Or(r.A.SyncSeconds, r.MeasuredSeconds)
}

func (r Run) kind() string { return fmt.Sprintf("%s, %s, %s", r.Arrangement, r.Load, r.Divider) }

func (r Run) row(kept string) []string {
	rate := func(bytes uint64) string { return fmt.Sprintf("%.2f", float64(bytes)/1e6/r.MeasuredSeconds) }
	low, high := 1.0, 0.0
	for _, share := range r.Shares {
		low, high = min(low, share), max(high, share)
	}
	held := "–"
	if r.Divider != BFQ {
		held = fmt.Sprintf("%.0f, %.0f %%", 100*r.A.Held, 100*r.B.Held)
	}
	return []string{
		r.kind(), fmt.Sprintf("%.1f %%", 100*r.ShareA), fmt.Sprintf("%+.1f", 100*(r.ShareA-fixture.TargetA)),
		fmt.Sprintf("%.0f to %.0f %%", 100*low, 100*high), rate(r.A.Bytes), rate(r.B.Bytes), fmt.Sprintf("%.0f %%", 100*r.used()),
		report.Megabytes(r.A.JournalBytes) + ", " + report.Megabytes(r.B.JournalBytes),
		fmt.Sprintf("%.1f", r.syncs()),
		fmt.Sprintf("%.0f, %.0f", 1e3*r.A.SyncMeanSeconds, 1e3*r.B.SyncMeanSeconds),
		held, fmt.Sprintf("%.1f", r.Queue), fmt.Sprintf("%.0f %%", 100*r.Idle), kept,
	}
}
