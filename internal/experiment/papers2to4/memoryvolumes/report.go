package memoryvolumes

import (
	"fmt"

	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/experiment/report"
	"github.com/daybook-project/daybook/internal/experiment/statistics"
	"github.com/daybook-project/daybook/internal/experiment/verdict"
)

// Goals of a volume whose journal is in memory.
const (
	// maxP99 is the largest p99 of a sync next to a neighbour, over that alone.
	maxP99 = 1.2
	// overOrdered and overShared are the throughputs next to the neighbour that syncs
	// most, over those of one ext4 for both with nodioread_nolock and with dioread_nolock.
	overOrdered = 3.4
	overShared  = 1.5
)

// Verdicts compares the result with the goals.
func (r Result) Verdicts() (all []verdict.Verdict) {
	for _, arrangement := range []string{Memory, MemoryData} {
		for _, neighbour := range Neighbours()[1:] {
			all = append(all, r.judgeP99(r.run(arrangement, neighbour), verdict.Verdict{
				Target: fmt.Sprintf("%s: p99 of a %s next to the neighbour %s, over that alone", arrangement, r.unit(), neighbour),
				Wanted: fmt.Sprintf("at most %g×", maxP99), Bound: maxP99,
			}))
		}
		for _, over := range []struct {
			arrangement string
			bound       float64
		}{{SharedOrdered, overOrdered}, {Shared, overShared}} {
			v := r.judge(verdict.Verdict{
				Target: fmt.Sprintf("%s: %ss a second next to the neighbour %s, over %s", arrangement, r.unit(), HighFsync, over.arrangement),
				Wanted: fmt.Sprintf("more than %g×", over.bound), Bound: over.bound,
			}, r.run(arrangement, HighFsync), r.run(over.arrangement, HighFsync), func(run *Run) float64 { return run.SyncsPerSecond.Median })
			v.Met = !v.None && v.Value > over.bound
			all = append(all, v)
		}
	}
	return all
}

// unit is what is counted.
func (r Result) unit() string {
	if r.Load == MariaDB {
		return "transaction"
	}
	return "sync"
}

// wanted is the least number of which a verdict is made.
func (r Result) wanted() uint64 {
	if r.Load == MariaDB {
		return wantedTransactions
	}
	return wantedSyncs
}

// judge compares the ratio of a value of two runs with the bound, above which it is missed.
func (r Result) judge(v verdict.Verdict, run, base *Run, value func(*Run) float64) verdict.Verdict {
	switch {
	case run == nil || base == nil:
		v.Measured, v.None = "not measured", true
	case run.Syncs < r.wanted() || base.Syncs < r.wanted():
		v.Measured, v.None = fmt.Sprintf("%d and %d %ss; want %d", run.Syncs, base.Syncs, r.unit(), r.wanted()), true
	case value(base) == 0:
		v.Measured, v.None = "too short for the clock", true
	default:
		v.Value = value(run) / value(base)
		v.Measured, v.Met = fmt.Sprintf("%.2f×", v.Value), v.Value <= v.Bound
	}
	return v
}

// judgeP99 compares the ratio to the measurements around that next to the neighbour.
func (r Result) judgeP99(run *Run, v verdict.Verdict) verdict.Verdict {
	switch {
	case run == nil || run.P99Syncs == 0:
		v.Measured, v.None = "not measured", true
	case run.P99Syncs < r.wanted():
		v.Measured, v.None = fmt.Sprintf("a p99 of %d %ss; want %d", run.P99Syncs, r.unit(), r.wanted()), true
	default:
		v.Value = run.P99OverAlone.Median
		v.Measured, v.Met = fmt.Sprintf("%.2f× (%.2f to %.2f)", v.Value, run.P99OverAlone.Low, run.P99OverAlone.High), v.Value <= v.Bound
	}
	return v
}

// Check returns an error for each missed goal, or nil.
func (r Result) Check() error { return verdict.Check(r.Verdicts()) }

