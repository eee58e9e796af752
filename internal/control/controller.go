package control

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/control/law"
	"github.com/daybook-project/daybook/internal/safetext"
)

// Controller applies a law to one disk. Run starts and stops it.
type Controller struct {
	options Options
	disk    Disk
	config  Config
	host    Host
	log     *slog.Logger
	lock    *Lock
	state   *State
	// written is nil in a dry run.
	written *writtenLog
	// stopped means that control of the disk has ended, and that the settings were restored, or
	// stopErr says which were not.
	stopped bool
	stopErr error

	// cgroups are those whose settings are in the state.
	cgroups map[string]*governed
	// outlived are cgroups that are gone, by path, with units whose weights are
	// still to be restored.
	outlived map[string]*governed
	// filesOnly: systemd does not write the weights of its units on this disk.
	filesOnly bool
	groups    []Group
	ideals    Ideals
	// existed are the IDs of the cgroups at the last look; nil before the first
	// one.
	existed map[string]uint64
	laws    map[string]law.Law // by the group's parent
	limits  limitLaws
	seen    seenContainers
	logged  logged
	// unpublished: the ideals could not be recorded for other programs.
	unpublished bool
	// late means that the last step took so long that what happened in it says nothing of
	// what control achieves.
	late bool
	// nextStep is how long the coming step is to take, in seconds; 0: not known yet.
	nextStep float64
	// scheduler records whether the disk's scheduler follows its weights.
	scheduler     schedulerTrust
	seenScheduler seenScheduler
	tuning        tuning
	// commitSeconds is the time for which commits were in progress on the disk, of
	// commits that ended in this interval.
	commitSeconds float64
	// early starts the writeback of metadata; nil: the kernel does.
	early *early
}

// governed is a cgroup whose weight or limit Daybook sets.
type governed struct {
	CgroupState
	// expected is what its weight files contain unless another program changed
	// them.
	expected Setting
	// chosen means that another program changed its weight. That weight is the
	// ideal now, whatever the configuration says. reported is the weight that was
	// logged.
	chosen   bool
	reported Setting
	// appeared is when the cgroup was made, if that was seen.
	appeared time.Time
	// changed means that such a change was seen in this interval; before is the
	// weight that was in force until then.
	changed bool
	before  uint64
	// limit is in force, as of the last reading.
	limit Limits
	// sinceLimit is the time since limits were written, in seconds.
	sinceLimit float64
	// flatWarned: it was logged that its limits do not hold the cgroups below.
	flatWarned bool
	// fileGone means that it had no weight file at the last look.
	fileGone bool
	// unit is what is known of its unit.
	unit unitState
	// intended is the weight or limit of the last write. If the write failed, it is
	// not in force, or only half of it.
	intended Limits
	hidden   law.Mean
	// reads and writes are what was charged, lately. charged is both for a longer time, below
	// the part of it that was charged to cgroups below.
	reads, writes  law.Mean
	charged, below law.Mean
	// ideal is the ideal weight that was last written; 0: none yet.
	ideal uint64
}

// start locks the device, and restores what an earlier run changed and did not
// restore.
func start(options Options, disk Disk) (*Controller, error) {
	c := &Controller{
		options: options, disk: disk, config: options.Config, host: disk.Host, log: options.Log,
		cgroups: map[string]*governed{}, outlived: map[string]*governed{}, laws: map[string]law.Law{},
		limits: newLimitLaws(), seen: newSeenContainers(), logged: logged{cgroups: map[string]once{}},
	}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	if len(options.Disks) > 1 {
		c.log = c.log.With("disk", disk.Device)
	}
	c.log = slog.New(namingHandler{c.log.Handler(), c.displayName})
	c.scheduler.reset()
	r := c.host.Weights.Range()
	if err := r.Validate(); err != nil {
		return nil, err
	}
	if err := c.config.CheckWeights(c.host.Weights.File(), r); err != nil {
		return nil, err
	}
	c.state = &State{Version: StateVersion, BootID: bootID(), Device: disk.Device, Dev: disk.Dev, DiskInode: disk.Inode,
		WeightFile: c.host.Weights.File(), Cgroups: []CgroupState{}}
	// If another one was chosen since the disk was opened, the first step follows it.
	scheduler := c.host.Scheduler
	if scheduler == "" && c.host.Tunables != nil {
		var err error
		if scheduler, err = c.host.Tunables.Scheduler(); err != nil {
			return nil, err
		}
	}
	c.state.Scheduler, c.seenScheduler.name = scheduler, scheduler
	c.seenScheduler.look(c.host.schedulerInode())
	if options.DryRun {
		return c, nil
	}
	lock, err := AcquireLock(c.config.StateDir, disk.Device, disk.DeviceDir)
	if err != nil {
		return nil, err
	}
	open := options.OpenHost
	if open == nil {
		open = func(*State) (Host, error) { return disk.Host, nil }
	}
	if err := c.recoverEarlier(open); err != nil {
		lock.Release()
		return nil, err
	}
	if c.written, err = newWrittenLog(c.config.StateDir, disk.Device); err != nil {
		lock.Release()
		return nil, err
	}
	c.lock = lock
	return c, nil
}

