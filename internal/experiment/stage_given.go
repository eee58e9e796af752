package experiment

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/cgroup"
)

// What shares a given disk by weights.
const (
	BFQ = "BFQ"
	// IOCost is io.cost with a model of the disk.
	IOCost = "io.cost"
	// IOCostAuto is io.cost as the kernel sets it up when it is enabled.
	IOCostAuto = "io.cost as enabled"
)

// GivenDisk is a block device of the host for an experiment to stand on. What
// is on it is lost. Its scheduler, and what is set for io.cost, are as they were
// afterwards.
type GivenDisk struct {
	// Node is its device node.
	Node string `json:"node"`
	// Divider is BFQ, IOCost or IOCostAuto.
	Divider string `json:"divider"`
	// BytesPerSecond is what the disk can do, for io.cost's model; reading
	// and writing alike.
	BytesPerSecond uint64 `json:"bytes_per_second"`
	// ReadFileBytes is the size of the file that each container reads, and
	// ReadBytes that of one read; 0: as on a simulated disk.
	ReadFileBytes int64 `json:"read_file_bytes"`
	ReadBytes     int   `json:"read_bytes"`
	// JournalBytes is the size of the journal; 0: as on a simulated disk.
	JournalBytes uint64 `json:"journal_bytes"`
}

// givenBytesPerInode leaves room for the directories of some phases.
const givenBytesPerInode = 32 << 10

// open brings about what shares the disk by weights.
func (g GivenDisk) open(tree *cgroup.Tree, own map[string]uint64) (*stageDisk, error) {
	device, err := blockdev.Lookup(g.Node)
	if err != nil {
		return nil, err
	}
	if err := device.CheckUnused(); err != nil {
		return nil, err
	}
	d := &stageDisk{Device: device}
	switch g.Divider {
	case BFQ:
		if err := d.use(blockdev.BFQ); err != nil {
			return d, err
		}
		return d, d.holdTunables(own)
	case IOCost, IOCostAuto:
		// The scheduler of a fast disk: io.cost has decided before it.
		if err := d.use(blockdev.NoScheduler); err != nil {
			return d, err
		}
		model, qos := g.cost()
		return d, d.enableCost(tree, model, qos)
	default:
		return d, fmt.Errorf("%q shares no disk by weights: want %s, %s or %s", g.Divider, BFQ, IOCost, IOCostAuto)
	}
}

// use gives the disk a new scheduler until the end.
func (d *stageDisk) use(scheduler string) error {
	before, err := d.Device.Scheduler()
	if err != nil {
		return err
	}
	if err := d.Device.RenewScheduler(scheduler); err != nil {
		return err
	}
	d.undo = append(d.undo, func() error { return d.Device.RenewScheduler(before.Current) })
	return nil
}

// cost is what is written to io.cost's files. The model is of a disk that moves
// bytes at one rate, whatever their order, because the seeks of a disk with a
// limit on its bandwidth cost nothing. With min and max alike, io.cost goes by
// the model and does not look for what the disk can do besides.
func (g GivenDisk) cost() (model, qos string) {
	if g.Divider == IOCostAuto {
		return "ctrl=auto", "enable=1 ctrl=auto"
	}
	pages := g.BytesPerSecond / 4096
	return fmt.Sprintf("ctrl=user model=linear rbps=%d rseqiops=%d rrandiops=%d wbps=%d wseqiops=%d wrandiops=%d",
			g.BytesPerSecond, pages, pages, g.BytesPerSecond, pages, pages),
		"enable=1 ctrl=user rpct=0 rlat=0 wpct=0 wlat=0 min=100 max=100"
}

func (d *stageDisk) enableCost(tree *cgroup.Tree, model, qos string) error {
	write := func(file, words string) error {
		file = filepath.Join(tree.Root(), file)
		if err := os.WriteFile(file, fmt.Appendf(nil, "%s %s\n", d.Device.Dev, words), 0); err != nil {
			return fmt.Errorf("cannot set up io.cost for %s: %w", d.Device.Name, err)
		}
		return nil
	}
	d.undo = append(d.undo, func() error { return write("io.cost.qos", "enable=0") })
	if err := write("io.cost.model", model); err != nil {
		return err
	}
	return write("io.cost.qos", qos)
}
