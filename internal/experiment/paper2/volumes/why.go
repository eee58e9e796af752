package volumes

import (
	"fmt"

	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/experiment/report"
)

// whyTable sets MariaDB's figures in both data modes beside each other, and says
// what they show.
func (r Result) whyTable() report.Table {
	t := report.Table{
		Title:   "Why",
		Columns: []string{"MariaDB, simulated hard disk", "S, transactions/s", "VX", "VD", "L", "P", "VX/S", "VD/S", "P/S", "sync in S, ms", "VX", "VD", "P"},
		Note: `1. **What a neighbour's data costs a commit, the data mode decides.** In ordered mode a commit writes out and waits for the new data of all files that are in its transaction, the neighbour's, too. ` +
			`Since Linux 5.6 ext4 by default writes new data into extents that are marked unwritten, and enters them into a transaction after that: a commit waits for no data. ` +
			`Compare S ordered with S unwritten, for each neighbour. With O_DIRECT, too, there is no data to wait for: these neighbours write through the page cache, as programs do.
2. **Where data is ordered, a limit on the neighbour becomes a limit on all.** What the commit waits for may be held up by the neighbour's limit (` + "`io.max`, `blkio.throttle`" + `), and then everybody's fsync is. With a journal each, only the neighbour waits.
3. **Without a limit, a loop device has not all of a partition's gain.** BFQ keeps the disk for a moment for a thread that will ask again, and so gives a database that waits for each sync its share. ` +
			`A partition's I/O comes from the database's own threads, a loop device's from whichever kernel worker is free, and BFQ knows them by no history: compare L with P, which differ by the loop device alone, and VX with L. A volume on a device (VD) has no loop device.`,
	}
	for _, mode := range DataModes() {
		p := r.part(simulatedHDD, mariadbLoad, mode)
		if p == nil {
			continue
		}
		for _, n := range p.neighbours() {
			s, vx, vd := p.phase(fixture.SharedExt4, n), p.phase(fixture.PlacedOnXFS, n), p.phase(fixture.OnDevices, n)
			l, o := p.phase(fixture.LoopedPartitions, n), p.phase(fixture.OwnPartitions, n)
			if s == nil || vx == nil || vd == nil || l == nil || o == nil {
				continue
			}
			row := []string{fmt.Sprintf("%s, %s", n, mode)}
			for _, x := range []*Phase{s, vx, vd, l, o} {
				row = append(row, fmt.Sprintf("%.1f", x.Rate))
			}
			row = append(row, decimals(rateRatio(vx, s)), decimals(rateRatio(vd, s)), decimals(rateRatio(o, s)))
			for _, x := range []*Phase{s, vx, vd, o} {
				row = append(row, report.Milliseconds(x.SyncA.MeanSeconds))
			}
			t.Rows = append(t.Rows, row)
		}
	}
	return t
}

// slicesTable shows what short slices give and cost.
func (p Part) slicesTable() report.Table {
	t := report.Table{
		Title: p.title(), Note: p.note() + " On a partition each. The other tables tell below with what they were made: slices of one request, and an nr_requests of 256; what is beyond these requests waits where no weights are known. “Before, many requests at a time”: the scheduler had seen 16 reads at a time before it was set so, as one has that was not set so at once; all others are new ones.",
		Columns: []string{"load, neighbour", "scheduler", "A", "sync of A, mean ms", "B, MB/s", "share of A", "disk, MB/s"},
	}
	for _, tried := range sliceLoads {
		for _, n := range tried.neighbours {
			for _, x := range p.Slices {
				if x.Load != tried.load || x.Neighbour != n {
					continue
				}
				share := "–"
				if n != Alone {
					share = fmt.Sprintf("%.1f %%", 100*x.ShareA)
				}
				t.Rows = append(t.Rows, []string{
					loadTitles[x.Load] + ", " + string(n), x.Settings, rateText(x.Load, x.Rate), report.Milliseconds(x.SyncA.MeanSeconds),
					fmt.Sprintf("%.2f", x.RateB/1e6), share, fmt.Sprintf("%.2f", ratio(float64(x.DiskBytes), x.Seconds)/1e6),
				})
			}
		}
	}
	return t
}
