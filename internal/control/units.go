package control

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"time"
)

// Units sets weights by the service manager (systemd) for cgroups that belong to a
// unit. Otherwise systemd would overwrite the cgroup's files. Weights are those of
// units, from 1 to 10000. An error that wraps errBusy says that the service manager has not
// answered for a short time, as while it reloads its units.
type Units interface {
	// Find returns the name of the unit that owns the cgroup, with the unit's
	// weight on this disk, 0 for none. The name is "" if the cgroup belongs to no
	// unit; that is no error.
	Find(cgroup string) (unit string, weight uint64, err error)
	// Weight is the unit's weight on this disk; 0 means none.
	Weight(unit string) (uint64, error)
	// Of is the unit's weight that systemd writes as weight to the cgroup's file.
	Of(weight uint64) uint64
	// Set sets the unit's weight on this disk; 0 removes it. The cgroup's files
	// follow soon.
	Set(unit string, weight uint64) error
	// Await makes calls wait longer for a service manager that does not answer, until
	// end is called: what they undo would stay otherwise.
	Await() (end func())
}

// unitPatience is how long the cgroup's files may take to follow the unit.
const unitPatience = time.Second

// errBusy means that the service manager may answer soon. Until then control leaves the
// cgroups of its units as they are: what it writes to their files meanwhile would be lost
// when the manager applies the units' settings.
var errBusy = errors.New("the service manager does not answer yet")

// errNotFollowed means that the service manager accepted a unit's weight and did
// not write it to the cgroup's file.
var errNotFollowed = errors.New("the cgroup's file does not follow the unit")

// setsUnits reports whether the weights of units on this disk are set by the service manager.
func (c *Controller) setsUnits() bool { return c.host.Units != nil && !c.filesOnly }

// findUnit records the unit of a cgroup, and reports whether it has one. It must be in the
// state before it is used. The error is errBusy.
func (c *Controller) findUnit(g *governed) (found bool, err error) {
	if !c.setsUnits() {
		return false, nil
	}
	unit, weight, err := c.host.Units.Find(g.Cgroup)
	if errors.Is(err, errBusy) {
		return false, err
	}
	if err != nil {
		if g.unit.unanswered(time.Now()) {
			c.log.Warn("cannot ask systemd whose cgroup it is; writing its files, which systemd may undo, and asking again later", "cgroup", g.Cgroup, "error", err)
		}
		return false, nil
	}
	g.SystemdUnit, g.SystemdWeight = unit, weight
	if unit != "" || ofUsersManager(g.Cgroup) { // units below a user's service manager are not systemd's
		g.unit.certain()
	} else {
		// The cgroup of a unit that starts can exist before systemd says whose it is.
		g.unit.notYet(time.Now(), time.Since(g.appeared) < youthTime)
	}
	return unit != "", nil
}

// findUnitsAgain asks for units that are not known because systemd did not answer, or did not
// know them yet.
func (c *Controller) findUnitsAgain() {
	var missing []*governed
	for _, g := range c.cgroups {
		if g.unit.wanted(time.Now()) {
			missing = append(missing, g)
		}
	}
	c.findMissingUnits(missing)
}

// findMissingUnits asks for the units of these cgroups, and saves those that are found.
func (c *Controller) findMissingUnits(missing []*governed) {
	var found []*governed
	for _, g := range missing {
		if ok, _ := c.findUnit(g); ok { // while systemd is busy, the next step asks again
			found = append(found, g)
		}
	}
	if len(found) == 0 {
		return
	}
	if err := c.save(); err != nil {
		c.log.Error("cannot save the units of cgroups; writing the cgroups' files", "error", err)
		for _, g := range found {
			g.SystemdUnit, g.SystemdWeight = "", 0
			g.unit.unsaved()
		}
	}
}

// byUnit reports whether the cgroup's weight is set through its unit now.
func (c *Controller) byUnit(g *governed) bool {
	return g.SystemdUnit != "" && c.setsUnits() && !g.unit.paused(time.Now())
}

