package volume

import (
	"context"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/kernel"
	"github.com/daybook-project/daybook/volume/placement"
)

// Placement says where a volume's jbd2 thread is kept while the volume is attached.
type Placement = placement.Mode

// The placements.
const (
	// PlaceParent: in a cgroup of its own below the parent cgroup, which has the
	// weight and also contains the container's cgroup.
	PlaceParent = placement.Parent
	// PlaceContainer: in the container's own cgroup. A [Keeper] moves it out when the
	// container's last process has ended.
	PlaceContainer = placement.Container
	// PlaceNone: in the root cgroup, where the kernel starts it.
	PlaceNone = placement.None
)

// WeightBefore has the original weight of a cgroup, to restore it.
type WeightBefore = placement.WeightBefore

// placed returns the journal thread of a volume with an attachment.
func (p *Pool) placed(record Record) placement.Thread { return p.placedOn(p.readHost, record) }

// placedOn is placed with the host that read returns for each question.
func (p *Pool) placedOn(read func() *host, record Record) placement.Thread {
	a := record.Attachment
	return placement.Thread{
		Name: record.Name, State: &a.Placed, Weight: record.Weight, ReadOnly: a.ReadOnly, WasPlaced: a.State == Attached,
		PID:        func() (int, error) { return read().thread(record) },
		Workers:    func() ([]int, error) { return read().workers(record) },
		Disk:       func() (blockdev.Disk, error) { return read().disk(record) },
		Neighbours: neighbours{p}, Uncorrected: p.uncorrected, Log: p.log,
	}
}

// placed returns the journal thread of a volume with an attachment.
func (v *held) placed() placement.Thread { return v.pool.placed(v.record) }

// place moves an attached volume's journal thread to its cgroup.
func (v *held) place(ctx context.Context) error { return v.placed().Place(ctx, v.run()) }

// neighbours are the pool's volumes.
type neighbours struct{ pool *Pool }

// Others are the volumes attached since the boot, sorted by name.
func (n neighbours) Others(name string) ([]placement.Neighbour, error) {
	attached, err := n.pool.attached()
	var others []placement.Neighbour
	for _, record := range attached {
		if a := record.Attachment; record.Name != name {
			others = append(others, placement.Neighbour{State: &a.Placed, Weight: record.Weight, Leaving: a.State == Detaching,
				Disk: func() (blockdev.Disk, error) { return n.pool.disk(record) }})
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

// attached returns the records with attachments of this boot, sorted
// by name. Damaged records are left out; operations on those volumes report them.
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
