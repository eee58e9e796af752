package volumes

import (
	"fmt"

	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/experiment/pair"
	"github.com/daybook-project/daybook/internal/experiment/report"
	"github.com/daybook-project/daybook/internal/figure"
	"github.com/daybook-project/daybook/internal/fio"
)

// Report returns the result as a page.
func (r Result) Report() (report.Report, error) {
	page := report.Report{
		Title: "A journal for each container",
		Lead: []string{
			fmt.Sprintf("Two containers share one disk by weights of %d (A) and %d (B). A runs a database or fio. B is its neighbour: fio with %d threads, each of which writes its own file sequentially "+
				"in blocks of %d MiB through the page cache. B never calls fsync (no-fsync), or calls it after every %d writes (low-fsync) or after each write (high-fsync). **limited** is high-fsync in a container "+
				"with a limit of %d MB/s on its writes to the disk (`io.max`, or on cgroup v1 `blkio.throttle.write_bps_device`). If A runs fio, it is a high-fsync writer too; A and B then have %d threads each.",
				fixture.WeightA, fixture.WeightB, pair.NeighbourWriters, pair.FioBlockBytes>>20, lowEvery(), pair.LimitedBytesPerSecond/1_000_000, pair.FioWriters),
			"**ordered** and **unwritten** are data modes of ext4, the same for S, volumes and partitions. The paper's kernels used ordered (mount option `nodioread_nolock`). Unwritten is the default since Linux 5.6.",
			"**S**: directories of one ext4. **V**: a volume for each container (full), jbd2 in the root cgroup. **VA**: as V, jbd2 placed under its container's weight by `daybook volume attach`. **VX**: as VA, with the pool on XFS. **VC**: as VX, under `daybook control` with a target of 70:30, started 20 seconds before the measurement. **VD**: a volume on a partition for each container (`--device`), jbd2 placed: no image, no loop device. **VDC**: as VD, under control. " +
				"**P**: without Daybook, a partition for each container, jbd2 moved by hand; the best that a journal for each container can reach. **L**: as P, with a loop device over each partition. " +
				"The step from P to L is the cost of the loop devices; the step from L to VA is the cost of the pool's file system.",
			fmt.Sprintf("MariaDB: InnoDB, O_DIRECT, autocommit, binary log synced with each commit, %d clients of sysbench oltp_insert on ten tables. PostgreSQL: default configuration, %d clients of pgbench. "+
				"“Sync” is the time of a call of fsync or fdatasync by A's processes, measured in the kernel. Shares count data, journal and metadata of each container; "+
				"with a loop device, all I/O of this device. A neighbour's MB/s are its writes to its files; without syncs, much of this data stays in memory.", pair.DatabaseClients, pair.DatabaseClients),
			"Read with care. S uses the whole disk, a partition or a volume only a third of it. So a part of the gain of P, L and V without a neighbour comes from shorter seeks. " +
				"And weights divide a disk only among cgroups that always have a request waiting. A program that waits for each sync has one request at a time, from alternating threads (database, jbd2), and BFQ idles for threads, not for cgroups.",
		},
		Host: r.Host,
	}
	page.Add(r.targetTable(), r.whyTable(), r.lossTable())
	for _, p := range r.Parts {
		switch p.Load {
		case poolLoad:
			page.Tables = append(page.Tables, p.poolTable())
			continue
		case slicesLoad:
			page.Tables = append(page.Tables, p.slicesTable())
			continue
		}
		if len(p.Phases) > 0 && len(p.Phases[0].Samples) > 0 {
			page.Lead = append(page.Lead, fmt.Sprintf("![%s](%s)", p.title(), p.figureName()))
		}
		page.Tables = append(page.Tables, p.table())
	}
	return page, nil
}

func lowEvery() int {
	every, _ := fio.LowFsync.FsyncEvery()
	return every
}

var (
	diskTitles = map[string]string{pair.HDD: "simulated hard disk", pair.Plain: "plain disk"}
	loadTitles = map[string]string{pair.Fio: "fio", pair.MariaDB: "MariaDB", pair.PostgreSQL: "PostgreSQL", slicesLoad: "the scheduler's slices", poolLoad: "the pool's own journal"}
)

func (p Part) title() string {
	return loadTitles[p.Load] + ", " + diskTitles[p.Disk] + ", " + string(p.DataMode)
}

func (p Part) figureName() string {
	name := "volumes-" + p.Disk + "-" + p.Load
	if p.DataMode != pair.Ordered {
		name += "-" + string(p.DataMode)
	}
	return name + ".svg"
}

func (p Part) note() string {
	return fmt.Sprintf("Disk: %s. Last measured %s; all arrangements beside one neighbour were measured in one run.%s", p.Settings, p.Measured.Format("2006-01-02 15:04 UTC"), p.repeated())
}

// repeated returns a sentence for each neighbour whose phases are medians.
func (p Part) repeated() string {
	text := ""
	for _, n := range p.Neighbours() {
		for _, phase := range p.Phases {
			if phase.Neighbour == n && phase.Rounds > 1 {
				text += fmt.Sprintf(" %s: of %d rounds, the phase with the median throughput; the arrangements ran in turn.", n, phase.Rounds)
				break
			}
		}
	}
	return text
}