// recoverEarlier restores what earlier runs changed and did not restore, also one with another
// state directory.
func (c *Controller) recoverEarlier(open func(*State) (Host, error)) error {
	for _, recovered := range []func() (Outcome, bool, error){
		func() (Outcome, bool, error) {
			return recoverElsewhere(c.options.RunDir, c.config.StateDir, c.disk.Device, open, c.log)
		},
		func() (Outcome, bool, error) {
			return recoverState(c.config.StateDir, c.disk.Device, open, c.log)
		},
	} {
		outcome, ok, err := recovered()
		if err != nil {
			return err
		}
		if ok {
			c.log.Info("restored what an earlier run had changed", "device", c.disk.Device,
				"restored", len(outcome.Restored), "kept", len(outcome.Kept), "vanished", len(outcome.Vanished), "replaced", len(outcome.Replaced))
		}
	}
	return nil
}

// begin saves the original settings and sets the ideal weights.
func (c *Controller) begin() error {
	if !c.options.DryRun {
		if c.options.RunDir != "" {
			if err := rememberStateDir(c.options.RunDir, c.disk.Device, c.config.StateDir); err != nil {
				c.log.Warn("daybook restore will want --state-dir "+safetext.Word(c.config.StateDir), "error", err)
			}
		}
		// Save even if there is nothing to save yet: the first change must not be
		// the first attempt.
		if err := c.state.Save(c.config.StateDir); err != nil {
			return err
		}
	}
	if c.canLimit() && c.disk.Carries != nil && c.disk.Carries(c.config.StateDir) {
		c.log.Warn("state_dir is on the disk whose containers are limited: control can have to wait for one of them; write into the configuration: state_dir: /run/daybook/control, or a directory on another disk",
			"device", c.disk.Device, "state_dir", c.config.StateDir)
	}
	if c.options.Recording != "" && c.canLimit() && c.disk.Carries != nil && c.disk.Carries(c.options.Recording) {
		c.log.Warn("the recording is on the disk whose containers are limited: control can have to wait for one of them, and corrects nothing meanwhile; record to another disk",
			"device", c.disk.Device, "recording", c.options.Recording)
	}
	for _, warning := range c.host.Warnings {
		c.log.Warn(warning)
	}
	if c.mustLimit() {
		c.scheduler.limiting = true
		c.scheduler.control.Actuator = account.ActuatorLimits
		c.log.Info("limits hold the shares", "device", c.disk.Device, "scheduler", c.state.Scheduler)
	}
	if err := c.holdTunables(); err != nil {
		// Weights and limits work without them, only less exactly.
		c.log.Warn("cannot set all of the scheduler's tunables; control goes on without these", "device", c.disk.Device, "error", err)
	}
	if err := c.refresh(); err != nil {
		return err
	}
	for _, g := range c.groups {
		c.writeFresh(g)
	}
	return nil
}

// stop restores everything, once, and logs the result.
func (c *Controller) stop() error {
	if !c.stopped {
		c.stopped = true
		c.stopEarly()
		c.stopErr = c.restoreAll()
	}
	return c.stopErr
}

// restoreAll restores the settings in the state, and removes the state if nothing is left
// to be restored.
func (c *Controller) restoreAll() error {
	if c.options.DryRun {
		return nil
	}
	defer c.lock.Release()
	last := make(map[uint64]written, len(c.cgroups))
	for _, g := range c.cgroups {
		last[g.ID] = g.lastWritten()
	}
	for _, g := range c.outlived {
		last[g.ID] = g.lastWritten()
	}
	host := c.host
	host.Replaced = c.disk.Replaced != nil && c.disk.Replaced()
	outcome, left, err := c.state.restore(host, last, c.log)
	err = errors.Join(err, c.written.close())
	c.log.Info("restored the settings", "device", c.disk.Device, "restored", len(outcome.Restored), "kept", len(outcome.Kept),
		"vanished", len(outcome.Vanished), "replaced", len(outcome.Replaced), "failed", len(outcome.Failed))
	if left != nil {
		return errors.Join(err, left.Save(c.config.StateDir),
			fmt.Errorf("not all settings of %s could be restored; try again with: daybook restore --state-dir %s", c.disk.Device, safetext.Word(c.config.StateDir)))
	}
	removeErr := c.state.Remove(c.config.StateDir)
	if removeErr == nil {
		forgetStateDir(c.options.RunDir, c.disk.Device, c.config.StateDir)
	}
	return errors.Join(err, removeErr)
}

// save updates the state on disk from cgroups. A cgroup that is not in the state is
// never written to.
func (c *Controller) save() error {
	if c.options.DryRun {
		return nil
	}
	c.state.Cgroups, c.state.Configured = c.state.Cgroups[:0], c.ideals.Configured
	c.state.Actuator, c.state.WeightsIgnored = c.ideals.Control.Actuator, c.ideals.Control.WeightsIgnored
	for _, g := range c.cgroups {
		g.IdealWeight, g.Unit = c.ideals.Weights[g.Cgroup], c.ideals.Units[g.Cgroup]
		c.state.Cgroups = append(c.state.Cgroups, g.CgroupState)
	}
	for _, g := range c.outlived { // no new cgroup of that path is in cgroups
		c.state.Cgroups = append(c.state.Cgroups, g.CgroupState)
	}
	return c.state.Save(c.config.StateDir)
}

// use continues with another configuration.
func (c *Controller) use(next Config) {
	if next.Law != c.config.Law {
		c.laws = map[string]law.Law{}
	}
	c.config = next
	// The weights of the new configuration replace those that other programs chose.
	c.lookForChanges()
	for _, g := range c.cgroups {
		g.chosen = false
	}
	c.holdTunablesOrLog()
	c.endTuning()
	if err := c.refresh(); err != nil {
		c.log.Error("cannot look for cgroups", "error", err)
	}
	for _, g := range c.groups {
		c.writeFresh(g)
	}
	c.limits.lookSoon() // with "limits: keep", the next interval restores the limits
}
