package filesystems

import (
	"errors"
	"fmt"

	"github.com/daybook-project/daybook/internal/experiment/statistics"
	"github.com/daybook-project/daybook/internal/experiment/verdict"
)

// Verdicts compares the result with the targets, for each measured load and disk.
func (n Result) Verdicts() (all []verdict.Verdict) {
	if n.Native != nil || n.KVM {
		return n.nativeVerdicts()
	}
	for _, disk := range n.disks() {
		for _, t := range n.family().targets {
			if len(n.threads(disk, t.load)) == 0 {
				continue
			}
			v := verdict.Verdict{
				Target: fmt.Sprintf("%s over %s, %d threads, disk %s", t.load, titleOf(t.over), targetThreads, disk),
				Wanted: fmt.Sprintf("at least %g×", t.bound), Measured: "not measured", Bound: t.bound,
			}
			n.over(disk, t.load, t.over, targetThreads).judge(&v)
			all = append(all, v)
		}
	}
	return all
}

// gain is the rate of the module's best arrangement over that of another file system.
type gain struct {
	// ratio is the median of the rounds, ratios has each round; nil if they are not known.
	ratio  float64
	ratios []float64
	// which is the arrangement; "" if one of the two was not measured.
	which string
}

// judge enters the gain in a verdict that wants at least its bound.
func (g gain) judge(v *verdict.Verdict) {
	if g.which == "" {
		return
	}
	v.Value, v.Met = g.ratio, g.ratio >= v.Bound
	scatter := ""
	if len(g.ratios) > 1 {
		low, high := statistics.Bootstrap(g.ratios)
		scatter = fmt.Sprintf("; %.2f to %.2f", low, high)
	}
	v.Measured = fmt.Sprintf("%.2f× (%s%s)", g.ratio, titleOf(g.which), scatter)
}

// over compares the module with another file system.
func (n Result) over(disk, load, other string, threads int) (best gain) {
	base := n.run(disk, load, other, threads)
	if base == nil {
		return gain{}
	}
	for _, arrangement := range n.family().ours {
		ours := n.run(disk, load, arrangement, threads)
		if ours == nil {
			continue
		}
		if ratio, ratios := ours.over(*base); ratio > best.ratio {
			best = gain{ratio, ratios, arrangement}
		}
	}
	return best
}

// Check returns an error for each missed target, or nil.
func (n Result) Check() error {
	if len(n.Runs) == 0 {
		return errors.New("nothing was measured")
	}
	return verdict.Check(n.Verdicts())
}

// titleOf returns the title of an arrangement.
func titleOf(arrangement string) string {
	return map[string]string{
		StockDisk: "ext4", StockPmem: "ext4, journal on pmem", NVJBlocks: "blocks, one lock", NVJFine: "lines, one lock",
		NVJOne: "ext4nvj, P = 1", NVJEight: "ext4nvj, P = 8", NVJSmall: "ext4nvj, small files' data",
		JFSDisk: "JFS", JFSPmem: "JFS, log on pmem", JFSBlocks: "whole pages, one lock", JFSOne: "jfsnvj, P = 1", JFSEight: "jfsnvj, P = 8",
	}[arrangement]
}

// disks lists the measured kinds of disks in their order.
func (n Result) disks() []string {
	return n.measured(DiskNames(), func(r Run) string { return r.Disk })
}

func (n Result) loads() []string {
	return n.measured(Loads(), func(r Run) string { return r.Load })
}

func (n Result) arrangements() []string {
	return n.measured(allArrangements(), func(r Run) string { return r.Arrangement })
}

func (n Result) measured(names []string, of func(Run) string) (all []string) {
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