// Report returns the result as a page.
func (r Result) Report() (report.Report, error) {
	page := report.Report{
		Title: "Volumes whose journal is in memory, next to neighbours",
		Lead: []string{
			r.question(),
			fmt.Sprintf("Its neighbour (weight %d) writes %d MiB at a time through the page cache: "+
				"**%s** never calls fsync, **%s** every %d MiB, **%s** after each write, **%s** does the same under a limit of %.1f MB/s (io.max); **%s**: there is none.",
				fixture.WeightB, blockBytes>>20, NoFsync, LowFsync, syncBytes(LowFsync)>>20, HighFsync, Limited, float64(limitBytes)/1e6, Alone),
			fmt.Sprintf("**%s** is one ext4 for both, as the kernel mounts it (dioread_nolock), **%s** the same with nodioread_nolock. **%s** is a partition with an ext4 for each, with each jbd2 thread in its container's cgroup. **%s** is the same, but the container's ext4 is ext4nvj, with its journal in memory; the neighbour's journal stays on the disk. **%s** also has the data of the container's files in this journal (journal_data=small, chattr +j).",
				Shared, SharedOrdered, Volume, Memory, MemoryData),
			fmt.Sprintf("The kernel (Linux %s) is a program of the host: User Mode Linux with %d processors, on which kernel code runs as on the host, but a system call costs much more. %s "+
				"The disk is in memory (null_blk): one request after the other, %d KiB at most and %d µs each, %.0f MB/s, without a cache to flush. cgroup v2, %s, %d requests in the scheduler; page cache: at most %d MiB are dirty. The memory of the journal is plain memory.",
				r.Kernel, r.CPUs, r.loadText(), requestBytes>>10, requestNanoseconds/1000, float64(diskRate)/1e6, r.Settings, requests, dirtyBytes>>20),
			fmt.Sprintf("Each value is the median of %d rounds (in parentheses minimum and maximum), each in a kernel of its own. The neighbour writes for %.1f s before a measurement. For %s and %s the container is also measured without the neighbour, right before and right after, in the same kernel; what is after one neighbour is before the next. The p99 next to the neighbour is divided by the mean of these two p99, in each round, and the median of the ratios counts. A verdict needs %d %ss for each p99, and as many in all rounds together for a rate. Daybook itself does not run in this kernel: partitions and cgroups are what `daybook volume attach` makes.",
				r.Rounds, warmUp.Seconds(), Memory, MemoryData, r.wanted(), r.unit()),
		},
		Host: r.Host,
	}
	page.Tables = append(page.Tables, verdict.Table(r.Verdicts(), ""))
	for _, neighbour := range Neighbours() {
		times := report.Table{
			Title: "Neighbour: " + neighbour,
			Columns: append(r.columns(), "neighbour MB/s", "share of the container", "writes a "+r.unit(), "of its journal's threads", "requests of the disk",
				"commits a "+r.unit(), "bytes to memory a "+r.unit(), "p99 alone ms, around", "waits a "+r.unit(), "preempted a "+r.unit()),
		}
		for _, arrangement := range Arrangements() {
			if run := r.run(arrangement, neighbour); run != nil {
				times.Rows = append(times.Rows, r.row(run))
			}
		}
		page.Add(times)
	}
	if n := len(page.Tables); n > 1 {
		page.Tables[n-1].Note = "Share: of the bytes that both cgroups wrote. In the shared arrangements the journal is charged to the root cgroup, and is in no share. Writes: those of the container's cgroup for each of its " + r.unit() + "s, and those of them that its journal's threads made, which for a journal in memory write blocks home. The scheduler merges writes into requests; the disk's are of both containers and of the root cgroup. Commits are those of the journal that the container uses, also for its neighbour. p99 alone, around: the mean of that right before and right after, without the neighbour. Waits and preempted: how often the container's process gave its processor up, and how often another thread took it, as the kernel counts them."
	}
	return page, nil
}

// question is the first paragraph of the page.
func (r Result) question() string {
	if r.Load == MariaDB {
		return fmt.Sprintf("Does a container's transaction wait for its neighbours if the container has a volume whose journal is in memory? The container (weight %d) is MariaDB with its data in the volume. %d clients outside the container insert rows, each in a transaction of its own, for which the server syncs its redo log and its binary log. The latency is what a client sees.",
			fixture.WeightA, databaseClients)
	}
	return fmt.Sprintf("Does a container's sync wait for its neighbours if the container has a volume whose journal is in memory? A container (weight %d) appends %d KiB to its log and calls fsync, again and again; the log begins anew at %d MiB.",
		fixture.WeightA, writeBytes>>10, logBytes>>20)
}

// loadText says how the load runs in User Mode Linux.
func (r Result) loadText() string {
	if r.Load == MariaDB {
		return "MariaDB, its clients (sysbench) and the neighbour share its processors, and MariaDB needs many system calls: compare arrangements, and not with MariaDB on another kernel."
	}
	return "Each writer is a process in its container's cgroup with a processor of its own, and its whole run is one system call. So this is not fio, but does what fio does with --rw=write --bs=4k --fsync=1."
}

// columns are those in which the loads differ.
func (r Result) columns() []string {
	if r.Load == MariaDB {
		return []string{"arrangement", "transactions a second", "mean ms", "p99 ms", "transactions"}
	}
	return []string{"arrangement", "syncs a second", "p50 ms", "p99 ms", "longest ms", "syncs"}
}

func (r Result) row(run *Run) []string {
	each := func(n uint64) string { return fmt.Sprintf("%.2f", float64(n)/float64(run.Syncs)) }
	milliseconds := func(s statistics.Spread) string {
		return fmt.Sprintf("%.4f (%.4f to %.4f)", 1e3*s.Median, 1e3*s.Low, 1e3*s.High)
	}
	other, share := "–", "–"
	if run.Neighbour != Alone {
		other = fmt.Sprintf("%.1f", run.OtherBytesPerSecond.Median/1e6)
		if both := run.Container.Bytes + run.NeighbourIO.Bytes; both > 0 {
			share = fmt.Sprintf("%.1f %%", 100*float64(run.Container.Bytes)/float64(both))
		}
	}
	journal, memory := "root", "–"
	if run.Arrangement != Shared && run.Arrangement != SharedOrdered {
		journal = each(run.Journal.Count)
	}
	if inMemory(run.Arrangement) {
		memory = fmt.Sprintf("%.0f", float64(run.MemoryBytes)/float64(run.Syncs))
	}
	around, waits, preempted := "–", "–", "–"
	if run.P99Syncs > 0 {
		around = milliseconds(run.AloneP99Seconds)
	}
	if r.Load != MariaDB {
		waits = fmt.Sprintf("%.4f", float64(run.Waits)/float64(run.Syncs))
		preempted = fmt.Sprintf("%.4f", float64(run.Preempted)/float64(run.Syncs))
	}
	row := []string{run.Arrangement, report.NanosecondsOf(run.SyncsPerSecond)}
	if r.Load == MariaDB {
		row = append(row, milliseconds(run.SyncMeanSeconds), milliseconds(run.SyncP99Seconds))
	} else {
		row = append(row, milliseconds(run.SyncP50Seconds), milliseconds(run.SyncP99Seconds), report.Milliseconds(run.SyncMaxSeconds))
	}
	return append(row, fmt.Sprint(run.Syncs), other, share, each(run.Container.Count), journal, each(run.Disk.Count), each(run.Commits), memory, around, waits, preempted)
}
