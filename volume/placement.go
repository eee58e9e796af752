package volume

import (
	"context"
	"fmt"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/kernel"
	"github.com/daybook-project/daybook/volume/internal/journal"
	"github.com/daybook-project/daybook/volume/placement"
)

// Placement is where a volume's jbd2 thread is kept while it is attached.
type Placement = placement.Mode

// The placements.
const (
	// PlaceParent: in a cgroup of its own, below the parent cgroup that has
	// the weight and, beside it, the container's cgroup.
	PlaceParent = placement.Parent
	// PlaceContainer: in the container's own cgroup, which a [Keeper] has it
	// leave when the container's last process has ended.
	PlaceContainer = placement.Container
	// PlaceNone: where the kernel starts it, in the root cgroup.
	PlaceNone = placement.None
)

// WeightBefore is how to restore the weight that a cgroup had before.
type WeightBefore = placement.WeightBefore

// placed is the journal thread of a volume with an attachment.
func (p *Pool) placed(record Record) placement.Thread {
	a := record.Attachment
	return placement.Thread{
		Name: record.Name, State: &a.Placed, Weight: record.Weight, ReadOnly: a.ReadOnly, WasPlaced: a.State == Attached,
		PID:        func() (int, error) { return p.thread(record) },
		Disk:       func() (blockdev.Disk, error) { return p.disk(record) },
		Neighbours: neighbours{p}, Log: p.log,
	}
}

// place puts an attached volume's journal thread where it belongs, or again.
func (p *Pool) place(ctx context.Context, record Record) error {
	return p.placed(record).Place(ctx, p.run(&record))
}

// thread is the number of the volume's journal thread.
func (p *Pool) thread(record Record) (int, error) {
	devices, err := p.underlying(record)
	if err != nil {
		return 0, err
	}
	if len(devices) != 1 {
		return 0, fmt.Errorf("%w: its image has %d loop devices of Daybook's", ErrDetached, len(devices))
	}
	return journal.Of(record).Thread(devices[0].Dev)
}

// neighbours are the pool's volumes.
type neighbours struct{ pool *Pool }

// Others are the volumes attached since the start of the host, sorted by name.
func (n neighbours) Others(name string) ([]placement.Neighbour, error) {
	attached, err := n.pool.attached()
	var others []placement.Neighbour
	for _, record := range attached {
		if a := record.Attachment; record.Name != name {
			others = append(others, placement.Neighbour{State: &a.Placed, Weight: record.Weight, Leaving: a.State == Detaching})
		}
	}
	return others, err
}

// Lock locks the pool.
func (n neighbours) Lock(ctx context.Context) (release func(), err error) {
	all, err := n.pool.files.Lock(ctx)
	if err != nil {
		return nil, err
	}
	return all.Release, nil
}

// attached are the records with attachments of this start of the host, sorted
// by name. A damaged record is its own operations' matter.
func (p *Pool) attached() ([]Record, error) {
	boot, err := kernel.BootID()
	if err != nil {
		return nil, err
	}
	names, err := p.files.Names()
	if err != nil {
		return nil, err
	}
	var attached []Record
	for _, name := range names {
		record, err := p.files.Read(name)
		if err == nil && record.Attachment != nil && record.Attachment.BootID == boot {
			attached = append(attached, record)
		}
	}
	return attached, nil
}
