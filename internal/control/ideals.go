package control

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"

	"github.com/daybook-project/daybook/internal/account"
)

// Ideals are the ideal weights on one disk: from the configuration, or chosen by
// another program, or as found. The weights in force are corrected ones.
type Ideals struct {
	// Configured means that the configuration names the cgroups whose shares are
	// enforced; they are in Units. Otherwise all shares are enforced, by the
	// weights found.
	Configured bool
	// Weights are the ideal weights by cgroup, including those above Units. Only
	// the ratios of siblings matter.
	Weights map[string]uint64
	Units   map[string]bool
	// Control is the means that enforces the shares.
	Control account.Control
}

// equal compares two Ideals.
func (i Ideals) equal(other Ideals) bool {
	return i.Control == other.Control && i.Configured == other.Configured && maps.Equal(i.Weights, other.Weights) && maps.Equal(i.Units, other.Units)
}

// planned are the ideals of a plan.
func planned(groups []Group, units []Unit, configured bool) Ideals {
	ideals := Ideals{Configured: configured, Weights: map[string]uint64{}, Units: map[string]bool{}}
	for _, group := range groups {
		for _, member := range group.Members {
			ideals.Weights[member.Cgroup] = max(1, member.Ideal/max(1, group.Scale))
		}
	}
	for _, unit := range units {
		ideals.Units[unit.Cgroup] = true
		if ideals.Weights[unit.Cgroup] == 0 {
			ideals.Weights[unit.Cgroup] = max(1, unit.ideal())
		}
	}
	return ideals
}

// publish records the ideals for other programs and reports them, if they changed.
// A failure to record them is logged, and the next step tries again.
func (c *Controller) publish(ideals Ideals) {
	ideals.Control = c.scheduler.control
	known := ideals.equal(c.ideals)
	if known && !c.unpublished {
		return
	}
	c.ideals = ideals
	if !known && c.options.OnIdeals != nil {
		c.options.OnIdeals(c.disk.Device, ideals)
	}
	err := c.save()
	if err != nil && !c.unpublished {
		c.log.Error("daybook top will show other targets until the state can be saved", "error", err)
	}
	c.unpublished = err != nil
}

// LoadIdeals reads the ideals that the controller of a disk recorded in its state.
// If there is no state of this boot, the error wraps fs.ErrNotExist. id returns the
// ID of an existing cgroup; other cgroups are left out.
func LoadIdeals(stateDir, device string, id func(cgroup string) (uint64, error)) (Ideals, error) {
	state, err := LoadState(stateDir, device)
	if err != nil {
		return Ideals{}, err
	}
	if state.BootID != bootID() {
		return Ideals{}, fmt.Errorf("the state of %s is of an earlier boot: %w", device, fs.ErrNotExist)
	}
	ideals := Ideals{Configured: state.Configured, Weights: map[string]uint64{}, Units: map[string]bool{},
		Control: account.Control{Actuator: state.Actuator, WeightsIgnored: state.WeightsIgnored}}
	if ideals.Control.Actuator == "" {
		ideals.Control.Actuator = account.ActuatorWeights // of an earlier version
	}
	for _, c := range state.Cgroups {
		now, err := id(c.Cgroup)
		if errors.Is(err, ErrVanished) || err == nil && now != c.ID || c.IdealWeight == 0 {
			continue
		}
		if err != nil {
			return Ideals{}, err
		}
		ideals.Weights[c.Cgroup] = c.IdealWeight
		if c.Unit {
			ideals.Units[c.Cgroup] = true
		}
	}
	return ideals, nil
}
