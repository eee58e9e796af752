package control

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/daybook-project/daybook/internal/control/law"
)

// sight is what one look finds.
type sight struct {
	// exists are the IDs of all cgroups, by path.
	exists map[string]uint64
	// found are the cgroups that are looked at for the first time.
	found map[string]*governed
}

// refresh lists the existing cgroups, plans again, saves new ones in the state, and
// releases those that are no longer controlled. It writes no weight except to
// release.
func (c *Controller) refresh() error {
	list, err := c.host.Cgroups.List()
	if err != nil {
		return fmt.Errorf("cannot list the cgroups: %w", err)
	}
	now := sight{make(map[string]uint64, len(list)), map[string]*governed{}}
	for _, found := range list {
		now.exists[found.Path] = found.ID
	}
	c.forgetVanished(now.exists)
	defer func() { c.existed = now.exists }()

	units := c.configuredUnits(now)
	branch := func(path string) (uint64, bool) { return c.branchWeight(path, now) }
	groups, notes := Plan(units, branch, c.host.Weights.Range())
	members, err := c.include(groups, now)
	if err != nil {
		return err
	}
	c.findUnitsAgain()
	c.groups = groups
	c.letGo(members)
	c.publish(planned(groups, units, len(c.config.Containers) > 0))
	c.report(notes)
	gone := func(parent string) bool {
		return !slices.ContainsFunc(groups, func(g Group) bool { return g.Parent == parent })
	}
	maps.DeleteFunc(c.laws, func(parent string, _ law.Law) bool { return gone(parent) })
	c.limits.forget(gone)
	return nil
}

// configuredUnits are the cgroups that the configuration names; those that have done I/O where it
// names none.
func (c *Controller) configuredUnits(now sight) (units []Unit) {
	for _, path := range slices.Sorted(maps.Keys(now.exists)) {
		weight, matched := c.config.Ideal(path, c.name(path))
		if !matched || len(c.config.Containers) == 0 && !c.seen.active[path] {
			continue
		}
		if g := c.look(path, now); g != nil {
			if g.chosen {
				weight = 0 // as found
			}
			units = append(units, Unit{Cgroup: path, Configured: weight, Found: g.Weight.Effective()})
		}
	}
	return units
}

// branchWeight is the ideal weight of a cgroup above units, and whether the configuration or
// another program chose it.
func (c *Controller) branchWeight(path string, now sight) (weight uint64, chosen bool) {
	if g := c.cgroups[path]; g != nil && g.chosen {
		return g.Weight.Effective(), true
	}
	weight, matched := c.config.Ideal(path, c.name(path))
	if matched && weight != 0 {
		return weight, true
	}
	if g := c.look(path, now); g != nil {
		return g.Weight.Effective(), false
	}
	return 0, false
}

// include saves the new members of the groups in the state, and returns all members. If they
// cannot be saved, they must not be changed; the next interval tries again. A member whose
// unit systemd does not say is left alone, and is as new to the next look.
func (c *Controller) include(groups []Group, now sight) (members map[string]bool, err error) {
	members = map[string]bool{}
	var taken []string
	for _, group := range groups {
		for _, member := range group.Members {
			path := member.Cgroup
			members[path] = true
			if c.cgroups[path] != nil {
				continue
			}
			g := c.look(path, now)
			if g == nil {
				continue
			}
			if _, err := c.findUnit(g); err == nil {
				c.cgroups[path] = g
				taken = append(taken, path)
			} else if !g.appeared.IsZero() {
				delete(now.exists, path)
			}
		}
	}
	if len(taken) == 0 {
		return members, nil
	}
	if err := c.save(); err != nil {
		for _, path := range taken {
			delete(c.cgroups, path)
		}
		return nil, err
	}
	return members, nil
}

