package experiment

import (
	"errors"
	"fmt"
)

// ext4nvjTargets are what ext4nvj is held against, on each kind of disk.
var ext4nvjTargets = []struct {
	load, over string
	bound      float64
}{
	{Ext4NVJVarmail, StockDisk, VarmailOverStock},
	{Ext4NVJVarmail, NVJFine, VarmailOverFine},
	{Ext4NVJCreate, StockDisk, CreateOverStock},
	{Ext4NVJCreate, NVJFine, CreateOverFine},
}

// Verdicts hold the result against the targets, with each load and disk that was measured.
func (n Ext4NVJ) Verdicts() (all []Verdict) {
	for _, disk := range n.disks() {
		for _, t := range ext4nvjTargets {
			if len(n.threads(disk, t.load)) == 0 {
				continue
			}
			v := Verdict{
				Target: fmt.Sprintf("%s over %s, %d threads, disk %s", t.load, ext4nvjTitle(t.over), ext4nvjTargetThreads, disk),
				Wanted: fmt.Sprintf("at least %g×", t.bound), Measured: "not measured", Bound: t.bound,
			}
			if ratio, which := n.over(disk, t.load, t.over, ext4nvjTargetThreads); which != "" {
				v.Value, v.Measured, v.Met = ratio, fmt.Sprintf("%.2f× (%s)", ratio, ext4nvjTitle(which)), ratio >= t.bound
			}
			all = append(all, v)
		}
	}
	return all
}

// over is the rate of ext4nvj over that of another, as it is best there, and which
// that is; "" if one of them was not measured.
func (n Ext4NVJ) over(disk, load, other string, threads int) (ratio float64, which string) {
	base := n.run(disk, load, other, threads)
	if base == nil {
		return 0, ""
	}
	for _, arrangement := range []string{NVJOne, NVJEight, NVJSmall} {
		ours := n.run(disk, load, arrangement, threads)
		if ours == nil {
			continue
		}
		if r := ours.OperationsPerSecond.Median / base.OperationsPerSecond.Median; r > ratio {
			ratio, which = r, arrangement
		}
	}
	return ratio, which
}

// Check says which targets are missed; nil: none.
func (n Ext4NVJ) Check() error {
	if len(n.Runs) == 0 {
		return errors.New("nothing was measured")
	}
	return checkVerdicts(n.Verdicts())
}

// ext4nvjTitle is an arrangement for people.
func ext4nvjTitle(arrangement string) string {
	return map[string]string{
		StockDisk: "ext4", StockPmem: "ext4, journal on pmem", NVJBlocks: "blocks, one lock", NVJFine: "lines, one lock",
		NVJOne: "ext4nvj, P = 1", NVJEight: "ext4nvj, P = 8", NVJSmall: "ext4nvj, small files' data",
	}[arrangement]
}

// The kinds that were measured, in their order.
func (n Ext4NVJ) disks() []string {
	return n.measured(Ext4NVJDiskNames(), func(r Ext4NVJRun) string { return r.Disk })
}

func (n Ext4NVJ) loads() []string {
	return n.measured(Ext4NVJLoads(), func(r Ext4NVJRun) string { return r.Load })
}

func (n Ext4NVJ) arrangements() []string {
	return n.measured(Ext4NVJArrangements(), func(r Ext4NVJRun) string { return r.Arrangement })
}

func (n Ext4NVJ) measured(names []string, of func(Ext4NVJRun) string) (all []string) {
	for _, name := range names {
		for _, r := range n.Runs {
			if of(r) == name {
				all = append(all, name)
				break
			}
		}
	}
	return all
}