// table returns a table with a row for each phase, ordered by neighbour.
func (p Part) table() report.Table {
	rate := "A, transactions/s"
	if p.Load == pair.Fio {
		rate = "A, MB/s"
	}
	t := report.Table{
		Title: p.title(), Note: p.note(),
		Columns: []string{"neighbour, arrangement", rate, "over S", "sync mean ms", "p50 ms", "p99 ms", "sync of B ms", "B, MB/s", "share of A", "journal of A MB", "journal of B MB", "pool's journal MB"},
	}
	for _, n := range p.Neighbours() {
		base := p.Phase(fixture.SharedExt4, n)
		for _, a := range fixture.Arrangements() {
			phase := p.Phase(a, n)
			if phase == nil {
				continue
			}
			over, share, syncB, poolJournal := "–", "–", "–", "–"
			if base != nil {
				over = decimals(rateRatio(phase, base))
			}
			if n != pair.Alone {
				share = fmt.Sprintf("%.1f %%", 100*phase.ShareA)
			}
			if phase.SyncB.Calls > 0 {
				syncB = report.Milliseconds(phase.SyncB.MeanSeconds)
			}
			if a.HasPoolJournal() {
				poolJournal = report.Megabytes(phase.PoolJournalBytes)
			}
			value := phase.Rate
			if p.Load == pair.Fio {
				value /= 1e6
			}
			t.Rows = append(t.Rows, []string{
				fmt.Sprintf("%s, %s", n, a), fmt.Sprintf("%.2f", value), over,
				report.Milliseconds(phase.SyncA.MeanSeconds), report.Milliseconds(phase.SyncA.P50Seconds), report.Milliseconds(phase.SyncA.P99Seconds),
				syncB, fmt.Sprintf("%.2f", phase.RateB/1e6), share,
				report.Megabytes(phase.JournalBytesA), report.Megabytes(phase.JournalBytesB), poolJournal,
			})
		}
	}
	return t
}

func (p Part) poolTable() report.Table {
	t := report.Table{
		Title: p.title(), Note: p.note() + " One high-fsync writer in one volume, without a neighbour. The pool's journal commits because a flush of the volume is an fsync of its image.",
		Columns: []string{"volume", "written MB/s", "syncs/s", "volume MB", "of it journal MB", "pool's journal MB", "pool's metadata MB", "pool's commits/s"},
	}
	for _, one := range p.Pool {
		t.Rows = append(t.Rows, []string{
			string(one.Provision), fmt.Sprintf("%.2f", one.Rate/1e6), fmt.Sprintf("%.1f", float64(one.SyncA.Calls)/one.Seconds),
			report.Megabytes(one.BytesA), report.Megabytes(one.JournalBytesA), report.Megabytes(one.PoolJournalBytes), report.Megabytes(one.PoolMetadataBytes),
			fmt.Sprintf("%.1f", float64(one.PoolTransactions)/one.Seconds),
		})
	}
	return t
}

// Figures returns a picture for each part, by file name: the shares over time beside the
// high-fsync neighbour (Figs. 8 to 10).
func (r Result) Figures() (map[string][]byte, error) {
	figures := make(map[string][]byte)
	for _, p := range r.Parts {
		shares := figure.Shares{Device: "disk", Containers: []figure.Container{
			{Cgroup: "A", Name: "A", Target: fixture.TargetA}, {Cgroup: "B", Name: "B", Target: 1 - fixture.TargetA},
		}}
		for _, a := range fixture.Arrangements() {
			if phase := p.Phase(a, fio.HighFsync); phase != nil && len(phase.Samples) > 0 {
				shares.Phases = append(shares.Phases, figure.Phase{Name: string(a), Samples: phase.Samples})
			}
		}
		if len(shares.Phases) == 0 {
			continue
		}
		picture, err := shares.SVG(figure.Throughput, figure.Composition)
		if err != nil {
			return nil, err
		}
		figures[p.figureName()] = picture
	}
	return figures, nil
}

// lossTable splits the difference between S and VA into three steps: a journal for each
// container, the loop devices, the pool.
func (r Result) lossTable() report.Table {
	t := report.Table{
		Title: "From one journal to volumes, step by step",
		Note: "Ratios of A's throughput. P/S: a journal for each container, under its weight. L/P: a loop device added. VA/L: the pool's file system added. " +
			"A flush of a volume is an fsync of its image, whose modification time has changed. So the journal of an ext4 pool commits too, in the root cgroup, and all volumes wait for this one journal.",
		Columns: []string{"load, neighbour", "P/S", "L/P", "VA/L", "VA/S", "pool's commits for each sync in VA"},
	}
	for _, p := range r.Parts {
		for _, n := range p.Neighbours() {
			s, v, l, o := p.Phase(fixture.SharedExt4, n), p.Phase(fixture.PlacedVolumes, n), p.Phase(fixture.LoopedPartitions, n), p.Phase(fixture.OwnPartitions, n)
			if s == nil || v == nil || l == nil || o == nil {
				continue
			}
			over := func(a, b *pair.Phase) string { return decimals(rateRatio(a, b)) }
			commits := "–"
			if calls := v.SyncA.Calls + v.SyncB.Calls; calls > 0 {
				commits = fmt.Sprintf("%.2f", float64(v.PoolTransactions)/float64(calls))
			}
			t.Rows = append(t.Rows, []string{p.title() + ", " + string(n), over(o, s), over(l, o), over(v, l), over(v, s), commits})
		}
	}
	return t
}