// forgetVanished follows cgroups that were renamed. It drops cgroups that are gone, or that
// another one of the same path has replaced, and restores the weights of their units. Their part
// of the state stays on disk until the next save. It affects no other cgroup, because it has their
// IDs.
func (c *Controller) forgetVanished(exists map[string]uint64) {
	gone, renamed := c.takeMissing(exists)
	for _, g := range gone {
		c.log.Info("the cgroup is gone", "cgroup", g.Cgroup)
		c.outlive(g)
	}
	for path, g := range renamed {
		c.log.Info("the cgroup was renamed", "cgroup", path, "before", g.Cgroup)
		g.Cgroup, c.cgroups[path] = path, g
		if checkCgroup(path) != nil {
			c.release(g) // the state cannot have it, and could not be saved any more
		}
	}
	c.restoreOutlived()
	c.seen.forget(exists)
	c.logged.forget(exists)
}

// drop forgets a cgroup.
func (c *Controller) drop(g *governed) {
	delete(c.cgroups, g.Cgroup)
	c.forgetWritten(g)
}

func (c *Controller) forgetWritten(g *governed) {
	if c.written != nil {
		c.written.forget(g.ID)
	}
}

// look returns what is known of a cgroup, and reads its settings if it is new. It
// returns nil if the cgroup has vanished or was replaced since the list was made, has no
// weight, or still has the weight of its unit's last cgroup (see outlive).
func (c *Controller) look(path string, now sight) *governed {
	if checkCgroup(path) != nil {
		return nil
	}
	if g := c.cgroups[path]; g != nil {
		return g
	}
	if g := now.found[path]; g != nil {
		return g
	}
	if c.outlived[path] != nil {
		return nil
	}
	setting, err := c.host.Weights.Get(path)
	if err != nil {
		c.complain(path, "cannot control the cgroup", err)
		return nil
	}
	id := now.exists[path]
	g := &governed{CgroupState: CgroupState{Cgroup: path, ID: id, Weight: setting}, expected: setting}
	// To restore the weight of a unit can take a second: the cgroup can be another one than at
	// the start of this look.
	if g.checkID(c.host.Cgroups) != nil {
		return nil
	}
	if c.existed != nil && c.existed[path] != id {
		g.appeared = time.Now()
	}
	if c.host.Limits != nil && c.config.CorrectLimits {
		if g.limit, err = c.host.Limits.Get(path); err != nil {
			c.complain(path, "cannot read the limit of the cgroup", err)
		}
		g.intended = g.limit
		g.WriteBytesPerSecond = g.limit.Write
	}
	now.found[path] = g
	return g
}

// letGo restores the cgroups that the plan no longer contains.
func (c *Controller) letGo(members map[string]bool) {
	changed := false
	for path, g := range c.cgroups {
		if !members[path] && c.release(g) {
			changed = true
		}
	}
	if changed {
		if err := c.save(); err != nil {
			c.log.Error("the state keeps cgroups that are no longer controlled", "error", err)
		}
	}
}

// release restores a cgroup and forgets it. If it cannot be restored, it stays, and released is
// false.
func (c *Controller) release(g *governed) (released bool) {
	if !c.options.DryRun {
		last := g.lastWritten()
		_, err := g.restore(c.host, c.disk.Device, &last)
		if errors.Is(err, errBusy) {
			return false // the next step tries again
		}
		if err != nil && !errors.Is(err, ErrVanished) {
			c.complain(g.Cgroup, "cannot restore the cgroup; trying again", err)
			return false // and so it stays in the state
		}
	}
	c.log.Info("no longer controlled", "cgroup", g.Cgroup, "weight", g.Weight.Effective())
	c.drop(g)
	return true
}

func (c *Controller) name(path string) string {
	if c.options.Name != nil {
		return c.options.Name(path)
	}
	return c.seen.names[path]
}

// report logs the plan's notes when they change.
func (c *Controller) report(notes []string) {
	if !c.logged.notes.isNew(strings.Join(notes, "\n")) {
		return
	}
	for _, note := range notes {
		c.log.Info(note)
	}
}

// complain logs an error about a cgroup once, and never if the cgroup has vanished.
func (c *Controller) complain(path, message string, err error) {
	if errors.Is(err, ErrVanished) {
		c.log.Debug("the cgroup is gone", "cgroup", path)
		return
	}
	if c.logged.isNewOf(path, err) {
		c.log.Error(message, "cgroup", path, "error", err)
	}
}
