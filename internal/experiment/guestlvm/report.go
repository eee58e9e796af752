package guestlvm

import (
	"fmt"

	"github.com/daybook-project/daybook/internal/experiment/report"
	"github.com/daybook-project/daybook/internal/experiment/statistics"
)

var figures = []struct {
	name   string
	format string
	of     func(Sample) float64
}{
	{"syncs per second", "%.0f", Sample.syncsPerSecond},
	{"p50 of a sync, ms", "%.1f", func(s Sample) float64 { return 1e3 * s.Writer.SyncP50Seconds }},
	{"p99 of a sync, ms", "%.1f", func(s Sample) float64 { return 1e3 * s.Writer.SyncP99Seconds }},
}

// Report returns the result as a page.
func (r Result) Report() (report.Report, error) {
	page := report.Report{
		Title: "Thin and thick logical volumes beside a neighbour",
		Lead: []string{
			"Does a thin logical volume wait longer for its syncs than a thick one when another volume of the same thin pool is busy? dm-thin passes the flushes of all volumes of a pool through one worker, which first commits the pool's metadata if blocks were allocated.",
			fmt.Sprintf("One guest with Linux %s on emulated processors, one virtio disk of %.1f MB/s on which a flush takes %d ms (dm-delay), one volume group, volumes as `daybook volume create --backing lvm` and `attach` make them. The delayed flushes do not wait for each other, as those of some disks do. "+
				"The writer overwrites a file of %d MiB in blocks of 4 KiB with an fsync after each. Its neighbour is on another volume of the same kind: **none**; **sync**: %d writers that do the same; **stream**: one that writes new blocks in writes of 1 MiB, with an fsync after each %d. "+
				"%d rounds of %g s each in one boot, thick and thin in turn; each second round begins with the other kind.",
				r.Kernel, float64(DiskBytesPerSecond)/1e6, r.FlushMilliseconds, writerFile>>20, neighbours, streamSync, r.Rounds, r.Time.Seconds()),
			"The processors are emulated: only the ratios mean something. Cells are the median over the rounds, with the least and the greatest; a ratio is taken within each round.",
		},
		Host: r.Host,
	}
	page.Tables = append([]report.Table{r.ratioTable()}, r.kindTables()...)
	return page, nil
}

// cell is the median, the least and the greatest of values.
func cell(values []float64, format string) string {
	s := statistics.SpreadOf(values)
	return fmt.Sprintf(format+" ("+format+" to "+format+")", s.Median, s.Low, s.High)
}

// ratioTable divides thin by thick.
func (r Result) ratioTable() report.Table {
	t := report.Table{
		Title:   "Thin divided by thick",
		Columns: []string{"neighbour", "syncs per second", "p50 of a sync", "p99 of a sync", "the neighbour's bytes per second"},
		Note:    "Above 1, thin makes more syncs, or its syncs take longer.",
	}
	for _, neighbour := range Neighbours() {
		row := []string{string(neighbour)}
		for _, figure := range figures {
			row = append(row, cell(ratios(r.values(Thin, neighbour, figure.of), r.values(Thick, neighbour, figure.of)), "%.2f"))
		}
		other := "–"
		if neighbour != Alone {
			bytes := func(s Sample) float64 { return s.Other.BytesPerSecond() }
			other = cell(ratios(r.values(Thin, neighbour, bytes), r.values(Thick, neighbour, bytes)), "%.2f")
		}
		t.Rows = append(t.Rows, append(row, other))
	}
	return t
}

// kindTables are the figures of each kind, divided by those without a neighbour and as
// they were measured.
func (r Result) kindTables() []report.Table {
	beside := report.Table{
		Title:   "Beside a neighbour, divided by alone",
		Columns: []string{"volumes, neighbour", "syncs per second", "p50 of a sync", "p99 of a sync"},
	}
	measured := report.Table{
		Title:   "Measured in the guest",
		Columns: []string{"volumes, neighbour", figures[0].name, figures[1].name, figures[2].name, "neighbour MB/s"},
		Note:    "Times of emulated processors: for comparison within this table only.",
	}
	for _, neighbour := range Neighbours() {
		for _, kind := range Kinds() {
			name := fmt.Sprintf("%s, %s", kind, neighbour)
			row, times := []string{name}, []string{name}
			for _, figure := range figures {
				values := r.values(kind, neighbour, figure.of)
				row = append(row, cell(values, figure.format))
				times = append(times, cell(ratios(values, r.values(kind, Alone, figure.of)), "%.2f"))
			}
			measured.Rows = append(measured.Rows, append(row, cell(r.values(kind, neighbour, func(s Sample) float64 { return s.Other.BytesPerSecond() / 1e6 }), "%.2f")))
			if neighbour != Alone {
				beside.Rows = append(beside.Rows, times)
			}
		}
	}
	return []report.Table{beside, measured}
}
