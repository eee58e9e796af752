package experiment

import (
	"context"
	"errors"
	"slices"
	"strconv"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/disksim"
)

// stageDisk is what a stage stands on.
type stageDisk struct {
	Device    blockdev.Disk
	simulated *disksim.Disk // nil: a given disk
	undo      []func() error
}

// setUpDisk makes or takes the disk, and brings about what shares it by
// weights. On error there may be something to close.
func setUpDisk(ctx context.Context, tree *cgroup.Tree, name string, o stageOptions) (*stageDisk, error) {
	if o.Given != nil {
		return o.Given.open(tree, o.Tunables)
	}
	if _, err := disksim.Recover(ctx, ""); err != nil {
		return nil, err
	}
	simulated, err := disksim.Create(ctx, disksim.Config{Name: name, SizeBytes: o.SizeBytes, Parameters: o.Parameters, OwnerBound: true})
	if err != nil {
		return nil, err
	}
	d := &stageDisk{Device: simulated.Device, simulated: simulated}
	if err := simulated.SetInstant(true); err != nil {
		return d, err
	}
	return d, d.holdTunables(o.Tunables)
}

// holdTunables sets those of BFQ, where that is the scheduler.
func (d *stageDisk) holdTunables(own map[string]uint64) error {
	scheduler, err := d.Device.Scheduler()
	if err != nil || scheduler.Current != blockdev.BFQ {
		return err
	}
	for name, value := range tunables(own) {
		if err := d.Device.SetTunable(name, strconv.FormatUint(value, 10)); err != nil {
			return err
		}
	}
	return nil
}

// SetInstant switches the delays of a simulated disk; a given disk is as fast
// as it is.
func (d *stageDisk) SetInstant(instant bool) error {
	if d.simulated == nil {
		return nil
	}
	return d.simulated.SetInstant(instant)
}

func (d *stageDisk) close(ctx context.Context) error {
	var errs []error
	for _, undo := range slices.Backward(d.undo) {
		errs = append(errs, undo())
	}
	if d.simulated != nil {
		errs = append(errs, d.simulated.Delete(ctx))
	}
	return errors.Join(errs...)
}