// unitLacksWeight reports whether control wrote a weight to the cgroup's files only, and can set
// it in the unit now. Otherwise systemd would undo it.
func (c *Controller) unitLacksWeight(g *governed) bool {
	return c.byUnit(g) && g.unit.weights.Unit != g.expected.Effective() && (g.unit.weights.Unit != 0 || g.expected != g.Weight)
}

// putWeight sets the weight of the cgroup, through its unit or in its files.
func (c *Controller) putWeight(g *governed, weight uint64, byUnit bool) error {
	if !byUnit {
		return c.host.Weights.Set(g.Cgroup, weight)
	}
	err := c.host.Units.Set(g.SystemdUnit, c.host.Units.Of(weight))
	if err == nil {
		g.unit.weights.Unit = weight
		err = c.awaitWeight(g, weight)
	}
	switch {
	case err == nil:
		g.unit.followed()
		return nil
	case errors.Is(err, errBusy):
		return err
	case errors.Is(err, errNotFollowed):
		// So it is with BFQ before systemd 251, which never writes weights on one
		// disk to io.bfq.weight.
		c.filesOnly = true
		c.log.Warn("systemd does not write the weights of its units on this disk; writing the cgroups' files until the end, which systemd may undo",
			"unit", g.SystemdUnit, "error", err)
		last := g.lastWritten()
		if _, _, err := g.restoreUnit(c.host.Units, &last); err != nil {
			c.log.Warn("cannot restore the unit's weight now; it is restored at the end", "unit", g.SystemdUnit, "error", err)
		}
	default:
		c.unitFailed(g, err)
	}
	// That can have taken seconds.
	if err := g.checkID(c.host.Cgroups); err != nil {
		return err
	}
	return c.host.Weights.Set(g.Cgroup, weight)
}

// unitFailed makes control write the files for a while, unless the unit is gone. It warns once
// until systemd sets the weight again.
func (c *Controller) unitFailed(g *governed, err error) {
	if errors.Is(err, ErrVanished) {
		return
	}
	level := slog.LevelDebug
	if g.unit.refused(time.Now()) {
		level = slog.LevelWarn
	}
	c.log.Log(context.Background(), level, "systemd did not set the weight of its unit; writing the cgroup's files, which systemd may undo",
		"unit", g.SystemdUnit, "error", err)
}

// intendUnit records in memory the weight that a unit is about to get. If it is not
// known whether it has the one before, systemd is asked.
func (c *Controller) intendUnit(g *governed, weight uint64) error {
	if g.unit.weights.Unit != g.unit.weights.IntendedUnit {
		now, err := c.host.Units.Weight(g.SystemdUnit)
		if err != nil {
			return err
		}
		if now == c.host.Units.Of(g.unit.weights.IntendedUnit) {
			g.unit.weights.Unit = g.unit.weights.IntendedUnit
		}
	}
	g.unit.weights.IntendedUnit = weight
	return nil
}

// awaitWeight waits until the files of a unit's cgroup show a weight for this disk. On a busy
// host that can take long. So the service manager is asked once more: it writes what it is to
// write before it answers (systemd: manager_loop, src/core/manager.c).
func (c *Controller) awaitWeight(g *governed, weight uint64) error {
	const firstPause = time.Millisecond
	answered, end := false, time.Now().Add(unitPatience)
	for pause := firstPause; ; pause *= 2 {
		now, err := c.host.Weights.Get(g.Cgroup)
		if err != nil {
			return err
		}
		if now.Device == weight {
			return nil
		}
		if answered {
			return fmt.Errorf("%w: %s shows %d (on this disk: %d) after %s, not %d", errNotFollowed, c.host.Weights.File(), now.Default, now.Device, unitPatience, weight)
		}
		if time.Now().Before(end) {
			time.Sleep(pause)
			continue
		}
		if _, err := c.host.Units.Weight(g.SystemdUnit); err != nil {
			return err
		}
		answered = true
	}
}

