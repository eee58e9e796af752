package control

import (
	"errors"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"
)

// recheckDelay is the time between two reads of a changed weight. While a BFQ
// weight on one disk is restored, the weights on the other disks are missing for a
// moment (see cgroup.Weights.Restore).
const recheckDelay = 20 * time.Millisecond

// youthTime is how long after a cgroup's appearance a weight belongs to its
// creation: a runtime makes the cgroup first and writes its weight then.
const youthTime = 10 * time.Second

// lookForChanges compares the weight of every controlled cgroup with what was
// written last. A weight that another program changed is not overwritten: it
// becomes the original and the ideal.
func (c *Controller) lookForChanges() {
	inode := c.host.schedulerInode()
	changed, ok := c.findChanges()
	if !ok {
		return // the next step looks again; until then no changed weight is written
	}
	again := c.chosenAgain(changed)
	c.acceptChanges(changed, again)
	if again {
		c.holdTunablesOrLog() // the choice reset them
	}
	// That of before the look: the scheduler can be chosen again during it, which removes weights
	// that the look has found in place.
	c.seenScheduler.look(inode)
}

// findChanges returns the controlled cgroups whose weight is not what was written last, with it. ok
// is false if a unit's weight is being applied.
func (c *Controller) findChanges() (changed map[*governed]Setting, ok bool) {
	changed = map[*governed]Setting{}
	for _, path := range slices.Sorted(maps.Keys(c.cgroups)) {
		g := c.cgroups[path]
		g.changed = false
		now, err := c.host.Weights.Get(path)
		if err != nil {
			g.fileGone = errors.Is(err, fs.ErrNotExist)
			c.complain(path, "cannot read the weight of the cgroup", err)
			continue
		}
		if g.fileGone {
			// The parent enables io again (cgroup v2), and no program chose the weight.
			g.fileGone, g.expected, g.ideal = false, now, 0
			c.logged.ended(path)
			c.log.Info("the cgroup has a weight file again; writing the weight again", "cgroup", path)
			continue
		}
		if now != g.expected {
			changed[g] = now
		}
	}
	if len(changed) == 0 {
		return nil, true
	}
	time.Sleep(recheckDelay)
	for g := range changed {
		if g.checkID(c.host.Cgroups) != nil {
			delete(changed, g) // it is gone, or another cgroup: refresh finds that
			continue
		}
		if c.awaitSettled(g) != nil {
			return nil, false
		}
		now, err := c.host.Weights.Get(g.Cgroup)
		if err != nil || now == g.expected {
			delete(changed, g)
			continue
		}
		changed[g] = now
	}
	return changed, true
}

// acceptChanges writes the weights again that no program chose, and adopts the others. again: the
// disk's scheduler was chosen again. That removes the weights on this disk from all cgroups at once.
func (c *Controller) acceptChanges(changed map[*governed]Setting, again bool) {
	if lost := lostOf(changed); again && len(lost) > 0 {
		c.log.Warn("the weights on this disk were removed, as by a change of its scheduler; writing them again", "device", c.disk.Device)
		for g, now := range lost {
			g.expected, g.ideal = now, 0
			delete(changed, g)
		}
	}
	for g, now := range changed {
		if g.lostWithManager(now) {
			c.log.Info("a user's service manager removed the weight on this disk; writing it again", "cgroup", g.Cgroup, "weight", g.expected.Device)
			g.expected, g.ideal = now, 0
			continue
		}
		if g.unit.answer == unitNotYet {
			c.findMissingUnits([]*governed{g})
		}
		if c.undoneBySystemd(g, now) {
			c.log.Info("systemd restored the unit's own weight in the cgroup's file; writing control's weight again", "cgroup", g.Cgroup,
				"weight", g.expected.Effective(), "restored", now.Effective())
			g.expected, g.ideal = now, 0
			g.unit.resume()
			continue
		}
		if err := c.adopt(g, now); err != nil {
			c.complain(g.Cgroup, "cannot record the weight that another program chose; the cgroup is left alone", err)
		}
	}
}

// chosenAgain reports whether the disk's scheduler was chosen again since the last look. Where that
// is not known, the answer is true if all weights on the disk, and nothing else, are gone at once.
func (c *Controller) chosenAgain(changed map[*governed]Setting) bool {
	if c.host.Tunables != nil {
		if scheduler, err := c.host.Tunables.Scheduler(); err == nil && scheduler != c.state.Scheduler {
			return true
		}
	}
	if again, known := c.seenScheduler.chosenAgain(c.host.schedulerInode()); known {
		return again
	}
	withOwn := 0
	for _, g := range c.cgroups {
		if g.expected.Device != 0 {
			withOwn++
		}
	}
	return withOwn > 1 && len(lostOf(changed)) == withOwn && len(changed) == withOwn
}

// lostOf returns those that lost their weights on this disk, and nothing else changed.
func lostOf(changed map[*governed]Setting) map[*governed]Setting {
	lost := maps.Clone(changed)
	maps.DeleteFunc(lost, func(g *governed, now Setting) bool { return !g.lost(now) })
	return lost
}

