package control

import "math"

// limitLookSeconds is how often limits are looked for where there were none.
const limitLookSeconds = 60.0

// limitFloor is the part of a limit that is left to the charged I/O however
// much the container writes besides.
const limitFloor = 0.1

// CorrectLimit is the write limit to set so that charged and hidden writes
// together keep to limit: all in bytes per second. What the kernel throttles is
// only the charged part. At least a tenth of the limit is left, so that a
// container that logs more than its limit is not stopped altogether.
func CorrectLimit(limit uint64, hidden float64) uint64 {
	if !(hidden > 0) {
		return limit
	}
	least := math.Max(1, math.Ceil(float64(limit)*limitFloor))
	corrected := float64(limit) - hidden
	if !(corrected > least) {
		return min(limit, uint64(least))
	}
	return min(limit, uint64(corrected))
}

// worthLimiting says whether a limit differs from that in force by more than a
// hundredth: the kernel starts its throttling anew at every write.
func worthLimiting(inForce, wanted, original uint64) bool {
	if wanted == inForce {
		return false
	}
	difference := math.Abs(float64(wanted) - float64(inForce))
	return wanted == original || difference > 0.01*float64(original)
}

// steerLimits corrects the write limits in force.
func (c *Controller) steerLimits(seconds float64, done map[string]usage) (decisions []LimitDecision) {
	if c.host.Limits == nil {
		return nil
	}
	c.sinceLimits += seconds
	lookAtAll := c.sinceLimits >= limitLookSeconds
	if lookAtAll {
		c.sinceLimits = 0
	}
	for _, group := range c.groups {
		for _, m := range group.Members {
			g := c.cgroups[m.Cgroup]
			if g == nil {
				continue
			}
			g.hidden.add(float64(done[g.Cgroup].hidden), seconds, meanSeconds)
			if g.WriteBytesPerSecond == 0 && (!lookAtAll || !c.config.CorrectLimits) {
				continue
			}
			if d, changed := c.steerLimit(g); changed {
				decisions = append(decisions, d)
			}
		}
	}
	return decisions
}

// steerLimit corrects one limit, whose original it keeps first.
func (c *Controller) steerLimit(g *governed) (LimitDecision, bool) {
	now, err := c.host.Limits.Get(g.Cgroup)
	if err != nil {
		c.complain(g.Cgroup, "cannot read the limit of the cgroup", err)
		return LimitDecision{}, false
	}
	if now != g.limit || now != 0 && g.WriteBytesPerSecond == 0 {
		// Someone set, changed or took it away: that is now the original.
		g.WriteBytesPerSecond, g.limit = now, now
		if err := c.save(); err != nil {
			c.complain(g.Cgroup, "cannot correct the limit of the cgroup", err)
			g.WriteBytesPerSecond = 0
			return LimitDecision{}, false
		}
	}
	if now == 0 {
		return LimitDecision{}, false
	}
	wanted := g.WriteBytesPerSecond
	if c.config.CorrectLimits {
		wanted = CorrectLimit(wanted, g.hidden.rate())
	}
	if !worthLimiting(now, wanted, g.WriteBytesPerSecond) {
		return LimitDecision{}, false
	}
	decision := LimitDecision{Cgroup: g.Cgroup, Original: g.WriteBytesPerSecond, Before: now, After: wanted}
	if c.options.DryRun {
		return decision, true
	}
	w := g.lastWritten()
	w.IntendedLimit = wanted
	err = c.note(g, w)
	if err == nil {
		err = c.host.Limits.Set(g.Cgroup, wanted)
	}
	if err != nil {
		c.complain(g.Cgroup, "cannot correct the limit of the cgroup", err)
		return LimitDecision{}, false
	}
	g.limit = wanted
	c.log.Info("limited writes", "cgroup", g.Cgroup, "bytes_per_second", wanted, "original", g.WriteBytesPerSecond,
		"hidden_bytes_per_second", uint64(g.hidden.rate()))
	return decision, true
}
