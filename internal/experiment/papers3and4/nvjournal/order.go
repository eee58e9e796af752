package nvjournal

import (
	"fmt"
	"slices"

	"github.com/daybook-project/daybook/internal/disksim"
	"github.com/daybook-project/daybook/internal/experiment/report"
)

// Order is the order in which one round of checkpoint wrote blocks.
type Order struct {
	Partitions int    `json:"partitions"`
	DiskBlocks uint64 `json:"disk_blocks"`
	// Changed has the blocks in the order of their changes, Written in the order of
	// their writes. They are not kept; Seconds has the result.
	Changed []uint64 `json:"changed,omitempty"`
	Written []uint64 `json:"written,omitempty"`
	// Blocks is the number of blocks. Seconds has the times by order and queue depth.
	Blocks  int     `json:"blocks,omitempty"`
	Seconds []Armed `json:"seconds,omitempty"`
}

// Armed is the time of the writes on a disk with an arm.
type Armed struct {
	// Newest means that the block that changed last is written first, as in earlier
	// versions; otherwise the order is that of Written.
	Newest bool `json:"newest_first"`
	// Depth is the number of writes from which the disk chooses the nearest.
	Depth   int     `json:"depth"`
	Seconds float64 `json:"seconds"`
}

// checkpointDepth is NVJ_QUEUE_DEPTH.
const checkpointDepth = 32

// compute replaces the orders by their times in the disk model.
func (o *Order) compute() error {
	parameters, err := disksim.Preset("hdd")
	if err != nil {
		return err
	}
	const block = 4096
	disk := disksim.Model{Parameters: parameters, SizeBytes: o.DiskBlocks * block}
	newest := newestFirst(o.Changed, o.Partitions)
	if len(newest) == 0 || len(newest) != len(o.Written) {
		return fmt.Errorf("%d blocks were changed and %d written", len(newest), len(o.Written))
	}
	o.Blocks = len(newest)
	for _, depth := range []int{1, checkpointDepth} {
		for _, first := range []bool{true, false} {
			order := o.Written
			if first {
				order = newest
			}
			o.Seconds = append(o.Seconds, Armed{first, depth, armSeconds(disk, order, block, depth)})
		}
	}
	o.Changed, o.Written = nil, nil
	return nil
}

// newestFirst returns the blocks of each partition in turn, the last change first.
func newestFirst(changed []uint64, partitions int) (order []uint64) {
	for p := range uint64(max(1, partitions)) {
		for _, b := range slices.Backward(changed) {
			if b%uint64(max(1, partitions)) == p {
				order = append(order, b)
			}
		}
	}
	return order
}

// armSeconds returns the time of the writes on a disk with a queue of this depth, which
// always takes the write that it reaches first.
func armSeconds(disk disksim.Model, order []uint64, block uint64, depth int) (seconds float64) {
	var waiting []uint64
	head := uint64(0)
	for len(order) > 0 || len(waiting) > 0 {
		for len(waiting) < depth && len(order) > 0 {
			waiting, order = append(waiting, order[0]), order[1:]
		}
		nearest := 0
		least, after := disk.Service(head, disksim.Write, waiting[0]*block, block)
		for k, b := range waiting {
			if took, then := disk.Service(head, disksim.Write, b*block, block); took < least {
				nearest, least, after = k, took, then
			}
		}
		seconds += least.Seconds()
		head = after
		waiting = slices.Delete(waiting, nearest, nearest+1)
	}
	return seconds
}

func (n Result) orderTable() report.Table {
	t := report.Table{
		Title:   "Checkpoint to a disk with an arm",
		Columns: []string{"partitions", "the disk chooses among", "newest first, s", "by block number, s", "faster"},
		Note: "A round writes the blocks of a partition in ascending order. “Newest first” is the order of a list with the latest change in front. The order of the writes is measured; the time is computed by the disk model of the experiments (preset hdd: 0.5 to 8 ms for a seek, 40 MB/s), " +
			"for blocks on 4 GiB. If one thread writes eight partitions one after the other, the arm crosses the disk eight times. With a thread for each partition it crosses it once.",
	}
	for _, o := range n.Order {
		for k := 0; k+1 < len(o.Seconds); k += 2 {
			before, after := o.Seconds[k], o.Seconds[k+1]
			t.Rows = append(t.Rows, []string{fmt.Sprintf("%d, %d blocks", o.Partitions, o.Blocks), fmt.Sprint(after.Depth),
				fmt.Sprintf("%.2f", before.Seconds), fmt.Sprintf("%.2f", after.Seconds), fmt.Sprintf("%.1f×", before.Seconds/max(after.Seconds, 1e-9))})
		}
	}
	return t
}
