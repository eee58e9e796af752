package volumes

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/experiment/pair"
	"github.com/daybook-project/daybook/internal/experiment/report"
	"github.com/daybook-project/daybook/internal/experiment/statistics"
	"github.com/daybook-project/daybook/internal/fio"
)

// Bounds of paper 2's result.
const (
	// minThroughputGain is MariaDB's throughput over that in S beside a
	// high-fsync neighbour (section 4.3: up to 2.8).
	minThroughputGain = 2.8
	// maxSyncRatio is the latency of its fsync beside this neighbour over that in S.
	maxSyncRatio = 0.25
	// maxShareError is the maximum absolute error of A's share, from 70:30, if both
	// always have requests waiting.
	maxShareError = 0.03
	// minAlone is the throughput over that in P, without a neighbour.
	minAlone = 0.95
)

// target is a result of paper 2, with the measured values.
type target struct {
	// what says what is measured and where; wanted is the bound as text.
	what, wanted string
	met          func(value float64) bool
	text         func(value float64) string
	// volumes are the measurements that must keep the bound: a pool on ext4 (VA), one
	// on XFS (VX), volumes on devices (VD), and the latter two under control (VC, VDC).
	// limit is the value on a partition (P), the best that a volume can reach.
	volumes []measurement
	limit   *measurement
}

// boundArrangements are the arrangements that must keep the bounds.
var boundArrangements = []fixture.Arrangement{fixture.PlacedVolumes, fixture.PlacedOnXFS, fixture.ControlledOnXFS, fixture.OnDevices, fixture.ControlledOnDevices}

// measurement is a target's value in an arrangement; NaN if it is unknown, as after a division by zero.
type measurement struct {
	arrangement fixture.Arrangement
	value       float64
}

// targets returns the targets whose phases were measured, on the simulated disk with
// ordered data.
func (r Result) targets() []target {
	var all []target
	for _, load := range []string{pair.Fio, pair.MariaDB, pair.PostgreSQL} {
		p := r.part(pair.Case{Disk: pair.HDD, Load: load, DataMode: pair.Ordered})
		if p == nil {
			continue
		}
		beside := func(n fio.Neighbour) string { return loadTitles[load] + " beside " + string(n) + ": " }
		switch load {
		case pair.Fio:
			all = p.target(all, target{
				what: beside(fio.HighFsync) + "share of A off 70:30, points", wanted: fmt.Sprintf("at most %.0f", 100*maxShareError),
				met: func(v float64) bool { return math.Abs(v) <= maxShareError }, text: func(v float64) string { return fmt.Sprintf("%+.1f", 100*v) },
			}, fio.HighFsync, "", func(x, _ *pair.Phase) float64 { return x.ShareA - fixture.TargetA })
		case pair.MariaDB:
			for _, n := range []fio.Neighbour{fio.LowFsync, fio.HighFsync, pair.Limited} {
				all = p.target(all, atLeast(beside(n)+"throughput over S", minThroughputGain), n, fixture.SharedExt4, rateRatio)
				all = p.target(all, target{
					what: beside(n) + "time of a sync over S", wanted: fmt.Sprintf("at most %.2f", maxSyncRatio),
					met: func(v float64) bool { return v <= maxSyncRatio }, text: decimals,
				}, n, fixture.SharedExt4, syncRatio)
			}
		}
		all = p.target(all, atLeast(loadTitles[load]+" alone: throughput over P", minAlone), pair.Alone, fixture.OwnPartitions, rateRatio)
	}
	return all
}

func atLeast(what string, bound float64) target {
	return target{what: what, wanted: fmt.Sprintf("at least %.4g", bound), met: func(v float64) bool { return v >= bound }, text: decimals}
}

func rateRatio(x, base *pair.Phase) float64 { return statistics.Ratio(x.Rate, base.Rate) }

// syncRatio is NaN if no sync of A ended in one of the phases.
func syncRatio(x, base *pair.Phase) float64 {
	if x.SyncA.Calls == 0 {
		return math.NaN()
	}
	return statistics.Ratio(x.SyncA.MeanSeconds, base.SyncA.MeanSeconds)
}

// decimals returns a ratio as text; "–" if it is NaN.
func decimals(v float64) string {
	if math.IsNaN(v) {
		return "–"
	}
	return fmt.Sprintf("%.2f", v)
}

// target appends t with its measurements beside a neighbour, in volumes and on
// partitions. Values are relative to the arrangement base; "" means that they are
// absolute. A target without a measured volume is not appended.
func (p Part) target(all []target, t target, n fio.Neighbour, base fixture.Arrangement, measure func(x, base *pair.Phase) float64) []target {
	against := p.Phase(base, n)
	if base != "" && against == nil {
		return all
	}
	for _, a := range boundArrangements {
		if x := p.Phase(a, n); x != nil {
			t.volumes = append(t.volumes, measurement{a, measure(x, against)})
		}
	}
	if x := p.Phase(fixture.OwnPartitions, n); x != nil && base != fixture.OwnPartitions {
		t.limit = &measurement{fixture.OwnPartitions, measure(x, against)}
	}
	if len(t.volumes) == 0 {
		return all
	}
	return append(all, t)
}

// targetTable lists the targets and whether they are met.
func (r Result) targetTable() report.Table {
	t := report.Table{
		Title: "The paper's result, and this one",
		Note: "On the simulated disk, ordered. VA: pool on ext4. VX: pool on XFS. VD: each volume on a partition. VC and VDC: VX and VD under `daybook control`, measured with fio only, because a database that waits for each sync has no queue to divide. P: a partition for each container. " +
			"The time of a sync counts only syncs that end within the phase.",
		Columns: []string{"target", "wanted"},
	}
	for _, a := range boundArrangements {
		t.Columns = append(t.Columns, string(a), "met")
	}
	t.Columns = append(t.Columns, string(fixture.OwnPartitions))
	for _, x := range r.targets() {
		row := append([]string{x.what, x.wanted}, slices.Repeat([]string{"–"}, 2*len(boundArrangements)+1)...)
		for _, m := range x.volumes {
			at := 2 + 2*slices.Index(boundArrangements, m.arrangement)
			row[at], row[at+1] = x.text(m.value), "yes"
			if !x.met(m.value) {
				row[at+1] = "**no**"
			}
		}
		if x.limit != nil {
			row[len(row)-1] = x.text(x.limit.value)
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// Check returns an error for each missed target, or nil.
func (r Result) Check() error {
	var errs []error
	for _, x := range r.targets() {
		for _, m := range x.volumes {
			if !x.met(m.value) {
				errs = append(errs, fmt.Errorf("%s, %s: %s; want %s", x.what, m.arrangement, x.text(m.value), x.wanted))
			}
		}
	}
	return errors.Join(errs...)
}
