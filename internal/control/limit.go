package control

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"path"
	"slices"
	"strings"

	"github.com/daybook-project/daybook/internal/control/law"
)

// largestRequest is the most bytes that the kernel usually submits at once (256
// pages, BIO_MAX_VECS in include/linux/bio.h). In kernels before 6.1 a request that
// waits for its limit waits again whenever a limit of its cgroup is written. So the
// law waits for waitsPerWrite such waits between two writes. It does so on all
// kernels: a version number says little, because distributions backport the
// correction.
const largestRequest, waitsPerWrite = 1 << 20, 2

// restSeconds is the minimum time between two changes of a limit, unless the limit
// is so high that such waits do not matter. The kernel does not touch the limit of
// the other direction.
func (l Limits) restSeconds(wanted Limits) float64 {
	least := uint64(0)
	if wanted.Read != l.Read {
		least = l.Read
	}
	if wanted.Write != l.Write {
		least = stricter(least, l.Write)
	}
	if least == 0 {
		return 0
	}
	return waitsPerWrite * largestRequest / float64(least)
}

// urgent reports whether a limit is written although the one in force is new: it is
// the first or the last, or it is much too low or too high.
func urgent(inForce, wanted, original uint64) bool {
	const much = 1.5
	if wanted == inForce {
		return false
	}
	isFirstOrLast := wanted == 0 || wanted == original || inForce == 0 || inForce == original
	return isFirstOrLast || float64(max(wanted, inForce)) >= much*float64(min(wanted, inForce))
}

// limitFloor is the part of a limit that remains for charged I/O, however much
// hidden I/O the container has.
const limitFloor = 0.1

// CorrectLimit computes the write limit with which charged and hidden writes
// together stay within limit, all in bytes per second. The kernel throttles only
// the charged part. At least a tenth of the limit remains, so that a container that
// logs more than its limit is not stopped completely.
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

// worthLimiting reports whether a limit differs from the one in force by more than
// a hundredth of scale. Each write of a limit restarts the kernel's throttling.
func worthLimiting(inForce, wanted, original, scale uint64) bool {
	if wanted == inForce {
		return false
	}
	if wanted == original || wanted == 0 || inForce == 0 {
		return true
	}
	difference := math.Abs(float64(wanted) - float64(inForce))
	return difference > 0.01*float64(scale)
}

// stricter is the smaller of two limits; 0 means no limit.
func stricter(a, b uint64) uint64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// steerLimits corrects the write limits in force, and sets and removes those that
// enforce the shares.
func (c *Controller) steerLimits(seconds float64, done map[string]usage) (decisions []LimitDecision) {
	if c.host.Limits == nil {
		return nil
	}
	lookAtAll := c.limits.lookAtAll(seconds)
	var steered []limitedCgroup
	unsaved := false
	for _, group := range c.groups {
		for _, m := range group.Members {
			g := c.cgroups[m.Cgroup]
			if g == nil {
				continue
			}
			g.hidden.Add(float64(done[g.Cgroup].hidden), seconds, law.MeanSeconds)
			g.sinceLimit += seconds
			holds := c.limits.held[g.Cgroup]
			if holds == (Limits{}) && !g.Limited && g.WriteBytesPerSecond == 0 && (!lookAtAll || !c.config.CorrectLimits) {
				continue
			}
			if holds != (Limits{}) && (!g.Limited || lookAtAll) {
				c.warnFlat(g)
			}
			if s, ok := c.lookAtLimits(g, holds); ok {
				steered = append(steered, s)
				unsaved = unsaved || s.before.CgroupState != g.CgroupState
			}
		}
	}
	if unsaved {
		if err := c.save(); err != nil {
			// The cgroups that are in the state already continue: a limit must not
			// stay at its last value because another one cannot be saved.
			steered = slices.DeleteFunc(steered, func(s limitedCgroup) bool {
				if s.before.CgroupState == s.g.CgroupState {
					return false
				}
				c.complain(s.g.Cgroup, "cannot set limits of the cgroup", err)
				s.g.CgroupState, s.g.limit, s.g.intended = s.before.CgroupState, s.before.limit, s.before.intended
				return true
			})
		}
	}
	for _, s := range steered {
		decisions = append(decisions, c.steerLimit(s)...)
	}
	return decisions
}

// warnFlat warns once that a limit does not apply to the cgroups below (cgroup v1).
// It is not known which of them does I/O, so the limit is not divided among them.
func (c *Controller) warnFlat(g *governed) {
	if !c.host.FlatLimits || g.flatWarned {
		return
	}
	below := ""
	for at := range c.existed {
		if strings.HasPrefix(at, g.Cgroup+"/") && (below == "" || at < below) {
			below = at
		}
	}
	if below == "" {
		return
	}
	g.flatWarned = true
	c.log.Warn("a limit of cgroup v1 does not apply to the cgroups below, so it cannot enforce the share of this one as a whole: move its processes into the cgroup itself, "+
		"or use a scheduler with weights and actuator: weights, or cgroup v2", "device", c.disk.Device, "cgroup", g.Cgroup, "below", below)
}

