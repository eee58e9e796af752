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
	ratio := report.Table{
		Title:   "Thin divided by thick",
		Columns: []string{"neighbour", "syncs per second", "p50 of a sync", "p99 of a sync", "the neighbour's bytes per second"},
		Note:    "Above 1, thin makes more syncs, or its syncs take longer.",
	}
	of := func(values []float64, format string) string {
		s := statistics.SpreadOf(values)
		return fmt.Sprintf(format+" ("+format+" to "+format+")", s.Median, s.Low, s.High)
	}
	for _, neighbour := range Neighbours() {
		row := []string{string(neighbour)}
		for _, figure := range figures {
			row = append(row, of(ratios(r.values(Thin, neighbour, figure.of), r.values(Thick, neighbour, figure.of)), "%.2f"))
		}
		other := func(s Sample) float64 { return s.Other.BytesPerSecond() }
		cell := "–"
		if neighbour != Alone {
			cell = of(ratios(r.values(Thin, neighbour, other), r.values(Thick, neighbour, other)), "%.2f")
		}
		ratio.Rows = append(ratio.Rows, append(row, cell))
	}
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
				row = append(row, of(values, figure.format))
				times = append(times, of(ratios(values, r.values(kind, Alone, figure.of)), "%.2f"))
			}
			measured.Rows = append(measured.Rows, append(row, of(r.values(kind, neighbour, func(s Sample) float64 { return s.Other.BytesPerSecond() / 1e6 }), "%.2f")))
			if neighbour != Alone {
				beside.Rows = append(beside.Rows, times)
			}
		}
	}
	page.Tables = []report.Table{ratio, beside, measured}
	return page, nil
}