// lost reports whether the weight on this disk is gone, and nothing else changed.
func (g *governed) lost(now Setting) bool {
	return g.expected.Device != 0 && now == (Setting{Default: g.expected.Default})
}

// lostWithManager reports whether a weight was lost in a cgroup of a user's service manager. At
// its daemon-reload that manager writes the default weight of its units again, which removes
// BFQ's weights on single disks. Control has no access to the manager, which belongs to the user.
func (g *governed) lostWithManager(now Setting) bool {
	return g.lost(now) && ofUsersManager(g.Cgroup)
}

// undoneBySystemd reports whether a cgroup has its original weight again because its unit does
// not have control's. At daemon-reload and set-property systemd writes the unit's weight to the
// cgroup's files. On cgroup v1 control gives units no weights, and the kernel removes BFQ's weight
// on the disk at that write.
func (c *Controller) undoneBySystemd(g *governed, now Setting) bool {
	switch {
	case now != g.Weight:
		return false
	case c.host.WrittenBySystemd != nil:
		return c.host.WrittenBySystemd(g.Cgroup) && g.lost(now)
	}
	return g.unit.answer == unitUnanswered || g.SystemdUnit != "" && (!c.byUnit(g) || c.unitLacksWeight(g))
}

// ofUsersManager reports whether a cgroup is below one of a user's service manager,
// "…/user@UID.service".
func ofUsersManager(cgroup string) bool {
	parts := strings.Split(cgroup, "/")
	return slices.ContainsFunc(parts[:len(parts)-1], func(part string) bool {
		return strings.HasPrefix(part, "user@") && strings.HasSuffix(part, ".service")
	})
}

// adopt makes a setting of another program the original, which stays after the end,
// and the ideal until the configuration is read again.
func (c *Controller) adopt(g *governed, now Setting) error {
	g.changed, g.before = true, g.expected.Effective()
	original, ofUnit := g.Weight, g.SystemdWeight
	g.Weight = g.lastWritten().merge(original, now)
	if err := c.adoptUnit(g); err != nil {
		g.Weight = original
		return err
	}
	if g.Weight != original || g.SystemdWeight != ofUnit {
		if err := c.save(); err != nil {
			g.Weight, g.SystemdWeight = original, ofUnit
			return err
		}
	}
	expected := g.expected
	g.expected = now
	if now.Default == expected.Default && g.unit.weights.gave(now.Device) {
		c.log.Info("systemd wrote the weight of its unit again; correcting it", "cgroup", g.Cgroup, "weight", now.Device, "before", expected.Effective())
		return nil
	}
	if now.Effective() == expected.Effective() && g.Weight.Effective() == original.Effective() {
		return nil
	}
	if time.Since(g.appeared) < youthTime {
		c.log.Info("the cgroup was made with a weight", "cgroup", g.Cgroup, "weight", g.Weight.Effective())
		return nil
	}
	g.chosen = true
	if g.reported != g.Weight {
		c.log.Warn("another program changed the weight; it is the ideal from now on, and stays after the end", "cgroup", g.Cgroup,
			"weight", g.Weight.Effective(), "before", expected.Effective())
		g.reported = g.Weight
	}
	return nil
}

// lastWritten is the content of the cgroup's files if no other program wrote to
// them.
func (g *governed) lastWritten() written {
	return written{Setting: g.expected, Intended: g.expected.Effective(), Limit: g.limit, IntendedLimit: g.intended, unitWeights: g.unit.weights}
}

// note records what will be written to a cgroup. Without it a restore could not
// distinguish it from what another program wrote. The error wraps ErrVanished if another
// cgroup has the path now: what is written to that one would not be restored.
func (c *Controller) note(g *governed, w written) error {
	if c.written == nil {
		return nil // a dry run
	}
	if err := g.checkID(c.host.Cgroups); err != nil {
		return err
	}
	return c.written.note(g.ID, w)
}

// setWeight writes a weight. It expects what the files contain then, unless another
// program changed them meanwhile.
func (c *Controller) setWeight(g *governed, weight uint64) error {
	if err := g.checkID(c.host.Cgroups); err != nil {
		return err
	}
	byUnit := c.byUnit(g)
	if byUnit {
		err := c.intendUnit(g, weight)
		if errors.Is(err, errBusy) {
			return err
		}
		if err != nil {
			byUnit = false
			c.unitFailed(g, err)
		}
	}
	w := g.lastWritten()
	w.Intended = weight
	if err := c.note(g, w); err != nil {
		return err
	}
	if err := c.putWeight(g, weight, byUnit); err != nil {
		return err
	}
	now, err := c.host.Weights.Get(g.Cgroup)
	if err != nil {
		return err
	}
	if w.merge(g.Weight, now) == g.Weight && now.Effective() == weight {
		g.expected = now
	} else {
		g.expected = Setting{Default: g.expected.Default, Device: weight}
	}
	return nil
}