// leastReached is the part of the charged I/O of all units that limits must apply to.
const leastReached = 0.5

// unreachable returns the unit with the most I/O that limits do not apply to, if they do not
// apply to most of the I/O of all units: on cgroup v1 they do not apply to the cgroups below,
// such as those of the containers of a pod. "" if limits are of use.
func (c *Controller) unreachable() string {
	if !c.host.FlatLimits {
		return ""
	}
	units := map[string]bool{}
	for _, group := range c.groups {
		for _, m := range group.Members {
			// An ancestor of units is not looked at: limits of its units divide its part.
			units[m.Cgroup] = slices.Contains(m.Units, m.Cgroup)
		}
	}
	var all, below, most float64
	worst := ""
	for cgroup, unit := range units {
		g := c.cgroups[cgroup]
		if g == nil || !unit || hasAncestor(cgroup, units) {
			continue
		}
		all += g.charged.Rate()
		below += g.below.Rate()
		if g.below.Rate() > most {
			worst, most = cgroup, g.below.Rate()
		}
	}
	if all-below >= leastReached*all {
		return ""
	}
	return worst
}

// hasAncestor reports whether a cgroup is below one of these.
func hasAncestor(cgroup string, of map[string]bool) bool {
	for at := path.Dir(cgroup); len(at) > 1; at = path.Dir(at) {
		if of[at] {
			return true
		}
	}
	return false
}

// warnUnreachable warns once that weights stay in force although they do not hold the shares.
func (c *Controller) warnUnreachable(cgroup string) {
	if c.logged.unreachable {
		return
	}
	c.logged.unreachable = true
	c.log.Warn("limits would not hold the shares either: those of cgroup v1 do not apply to the cgroups below, which do most of the I/O; control goes on with weights: "+
		"name the cgroups below in the configuration, or use cgroup v2", "device", c.disk.Device, "cgroup", cgroup)
}

// limitedCgroup is one whose limits are being steered.
type limitedCgroup struct {
	g *governed
	// before is what was known of it until now.
	before governed
	// now is in force; holds is the limit that its share needs.
	now, holds Limits
}

// lookAtLimits records limits that another program set: they are the original ones
// now. They must be in the state before anything is written.
func (c *Controller) lookAtLimits(g *governed, holds Limits) (limitedCgroup, bool) {
	now, err := c.host.Limits.Get(g.Cgroup)
	if err != nil {
		c.complain(g.Cgroup, "cannot read the limits of the cgroup", err)
		return limitedCgroup{}, false
	}
	s := limitedCgroup{g: g, before: *g, now: now, holds: holds}
	if now.Write != g.limit.Write && now.Write != g.intended.Write {
		g.WriteBytesPerSecond = now.Write
	}
	if holds != (Limits{}) && !g.Limited {
		g.Limited, g.limit.Read, g.intended.Read, g.ReadBytesPerSecond = true, now.Read, now.Read, now.Read
	}
	if g.Limited && now.Read != g.limit.Read && now.Read != g.intended.Read {
		g.ReadBytesPerSecond = now.Read
	}
	g.limit, g.intended = now, now
	return s, true
}

// steerLimit writes the limits of a cgroup. The originals are in the state, and
// they are upper bounds: a limit of the operator is never exceeded.
func (c *Controller) steerLimit(s limitedCgroup) (decisions []LimitDecision) {
	g := s.g
	wanted := Limits{Read: s.now.Read, Write: g.WriteBytesPerSecond}
	if wanted.Write != 0 && c.config.CorrectLimits {
		wanted.Write = CorrectLimit(wanted.Write, g.hidden.Rate())
	}
	wanted.Write = stricter(wanted.Write, s.holds.Write)
	if g.Limited {
		wanted.Read = stricter(g.ReadBytesPerSecond, s.holds.Read)
	}
	scale := g.WriteBytesPerSecond
	if s.holds.Write != 0 {
		scale = s.now.Write
	}
	if !worthLimiting(s.now.Write, wanted.Write, g.WriteBytesPerSecond, scale) {
		wanted.Write = s.now.Write
	}
	if !worthLimiting(s.now.Read, wanted.Read, g.ReadBytesPerSecond, s.now.Read) {
		wanted.Read = s.now.Read
	}
	if wanted == s.now {
		return nil
	}
	if g.sinceLimit < s.now.restSeconds(wanted) && !urgent(s.now.Read, wanted.Read, g.ReadBytesPerSecond) && !urgent(s.now.Write, wanted.Write, g.WriteBytesPerSecond) {
		return nil
	}
	if wanted.Read != s.now.Read {
		decisions = append(decisions, LimitDecision{Cgroup: g.Cgroup, Read: true, Original: g.ReadBytesPerSecond, Before: s.now.Read, After: wanted.Read})
	}
	if wanted.Write != s.now.Write {
		decisions = append(decisions, LimitDecision{Cgroup: g.Cgroup, Original: g.WriteBytesPerSecond, Before: s.now.Write, After: wanted.Write})
	}
	if c.options.DryRun {
		return decisions
	}
	w := g.lastWritten()
	w.IntendedLimit = wanted
	err := c.note(g, w)
	if err == nil {
		g.intended = wanted
		err = c.host.Limits.Set(g.Cgroup, wanted)
	}
	if err != nil {
		c.complain(g.Cgroup, "cannot set the limits of the cgroup", err)
		return nil
	}
	g.limit, g.sinceLimit = wanted, 0
	level := slog.LevelInfo
	if s.holds != (Limits{}) || g.Limited {
		level = slog.LevelDebug // ten times in an interval
	}
	c.log.Log(context.Background(), level, "limited", "cgroup", g.Cgroup, "read_bytes_per_second", wanted.Read, "write_bytes_per_second", wanted.Write,
		"original_read", g.ReadBytesPerSecond, "original_write", g.WriteBytesPerSecond, "hidden_bytes_per_second", uint64(g.hidden.Rate()))
	return decisions
}

