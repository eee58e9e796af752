package nvjournal

import (
	"fmt"
	"strconv"

	"github.com/daybook-project/daybook/internal/experiment/report"
	"github.com/daybook-project/daybook/internal/experiment/statistics"
)

// Rings is what a number of rings costs, with a placement by processor. The records are
// those of the same operations, in all rings in turn, whatever their number.
type Rings struct {
	Partitions  int    `json:"partitions"`
	RegionBytes uint64 `json:"region_bytes"`
	// RingBytes is the size of one ring, CommitRingBytes that of the commit ring.
	RingBytes       uint64 `json:"ring_bytes"`
	CommitRingBytes uint64 `json:"commit_ring_bytes"`
	Commits         int    `json:"commits"`
	// OpenBytes is the memory of an open, empty journal, FullBytes that with the blocks of
	// the records.
	OpenBytes    uint64 `json:"open_bytes"`
	FullBytes    uint64 `json:"full_bytes"`
	Records      uint64 `json:"records"`
	Blocks       uint64 `json:"blocks"`
	JournalBytes uint64 `json:"journal_bytes"`
	// ReadBytes is what recovery reads of the region, RecoveryBytes its memory at most, one
	// partition after the other.
	ReadBytes     uint64 `json:"read_bytes"`
	RecoveryBytes uint64 `json:"recovery_bytes"`
	// Seconds of recovery: of all processors together, and those that pass.
	InTurn     statistics.Spread `json:"processor_seconds_in_turn"`
	InParallel statistics.Spread `json:"processor_seconds_in_parallel"`
	Elapsed    statistics.Spread `json:"elapsed_seconds_in_parallel"`
}

func (n Result) ringsTable() report.Table {
	t := report.Table{
		Title: "What rings cost",
		Columns: []string{"region MiB, rings", "MiB of a ring", "commit ring, % of the region", "memory when open, MiB", "with the blocks, MiB", "records", "blocks",
			"bytes read for each of the records", "memory of recovery, MiB", "recovery in turn, s", "in parallel, s of processors", "in parallel, s"},
		Note: fmt.Sprintf("Placed by processor; the records of the same operations are in all rings in turn, until one ring of 64 is nearly half full. Memory is what the library allocates, all of it resident. The commit ring has as many slots as nvj format makes. "+
			"Recovery: medians; the disk takes no time; in parallel with a thread for each processor (%d). Bytes and memory of recovery are counted in turn.", n.Host.CPUs),
	}
	mebibytes := func(bytes uint64) string { return fmt.Sprintf("%.1f", float64(bytes)/(1<<20)) }
	for _, r := range n.Rings {
		t.Rows = append(t.Rows, []string{fmt.Sprintf("%d, %d", (r.RegionBytes+1<<20-1)>>20, r.Partitions), mebibytes(r.RingBytes),
			fmt.Sprintf("%.1f", 100*float64(r.CommitRingBytes)/float64(r.RegionBytes)), mebibytes(r.OpenBytes), mebibytes(r.FullBytes),
			strconv.FormatUint(r.Records, 10), strconv.FormatUint(r.Blocks, 10), fmt.Sprintf("%.2f", float64(r.ReadBytes)/float64(r.JournalBytes)),
			mebibytes(r.RecoveryBytes), fmt.Sprintf("%.3f", r.InTurn.Median), fmt.Sprintf("%.3f", r.InParallel.Median), fmt.Sprintf("%.3f", r.Elapsed.Median)})
	}
	return t
}
