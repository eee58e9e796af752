package control

import (
	"errors"
	"fmt"
	"path"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/control/judge"
	"github.com/daybook-project/daybook/internal/control/law"
)

// Decision is the result of one interval.
type Decision struct {
	// Device is the disk's name in /sys/block.
	Device string
	// Seconds is the length of the interval.
	Seconds float64
	// DryRun means that nothing was written.
	DryRun bool
	// Weights are sorted by group, then by cgroup.
	Weights []WeightDecision
	// Limits are those that were set, corrected or restored.
	Limits []LimitDecision
}

// WeightDecision is the decision about one cgroup.
type WeightDecision struct {
	Cgroup string
	// Ideal, Before and After are weights: the ideal one, the one in force during
	// the interval, and the one in force from now on.
	Ideal, Before, After uint64
	// Share is its part of the bytes of its siblings. TargetShare is its ideal over
	// the sum of theirs. Both are in 0..1.
	Share, TargetShare float64
}

// LimitDecision is one limit on reads or writes, in bytes per second; 0 means none.
type LimitDecision struct {
	Cgroup                  string
	Read                    bool
	Original, Before, After uint64
}

// interval processes one sample.
func (c *Controller) interval(sample account.Sample) {
	device, ok := c.find(sample)
	if !ok || !(sample.IntervalSeconds > 0) {
		c.log.Warn("the sample has nothing of the device", "device", c.disk.Device)
		return
	}
	c.seen.note(device.Containers)
	c.lookForChanges()
	c.refreshOrComplain()
	clear(c.limits.held)
	step := c.config.stepFor(containersOn(c.options.Disks, sample)).Seconds()
	c.late = sample.IntervalSeconds > max(judge.WindowSeconds, 2*max(step, c.nextStep))
	c.nextStep = step
	decision := Decision{Device: c.disk.Device, Seconds: sample.IntervalSeconds, DryRun: c.options.DryRun}
	done := sums(device)
	c.commitSeconds = float64(device.Transactions) * device.CommitSeconds
	for _, group := range c.groups {
		decision.Weights = append(decision.Weights, c.steer(group, sample.IntervalSeconds, done)...)
	}
	decision.Limits = c.steerLimits(sample.IntervalSeconds, done)
	c.judgeScheduler(sample.IntervalSeconds, done)
	c.writeEarly()
	if c.options.OnInterval != nil {
		c.options.OnInterval(decision)
	}
}

// refreshOrComplain logs an error once, and not at each step until it ends.
func (c *Controller) refreshOrComplain() {
	if err := c.refresh(); c.logged.refresh.isNewError(err) {
		c.log.Error("cannot look for new cgroups; going on with those known", "error", err)
	}
}

func (c *Controller) find(sample account.Sample) (account.Device, bool) {
	for _, device := range sample.Devices {
		if device.Device == c.disk.Device {
			return device, true
		}
	}
	return account.Device{}, false
}

// usage is the I/O of a cgroup and all below it.
type usage struct {
	read, written, hidden, writeback uint64
	// busySeconds is the time with a request outstanding, summed over the cgroups.
	busySeconds float64
	// requestSeconds is the time of its requests, added up.
	requestSeconds float64
	// flushSeconds is the time with a cache flush outstanding that a sync waits for.
	flushSeconds float64
	// stackedSeconds is the time in which it waited for devices that lie on the disk.
	stackedSeconds float64
	// forced is the number of commits of the journal that its syncs started.
	forced uint64
	// below is the part of what was charged that was charged to cgroups below.
	below uint64
}

func (u usage) charged() uint64 { return u.read + u.written }

// sums adds up the I/O of containers for each of their ancestors.
func sums(device account.Device) map[string]usage {
	done := make(map[string]usage, 2*len(device.Containers))
	for _, container := range device.Containers {
		for at := path.Clean("/" + container.Cgroup); at != "/"; at = path.Dir(at) {
			u := done[at]
			u.read += container.ChargedReadBytes
			u.written += container.ChargedWriteBytes
			u.hidden += container.Hidden()
			u.writeback += container.MetadataBytes + container.UnchargedBytes
			u.busySeconds += container.BusySeconds
			u.requestSeconds += container.RequestSeconds
			u.flushSeconds += container.FlushSeconds
			u.stackedSeconds += container.StackedSeconds
			u.forced += container.ForcedCommits
			if at != path.Clean("/"+container.Cgroup) {
				u.below += container.ChargedReadBytes + container.ChargedWriteBytes
			}
			done[at] = u
		}
	}
	return done
}