// steerByLimits applies the limit law to one group.
func (c *Controller) steerByLimits(group Group, seconds float64, members []*governed, observations []law.Observation, total float64) []WeightDecision {
	limits := c.limits.of(group.Parent)
	r := c.host.Weights.Range()
	decisions := make([]WeightDecision, len(members))
	var ideals float64
	for _, o := range observations {
		ideals += o.Ideal
	}
	for n, limit := range limits.Next(seconds, observations) {
		g, o := members[n], observations[n]
		c.limits.held[g.Cgroup] = splitLimit(limit, g.reads.Rate(), g.writes.Rate())
		decisions[n] = WeightDecision{Cgroup: g.Cgroup, Ideal: uint64(o.Ideal), Before: uint64(o.Weight), After: uint64(o.Weight), TargetShare: o.Ideal / ideals}
		if total > 0 {
			decisions[n].Share = (o.JournalBytes + o.OtherBytes) / total
		}
		if !g.changed && !c.host.Unweighted {
			decisions[n].After = max(r.Min, min(r.Max, g.ideal))
			c.write(g, decisions[n].After, "limits hold the shares")
		}
	}
	c.sayOutOfReach(limits, seconds, members)
	return decisions
}

// beyondSeconds is how long a share must be out of reach until that is said.
const beyondSeconds = 10.0

// sayOutOfReach says once, in a time by limits, that a container of a group cannot have its share.
func (c *Controller) sayOutOfReach(limits *law.LimitLaw, seconds float64, members []*governed) {
	beyond := c.scheduler.beyond
	b, ok := limits.OutOfReach()
	for _, g := range members {
		if !(ok && g.Cgroup == b.ID) && beyond[g.Cgroup] < beyondSeconds {
			delete(beyond, g.Cgroup)
		}
	}
	maps.DeleteFunc(beyond, func(cgroup string, _ float64) bool { return c.cgroups[cgroup] == nil })
	if !ok || c.options.DryRun {
		return
	}
	before := beyond[b.ID]
	if beyond[b.ID] += seconds; before >= beyondSeconds || beyond[b.ID] < beyondSeconds {
		return
	}
	c.log.Info(fmt.Sprintf("%s cannot have its share of %.0f %%: it does %.2f of %.1f MB/s, and gained less than a tenth of what the others gave up: its requests seek, wait for flushes, or come one after the other. "+
		"Limits hold the others back only as far as the mean by shares gains from it. To hold them back less, give it a lower weight",
		c.who(b.ID), 100*b.Share, b.Rate/1e6, b.Total/1e6), "device", c.disk.Device)
}

// splitLimit divides a limit on reads and writes together by the bytes read and
// written per second lately. Each may use what the other leaves, and has some room.
// Rare reads or writes have no limit. No limit is below law.LeastLimit: one large write
// would delay a commit of the journal for seconds.
func splitLimit(limit, reads, writes float64) Limits {
	if !(limit > 0) {
		return Limits{}
	}
	const rare, room = 0.05, 0.05
	part := 0.5
	if reads+writes > 0 {
		part = reads / (reads + writes)
	}
	left := math.Max(0, 1-(reads+writes)/limit)
	of := func(part float64) uint64 {
		if part < rare {
			return 0
		}
		return uint64(math.Max(math.Min(limit, law.LeastLimit), limit*math.Min(1, part*(1-left)+left+room)))
	}
	return Limits{Read: of(part), Write: of(1 - part)}
}
