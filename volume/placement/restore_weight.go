package placement

import (
	"context"
	"errors"
	"io/fs"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/cgroup"
)

// readWeight returns the weights of the parent cgroup: those in force, and those without the
// corrections of another process. With an error, such as ErrUncertain, both are those in force.
func (t Thread) readWeight(tree *cgroup.Tree, weights *cgroup.Weights, disk blockdev.Disk) (now, plain shown, err error) {
	s := t.State
	return t.Uncorrected.apart(tree, disk, weights.File(), s.Cgroup, func() (now shown, err error) {
		if now.unit, err = s.unitWeight(weights, disk); err != nil && !errors.Is(err, cgroup.ErrVanished) {
			return now, err
		}
		now.files, err = weights.Get(s.Cgroup)
		return now, err
	})
}

// resetWeight sets the parent cgroup to the weight of another thread that shares it,
// or else to the original one. A weight that another program set meanwhile stays.
func (t Thread) resetWeight(ctx context.Context, tree *cgroup.Tree) error {
	if t.Weight == 0 || t.State.Placement != Parent {
		return nil
	}
	release, err := t.Neighbours.Lock(context.WithoutCancel(ctx))
	if err != nil {
		return err
	}
	defer release()
	sharer, err := t.sharer()
	if err != nil {
		return err
	}
	if sharer == nil {
		return t.restoreWeight(tree)
	}
	weights, disk, _, err := t.weights(tree)
	if errors.Is(err, cgroup.ErrNoWeights) || errors.Is(err, errNoDisk) {
		return nil
	}
	if err != nil {
		return err
	}
	weight := within(sharer.Weight, weights)
	_, plain, err := t.readWeight(tree, weights, disk)
	if err == nil && (plain.files.Effective() == weight || plain.files.Device != 0 && plain.files.Device != within(t.Weight, weights)) {
		return nil // the sharer's already, or another program's
	}
	if err == nil || errors.Is(err, ErrUncertain) {
		err = t.State.putWeight(weights, disk, t.State.Cgroup, weight)
	}
	if errors.Is(err, cgroup.ErrVanished) {
		return nil
	}
	return err
}

// restoreWeight restores the original weights of the parent cgroup and of its slice. If the cgroup
// is gone, or its weight file with the scheduler, there is nothing to restore.
func (t Thread) restoreWeight(tree *cgroup.Tree) error {
	before := t.State.WeightBefore
	if before == nil {
		return nil
	}
	dev, err := blockdev.ParseDev(before.Disk)
	if err != nil {
		return err
	}
	weights, err := tree.WeightsIn(before.File, dev, before.Scheduler)
	if err != nil {
		return err
	}
	disk, err := blockdev.Host.LookupDev(dev)
	switch {
	case errors.Is(err, blockdev.ErrGone):
		disk.Dev, t.Uncorrected = dev, nil // nothing corrects weights on it
	case err != nil:
		return err
	}
	ours := within(t.Weight, weights)
	now, plain, err := t.readWeight(tree, weights, disk)
	switch {
	case errors.Is(err, cgroup.ErrVanished):
		return nil
	case errors.Is(err, fs.ErrNotExist):
		_, err := t.State.restoreUnitWeight(disk, now.unit, ours)
		return unlessGone(err)
	case errors.Is(err, ErrUncertain):
		t.Log.Warn("restoring the weight that the cgroup had before, whatever its weight is now", "volume", t.Name, "cgroup", t.State.Cgroup, "why", err)
		plain = shown{cgroup.Setting{Default: before.Default, Device: ours}, onDisk(disk, before.File).Of(ours)}
	case err != nil:
		return err
	}
	next, kept := before.restored(plain.files, ours)
	if kept {
		t.Log.Info("another program changed the weight; it stays", "volume", t.Name, "cgroup", t.State.Cgroup, "weight", next.Effective())
	}
	byUnit, err := t.State.restoreUnitWeight(disk, plain.unit, ours)
	if err != nil && !errors.Is(err, cgroup.ErrVanished) {
		return err
	}
	if next == plain.files && (kept || now != plain) {
		if !byUnit {
			return nil // nothing of ours is in force
		}
		next = now.files // systemd may have changed it with the unit's
	}
	return unlessGone(weights.Restore(t.State.Cgroup, next))
}

// unlessGone returns nil for the error of a cgroup or of a weight file that is gone.
func unlessGone(err error) error {
	if errors.Is(err, cgroup.ErrVanished) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// restored returns the setting to restore for a cgroup that has the setting now, apart from
// corrections. Of that, ours is the weight that was set for the thread; what another program has
// set since is kept. A missing weight on the disk is not another program's: the kernel removes it
// with the disk's scheduler.
func (b WeightBefore) restored(now cgroup.Setting, ours uint64) (next cgroup.Setting, kept bool) {
	next = cgroup.Setting{Default: b.Default, Device: b.Device}
	before := next
	oursIsDefault := now.Device == 0 && now.Default == ours // kernels before 5.4
	if now.Default != b.Default && !oursIsDefault {
		next.Default = now.Default
	}
	if now.Device != 0 && now.Device != ours {
		next.Device = now.Device
	}
	return next, next != before
}