// steer applies the law to one group.
func (c *Controller) steer(group Group, seconds float64, done map[string]usage) []WeightDecision {
	var observations []law.Observation
	var members []*governed
	var ids []string
	var total, ideals float64
	for _, m := range group.Members {
		g := c.cgroups[m.Cgroup]
		if g == nil {
			continue // it could not be saved in the state
		}
		g.ideal = m.Ideal
		u := done[m.Cgroup]
		weight := g.expected.Effective()
		if g.changed {
			weight = g.before
		}
		members = append(members, g)
		ids = append(ids, m.Cgroup)
		observations = append(observations, law.Observation{
			ID: m.Cgroup, Ideal: float64(m.Ideal), Weight: float64(weight),
			JournalBytes: float64(u.hidden), WritebackBytes: float64(u.writeback), OtherBytes: float64(u.charged()),
			BusySeconds: u.busySeconds, RequestSeconds: u.requestSeconds, FlushSeconds: u.flushSeconds, StackedSeconds: u.stackedSeconds,
			ForcedCommits: float64(u.forced), CommitSeconds: c.commitSeconds,
		})
		total += float64(u.hidden) + float64(u.charged())
		g.charged.Add(float64(u.charged()), seconds, law.MeanSeconds)
		g.below.Add(float64(u.below), seconds, law.MeanSeconds)
		ideals += float64(m.Ideal)
	}
	if len(members) == 0 {
		return nil
	}
	if !c.scheduler.limiting || !law.NoneEnded(observations) { // a stop of the disk changes no limit
		for _, g := range members {
			g.reads.Add(float64(done[g.Cgroup].read), seconds, law.SplitSeconds)
			g.writes.Add(float64(done[g.Cgroup].written), seconds, law.SplitSeconds)
		}
	}
	if c.scheduler.limiting {
		return c.steerByLimits(group, seconds, members, observations, total)
	}
	weights := c.laws[group.Parent]
	if weights == nil {
		var err error
		if weights, err = law.NewLaw(c.config.Law, c.host.Weights.Range()); err != nil {
			c.log.Error("no law", "error", err)
			return nil
		}
		c.laws[group.Parent] = weights
	}
	c.observeScheduler(group, seconds, observations)
	next := law.Quantize(weights.Next(seconds, observations), ids, c.host.Weights.Range())
	if c.onlyObserves() {
		for n, m := range observations {
			next[n] = uint64(c.host.Weights.Range().Clamp(m.Ideal))
		}
	}
	decisions := make([]WeightDecision, len(members))
	for n, g := range members {
		o := observations[n]
		decisions[n] = WeightDecision{Cgroup: g.Cgroup, Ideal: uint64(o.Ideal), Before: uint64(o.Weight), After: next[n],
			TargetShare: o.Ideal / ideals}
		if total > 0 {
			decisions[n].Share = (o.JournalBytes + o.OtherBytes) / total
		}
		if g.changed {
			decisions[n].After = g.expected.Effective()
			continue // a weight that another program wrote stays for an interval
		}
		c.write(g, next[n], decisions[n].reason())
	}
	return decisions
}

func (d WeightDecision) reason() string {
	return fmt.Sprintf("share %.1f %%, target %.1f %%", 100*d.Share, 100*d.TargetShare)
}

// writeFresh writes the ideal weight of the members of a group that are new or
// whose ideal is new.
func (c *Controller) writeFresh(group Group) {
	r := c.host.Weights.Range()
	for _, m := range group.Members {
		if g := c.cgroups[m.Cgroup]; g != nil && g.ideal != m.Ideal {
			g.ideal = m.Ideal
			c.write(g, max(r.Min, min(r.Max, m.Ideal)), "ideal weight")
		}
	}
}

// write sets the weight of the cgroup, if it differs in its files or in its unit.
func (c *Controller) write(g *governed, weight uint64, reason string) {
	before := g.expected.Effective()
	if weight == before && !c.unitLacksWeight(g) || !c.host.Weights.Range().Holds(weight) || c.host.Unweighted {
		return
	}
	if c.options.DryRun {
		c.log.Info("would set", "cgroup", g.Cgroup, "weight", weight, "before", before, "reason", reason)
		return
	}
	now, err := c.host.Weights.Get(g.Cgroup)
	if err == nil && now != g.expected {
		return // another program changed it a moment ago: the next interval looks at it
	}
	if err == nil {
		err = c.setWeight(g, weight)
	}
	if errors.Is(err, errBusy) {
		c.log.Debug("cannot set the weight of the unit yet", "cgroup", g.Cgroup, "error", err)
		return // the next step sets that of its time
	}
	if err != nil {
		c.complain(g.Cgroup, "cannot set the weight", err)
		return
	}
	c.logged.ended(g.Cgroup)
	c.log.Debug("set", "cgroup", g.Cgroup, "weight", weight, "before", before, "reason", reason)
}
