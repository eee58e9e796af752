package control

import (
	"errors"
	"fmt"
	"slices"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/cgroup"
)

// switchedTo returns the disk's scheduler, and reports whether it differs from that
// at the last look.
func (c *Controller) switchedTo() (scheduler string, switched bool) {
	if c.host.Tunables == nil || c.disk.Reopen == nil {
		return c.seenScheduler.name, false
	}
	scheduler, err := c.host.Tunables.Scheduler()
	if err != nil {
		return c.seenScheduler.name, false // the disk is going
	}
	return scheduler, scheduler != c.seenScheduler.name
}

// followSchedulers restarts the control of each disk whose scheduler changed:
// files, ranges and tunables belong to a scheduler. The error means that no disk is
// left.
func (r *runner) followSchedulers() error {
	for _, c := range slices.Clone(r.live) {
		scheduler, switched := c.switchedTo()
		// Under a scheduler without weights, control has stopped. A reload can
		// allow limits.
		if resumes := c.stopped && r.config.Actuator != ActuatorWeights; !switched && !resumes {
			continue
		}
		if err := r.follow(c, scheduler); err != nil {
			r.log.Error("control of the disk ends: cannot start it anew with another scheduler", "device", c.disk.Device, "scheduler", scheduler, "error", err)
			if err := r.drop(c, err); err != nil {
				return err
			}
		}
	}
	return nil
}

// follow restores what was changed under the scheduler before, and starts control
// again.
func (r *runner) follow(c *Controller, scheduler string) error {
	before := c.seenScheduler.name
	c.seenScheduler.name = scheduler
	disk, err := c.disk.Reopen(r.config.Actuator, c.foundWeights())
	if err != nil && !errors.Is(err, cgroup.ErrNoWeights) {
		return errors.Join(err, c.stop())
	}
	if stopErr := c.stop(); stopErr != nil {
		r.log.Error("cannot restore all settings that were made under the scheduler before", "device", c.disk.Device, "error", stopErr)
	}
	if err != nil {
		r.log.Warn(fmt.Sprintf("the scheduler was changed from %s to %s: weights have no effect until it is changed back; or enforce the shares by limits: actuator: auto", before, scheduler),
			"device", c.disk.Device, "error", err)
		if c.options.OnIdeals != nil {
			c.ideals.Control = account.Control{Actuator: account.ActuatorWeights, WeightsIgnored: true}
			c.options.OnIdeals(c.disk.Device, c.ideals)
		}
		return nil
	}
	if before == scheduler {
		r.log.Info("control starts again: the new configuration allows limits", "device", c.disk.Device, "scheduler", scheduler)
	} else {
		r.log.Warn(fmt.Sprintf("the scheduler was changed from %s to %s; control starts anew", before, scheduler), "device", c.disk.Device)
	}
	options := r.options
	options.Config = r.config
	next, err := start(options, disk)
	if err != nil {
		return err
	}
	next.seen = c.seen
	if err := next.begin(); err != nil {
		return errors.Join(err, next.stop())
	}
	r.live[slices.Index(r.live, c)] = next
	return nil
}

// foundWeights are the original weights of the cgroups.
func (c *Controller) foundWeights() map[string]uint64 {
	found := make(map[string]uint64, len(c.cgroups))
	for path, g := range c.cgroups {
		found[path] = g.Weight.Effective()
	}
	return found
}