// awaitSettled waits until systemd has finished its pending work: it answers
// nothing in between. The error is errBusy.
func (c *Controller) awaitSettled(g *governed) error {
	if g.SystemdUnit == "" || c.host.Units == nil {
		return nil
	}
	if _, err := c.host.Units.Weight(g.SystemdUnit); errors.Is(err, errBusy) {
		return err
	}
	return nil
}

// adoptUnit makes the weight that another program gave the unit the one that is restored. If
// only the file were restored, systemd would overwrite it when it applies the unit's settings.
func (c *Controller) adoptUnit(g *governed) error {
	if g.SystemdUnit == "" || c.host.Units == nil {
		return nil
	}
	now, err := c.host.Units.Weight(g.SystemdUnit)
	if errors.Is(err, ErrVanished) {
		return nil
	}
	if err == nil && !g.lastWritten().ownUnit(now, c.host.Units.Of) {
		g.SystemdWeight = now
	}
	return err
}

// restoreUnit restores the weight that the unit had on this disk, unless another
// program has changed it since the last write. A unit that no longer exists is no
// error.
func (c CgroupState) restoreUnit(units Units, last *written) (kept, restored bool, err error) {
	if c.SystemdUnit == "" || units == nil {
		return false, false, nil
	}
	defer func() {
		if errors.Is(err, ErrVanished) {
			err = nil
		}
	}()
	now, err := units.Weight(c.SystemdUnit)
	if err != nil || now == c.SystemdWeight {
		return false, false, err
	}
	if last != nil && !last.ownUnit(now, units.Of) {
		return true, false, nil
	}
	if err := units.Set(c.SystemdUnit, c.SystemdWeight); err != nil {
		return false, false, err
	}
	// When systemd answers again, the files contain the result.
	_, err = units.Weight(c.SystemdUnit)
	return false, true, err
}

// restoreOutlived restores the weight of a unit whose cgroup is gone: systemd gives
// the unit's weight to the unit's next cgroup, which may exist already.
func (c CgroupState) restoreOutlived(host Host, last *written) error {
	kept, restored, err := c.restoreUnit(host.Units, last)
	if c.SystemdUnit == "" || host.Units == nil || err != nil || kept || c.SystemdWeight != 0 {
		return err
	}
	// systemd removes the weight from the unit, and leaves it in io.weight.
	now, err := host.Weights.Get(c.Cgroup)
	if err == nil && now.Device != 0 && (last == nil && restored || last != nil && last.gave(now.Device)) {
		err = host.Weights.Restore(c.Cgroup, Setting{Default: now.Default})
	}
	if errors.Is(err, ErrVanished) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// ownUnit reports whether a unit's weight is Daybook's. of is [Units.Of].
func (w written) ownUnit(now uint64, of func(uint64) uint64) bool {
	if w.unitUnknown {
		return w.Device != 0 && now == of(w.Device) || now == of(w.Intended)
	}
	return w.Unit != 0 && now == of(w.Unit) || w.IntendedUnit != 0 && now == of(w.IntendedUnit)
}

// outlive keeps the record of a cgroup that is gone until the weight of its unit is
// restored.
func (c *Controller) outlive(g *governed) {
	if g.unit.weights == (unitWeights{}) || c.host.Units == nil || c.options.DryRun {
		c.drop(g)
		return
	}
	delete(c.cgroups, g.Cgroup)
	g.unit.resume()
	c.outlived[g.Cgroup] = g
}

// restoreOutlived restores the weights of units whose cgroups are gone, before the
// units' new cgroups are read.
func (c *Controller) restoreOutlived() {
	for path, g := range c.outlived {
		if g.unit.paused(time.Now()) {
			continue
		}
		last := g.lastWritten()
		err := g.CgroupState.restoreOutlived(c.host, &last)
		if errors.Is(err, errBusy) {
			continue // the next step tries again
		}
		if err != nil {
			c.log.Warn("cannot restore the weight of a unit whose cgroup is gone; trying again, and leaving its new cgroup alone until then",
				"unit", g.SystemdUnit, "error", err)
			g.unit.pause(time.Now())
			continue
		}
		delete(c.outlived, path)
		c.forgetWritten(g)
	}
}
