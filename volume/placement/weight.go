package placement

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/volume/operation"
)

var errNoDisk = errors.New("it lies on no single disk")

// bottom is the disk that has the weights.
func bottom(find func() (blockdev.Disk, error)) (disk blockdev.Disk, err error) {
	if disk, err = find(); err == nil {
		disk, err = disk.Bottom()
	}
	return disk, err
}

// weights returns the weights of the underlying disk.
func (t Thread) weights(tree *cgroup.Tree) (weights *cgroup.Weights, disk blockdev.Disk, scheduler string, err error) {
	if disk, err = bottom(t.Disk); err != nil {
		return nil, disk, "", fmt.Errorf("%w: %w", errNoDisk, err)
	}
	offered, err := disk.Scheduler()
	if err != nil {
		return nil, disk, "", err
	}
	weights, err = tree.Weights(disk.Dev, offered.Current)
	return weights, disk, offered.Current, err
}

// within limits a weight to the range of a file of weights.
func within(weight uint64, weights *cgroup.Weights) uint64 {
	return min(max(weight, weights.Min()), weights.Max())
}

// setWeights sets the weights of the parent cgroup and the journal's.
func (t Thread) setWeights(ctx context.Context, run operation.Run, tree *cgroup.Tree) error {
	if t.State.Placement != Parent {
		return nil
	}
	weights, disk, scheduler, err := t.weights(tree)
	switch {
	case err != nil && t.Weight == 0:
		return nil // none is configured
	case errors.Is(err, cgroup.ErrNoWeights), errors.Is(err, errNoDisk):
		t.Log.Warn("the weight is not in force", "volume", t.Name, "weight", t.Weight, "why", err)
		return nil
	case err != nil:
		return err
	}
	if t.Weight != 0 {
		if err := t.setWeight(ctx, run, tree, weights, disk, scheduler); err != nil {
			return err
		}
	}
	if scheduler == blockdev.BFQ {
		return t.raiseJournal(weights, disk)
	}
	return nil
}

// setWeight sets the weight of the parent cgroup, and records the original one first.
func (t Thread) setWeight(ctx context.Context, run operation.Run, tree *cgroup.Tree, weights *cgroup.Weights, disk blockdev.Disk, scheduler string) error {
	s := t.State
	// All that share the cgroup record the weight before the first of them.
	release, err := t.Neighbours.Lock(context.WithoutCancel(ctx))
	if err != nil {
		return err
	}
	defer release()
	weight := within(t.Weight, weights)
	now, plain, err := t.readWeight(tree, weights, disk)
	if errors.Is(err, ErrUncertain) {
		t.Log.Warn("taking the weight in force for the original one", "volume", t.Name, "cgroup", s.Cgroup, "why", err)
	} else if err != nil {
		return err
	}
	wasSet := slices.Contains(s.MadeCgroups, s.Cgroup) || s.WeightBefore != nil
	return run.Do(ctx, operation.Step{
		Name: "weight",
		Intent: func() (bool, error) {
			if wasSet {
				return false, nil
			}
			before := &WeightBefore{File: weights.File(), Disk: disk.Dev.String(), Scheduler: scheduler,
				Default: plain.files.Default, Device: plain.files.Device, Unit: plain.unit}
			sharer, err := t.sharer()
			if err != nil || sharer == nil && now.files.Effective() == weight && plain.files.Effective() == weight {
				return false, err
			}
			if sharer != nil && sharer.State.WeightBefore != nil {
				before = sharer.State.WeightBefore
			}
			s.WeightBefore = before
			return true, nil
		},
		Do: func(context.Context) error {
			// A correction of the weight that was set stays.
			if now.files.Effective() == weight || wasSet && plain.files.Effective() == weight {
				if plain.files.Effective() != weight {
					// The other process cannot distinguish it from its correction.
					t.Log.Warn("the weight is not in force: the correction of another weight has the same value now; set it again later",
						"volume", t.Name, "cgroup", s.Cgroup, "weight", weight, "corrected", plain.files.Effective())
				}
				return nil
			}
			return s.putWeight(weights, disk, s.Cgroup, weight)
		},
	})
}

// sharer is another thread that has set the weight of the same cgroup on the same disk; nil
// if there is none. The neighbours are locked.
func (t Thread) sharer() (*Neighbour, error) {
	others, err := t.Neighbours.Others(t.Name)
	for _, other := range slices.Backward(others) {
		s := other.State
		if other.Weight != 0 && !other.Leaving && s.Placement == Parent && s.Cgroup == t.State.Cgroup &&
			(s.WeightBefore != nil || slices.Contains(s.MadeCgroups, s.Cgroup)) && t.sameDisk(other) {
			return &other, err
		}
	}
	return nil, err
}

// sameDisk says whether two threads have their weights on one disk, or neither has one.
func (t Thread) sameDisk(other Neighbour) bool {
	ours, err := bottom(t.Disk)
	theirs, otherErr := bottom(other.Disk)
	if err != nil || otherErr != nil {
		return err != nil && otherErr != nil
	}
	return ours.Dev == theirs.Dev
}

// raiseJournal gives the journal's cgroup the greatest weight among the children
// of its parent, for BFQ. The parent's weight still determines the container's share of
// the disk. But a sync waits first for the container's own write, and then for the commit
// of another thread, jbd2, while BFQ keeps the disk idle for the next request of the
// former (slice_idle). A request preempts that if the weight of its cgroup is greater than
// that of the cgroup in service (block/bfq-iosched.c, bfq_bfqq_higher_class_or_weight,
// Linux 6.1): with this weight, a commit does. io.cost does not idle, and would reserve
// part of the container's share for a journal of such weight.
func (t Thread) raiseJournal(weights *cgroup.Weights, disk blockdev.Disk) error {
	journal := t.State.Journal
	now, err := weights.Get(journal)
	if errors.Is(err, fs.ErrNotExist) && !errors.Is(err, cgroup.ErrVanished) {
		// On v2 a parent that has processes enables no controller for its children: the
		// kernel charges them to the parent.
		return nil
	}
	if err != nil || now.Effective() == weights.Max() {
		return err
	}
	return t.State.putWeight(weights, disk, journal, weights.Max())
}
