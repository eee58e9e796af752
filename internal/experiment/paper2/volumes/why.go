package volumes

import (
	"fmt"

	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/experiment/pair"
	"github.com/daybook-project/daybook/internal/experiment/report"
	"github.com/daybook-project/daybook/internal/experiment/statistics"
)

// whyTable compares MariaDB's figures in both data modes, and explains them.
func (r Result) whyTable() report.Table {
	t := report.Table{
		Title:   "Why",
		Columns: []string{"MariaDB, simulated hard disk", "S, transactions/s", "VX", "VD", "L", "P", "VX/S", "VD/S", "P/S", "sync in S, ms", "VX", "VD", "P"},
		Note: `1. **The data mode decides how much of a neighbour's data a commit waits for.** In ordered mode a commit writes the new data of all files in its transaction, also of the neighbour's files, and waits for it. ` +
			`Since Linux 5.6 ext4 by default writes new data into extents that are marked unwritten, and adds them to a transaction only then: a commit waits for no data. ` +
			`Compare S ordered with S unwritten, for each neighbour. These neighbours write through the page cache, as most programs do. With O_DIRECT no commit waits for data either.
2. **With ordered data, a limit on the neighbour becomes a limit on all.** The neighbour's limit (` + "`io.max`, `blkio.throttle`" + `) may delay the data that a commit waits for. Then it delays the fsync of every container. With a journal for each container, only the neighbour waits.
3. **Without a limit, a loop device gives only a part of a partition's gain.** BFQ idles briefly for a thread whose next request it expects. So a database that waits for each sync gets its share. ` +
			`On a partition the I/O comes from the database's own threads. On a loop device it comes from any free kernel worker, and BFQ has no history of these. Compare L with P, which differ only by the loop device, and VX with L. A volume on a device (VD) has no loop device.`,
	}
	for _, mode := range pair.DataModes() {
		p := r.part(pair.Case{Disk: pair.HDD, Load: pair.MariaDB, DataMode: mode})
		if p == nil {
			continue
		}
		for _, n := range p.Neighbours() {
			s, vx, vd := p.Phase(fixture.SharedExt4, n), p.Phase(fixture.PlacedOnXFS, n), p.Phase(fixture.OnDevices, n)
			l, o := p.Phase(fixture.LoopedPartitions, n), p.Phase(fixture.OwnPartitions, n)
			if s == nil || vx == nil || vd == nil || l == nil || o == nil {
				continue
			}
			row := []string{fmt.Sprintf("%s, %s", n, mode)}
			for _, x := range []*pair.Phase{s, vx, vd, l, o} {
				row = append(row, fmt.Sprintf("%.1f", x.Rate))
			}
			row = append(row, decimals(rateRatio(vx, s)), decimals(rateRatio(vd, s)), decimals(rateRatio(o, s)))
			for _, x := range []*pair.Phase{s, vx, vd, o} {
				row = append(row, report.Milliseconds(x.SyncA.MeanSeconds))
			}
			t.Rows = append(t.Rows, row)
		}
	}
	return t
}

// slicesTable shows gain and cost of short slices.
func (p Part) slicesTable() report.Table {
	t := report.Table{
		Title: p.title(), Note: p.note() + " Each container has a partition. All other tables are measured with the second configuration, slices of one request and nr_requests=256. Requests beyond nr_requests wait outside of the scheduler, where weights have no effect. “Before, many requests at a time”: the scheduler had seen 16 reads at a time before it got these settings, as is usual on a host; the others are new schedulers.",
		Columns: []string{"load, neighbour", "scheduler", "A", "sync of A, mean ms", "B, MB/s", "share of A", "disk, MB/s"},
	}
	for _, tried := range sliceLoads {
		for _, n := range tried.neighbours {
			for _, x := range p.Slices {
				if x.Load != tried.load || x.Neighbour != n {
					continue
				}
				share := "–"
				if n != pair.Alone {
					share = fmt.Sprintf("%.1f %%", 100*x.ShareA)
				}
				t.Rows = append(t.Rows, []string{
					loadTitles[x.Load] + ", " + string(n), x.Settings, pair.RateText(x.Load, x.Rate), report.Milliseconds(x.SyncA.MeanSeconds),
					fmt.Sprintf("%.2f", x.RateB/1e6), share, fmt.Sprintf("%.2f", statistics.Ratio(float64(x.DiskBytes), x.Seconds)/1e6),
				})
			}
		}
	}
	return t
}
