package control

import (
	"errors"
	"fmt"
	"log/slog"
)

// Controller applies a law to one device; Run is its life.
type Controller struct {
	options Options
	config  Config
	host    Host
	log     *slog.Logger
	lock    *Lock
	state   *State
	// stopped, and what came of it.
	stopped bool
	stopErr error

	// cgroups are those whose settings are in the state.
	cgroups map[string]*governed
	groups  []Group
	notes   string
	laws    map[string]Law // by the group's parent
	names   map[string]string
	// active have done I/O; they count where the configuration names none.
	active map[string]bool
	// complaints are the last errors by cgroup, so that each is told once.
	complaints map[string]string
	// sinceLimits is the time since all limits were looked at, in seconds.
	sinceLimits float64
}

// governed is a cgroup whose weight, or limit, is in Daybook's hands.
type governed struct {
	CgroupState
	// expected is what its weight files should say; else someone changed
	// them.
	expected Setting
	// limit is the write limit in force; 0: none.
	limit  uint64
	hidden mean
	// ideal is the promised weight that was last written; 0: none yet.
	ideal uint64
}

// start locks the device and puts back what an earlier run left.
func start(options Options) (*Controller, error) {
	c := &Controller{
		options: options, config: options.Config, host: options.Host, log: options.Log,
		cgroups: map[string]*governed{}, laws: map[string]Law{}, names: map[string]string{},
		active: map[string]bool{}, complaints: map[string]string{},
	}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	r := c.host.Weights.Range()
	if err := r.Validate(); err != nil {
		return nil, err
	}
	if err := c.config.CheckWeights(c.host.Weights.File(), r); err != nil {
		return nil, err
	}
	c.state = &State{Version: StateVersion, BootID: bootID(), Device: options.Device, Dev: options.Dev,
		WeightFile: c.host.Weights.File(), Cgroups: []CgroupState{}}
	if c.host.Tunables != nil {
		scheduler, err := c.host.Tunables.Scheduler()
		if err != nil {
			return nil, err
		}
		c.state.Scheduler = scheduler
	}
	if options.DryRun {
		return c, nil
	}
	lock, err := AcquireLock(c.config.StateDir, options.Device, options.DeviceDir)
	if err != nil {
		return nil, err
	}
	open := options.OpenHost
	if open == nil {
		open = func(*State) (Host, error) { return options.Host, nil }
	}
	outcome, ok, err := recoverState(c.config.StateDir, options.Device, open, c.log)
	if err != nil {
		lock.Release()
		return nil, err
	}
	if ok {
		c.log.Info("put back what an earlier run had changed", "device", options.Device,
			"restored", len(outcome.Restored), "vanished", len(outcome.Vanished), "replaced", len(outcome.Replaced))
	}
	c.lock = lock
	return c, nil
}

// begin keeps the original settings and sets the ideal weights.
func (c *Controller) begin() error {
	if !c.options.DryRun {
		if c.options.RunDir != "" {
			if err := rememberStateDir(c.options.RunDir, c.options.Device, c.config.StateDir); err != nil {
				c.log.Warn("daybook restore will want --state-dir "+c.config.StateDir, "error", err)
			}
		}
		// Also when there is nothing to keep yet: that it can be kept must
		// be known before there is.
		if err := c.state.Save(c.config.StateDir); err != nil {
			return err
		}
	}
	for _, warning := range c.host.Warnings {
		c.log.Warn(warning)
	}
	if err := c.holdTunables(); err != nil {
		return err
	}
	if err := c.refresh(); err != nil {
		return err
	}
	for _, g := range c.groups {
		c.writeFresh(g)
	}
	return nil
}

// stop puts everything back, once, and says each time what came of it.
func (c *Controller) stop() error {
	if !c.stopped {
		c.stopped = true
		c.stopErr = c.putBack()
	}
	return c.stopErr
}

func (c *Controller) putBack() error {
	if c.options.DryRun {
		return nil
	}
	defer c.lock.Release()
	outcome, left, err := c.state.putBack(c.host, c.log)
	c.log.Info("put the settings back", "device", c.options.Device, "restored", len(outcome.Restored),
		"vanished", len(outcome.Vanished), "replaced", len(outcome.Replaced), "failed", len(outcome.Failed))
	if left != nil {
		return errors.Join(err, left.Save(c.config.StateDir),
			fmt.Errorf("not all settings of %s could be put back; try again with: daybook restore --state-dir %s", c.options.Device, c.config.StateDir))
	}
	if err := c.state.Remove(c.config.StateDir); err != nil {
		return err
	}
	if c.options.RunDir != "" {
		forgetStateDir(c.options.RunDir, c.options.Device)
	}
	return nil
}

// save brings the state on disk up to date with cgroups. Nothing may be
// written to a cgroup that is not in it.
func (c *Controller) save() error {
	if c.options.DryRun {
		return nil
	}
	c.state.Cgroups = c.state.Cgroups[:0]
	for _, g := range c.cgroups {
		c.state.Cgroups = append(c.state.Cgroups, g.CgroupState)
	}
	return c.state.Save(c.config.StateDir)
}

// reload reads the configuration again; the old one stays if it is bad.
func (c *Controller) reload() {
	if c.options.Load == nil {
		return
	}
	next, err := c.options.Load()
	if err == nil {
		err = next.CheckWeights(c.host.Weights.File(), c.host.Weights.Range())
	}
	if err == nil && next.StateDir != c.config.StateDir {
		err = fmt.Errorf("state_dir cannot change from %s to %s while in control", c.config.StateDir, next.StateDir)
	}
	if err == nil && next.Device != c.config.Device {
		err = fmt.Errorf("device cannot change from %q to %q while in control", c.config.Device, next.Device)
	}
	if err != nil {
		c.log.Error("keeping the old configuration", "error", err)
		return
	}
	if next.Law != c.config.Law {
		c.laws = map[string]Law{}
	}
	c.config = next
	c.log.Info("using the new configuration", "containers", len(next.Containers), "interval", next.Interval, "law", next.Law)
	if err := c.holdTunables(); err != nil {
		c.log.Error("cannot set the scheduler's tunables", "error", err)
	}
	if err := c.refresh(); err != nil {
		c.log.Error("cannot look for cgroups", "error", err)
	}
	for _, g := range c.groups {
		c.writeFresh(g)
	}
	c.sinceLimits = limitLookSeconds // limits: keep puts them back at the next interval
}
