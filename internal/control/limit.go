package control

import (
	"context"
	"log/slog"
	"math"
	"slices"
	"strings"
)

// limitLookSeconds is how often limits are looked for where there were none.
const limitLookSeconds = 60.0

// largestRequest is the most bytes that the kernel submits at once as a rule (256
// pages, BIO_MAX_VECS in include/linux/bio.h). Kernels before 6.1 let a request that
// waits for its limit wait anew whenever a limit of its cgroup is written. So there
// are waitsPerWrite such waits between two writes. That holds for all kernels: a
// version says little, because distributions backport the correction.
const largestRequest, waitsPerWrite = 1 << 20, 2

// restSeconds is how long the limits that change stay as they are, at least: none of a
// size that does not matter. The kernel leaves the other direction alone.
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

// urgent reports whether a limit is to be written though the one in force is new: it
// is the first, the last, or holds back much more than it should.
func urgent(inForce, wanted, original uint64) bool {
	const much = 1.5
	return wanted != inForce && (wanted == 0 || wanted == original || inForce == 0 || inForce == original || float64(wanted) >= much*float64(inForce))
}

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

// worthLimiting says whether a limit differs enough from that in force, by more
// than a hundredth of scale: the kernel starts its throttling anew at every write.
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

// stricter is the smaller of two limits, where 0 is none.
func stricter(a, b uint64) uint64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// steerLimits corrects the write limits in force, and sets and takes away those
// that hold the shares.
func (c *Controller) steerLimits(seconds float64, done map[string]usage) (decisions []LimitDecision) {
	if c.host.Limits == nil {
		return nil
	}
	c.sinceLimits += seconds
	lookAtAll := c.sinceLimits >= limitLookSeconds
	if lookAtAll {
		c.sinceLimits = 0
	}
	var steered []limitedCgroup
	unsaved := false
	for _, group := range c.groups {
		for _, m := range group.Members {
			g := c.cgroups[m.Cgroup]
			if g == nil {
				continue
			}
			g.hidden.add(float64(done[g.Cgroup].hidden), seconds, meanSeconds)
			g.sinceLimit += seconds
			holds := c.held[g.Cgroup]
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
			// What is in the state already goes on: a limit must not stay at its last
			// value because another one cannot be recorded.
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

// warnFlat warns once that a limit does not hold the cgroups below (cgroup v1). Which
// of them does I/O is not known, so it is not divided among them.
func (c *Controller) warnFlat(g *governed) {
	if !c.host.FlatLimits || g.flatWarned {
		return
	}
	below := ""
	for path := range c.existed {
		if strings.HasPrefix(path, g.Cgroup+"/") && (below == "" || path < below) {
			below = path
		}
	}
	if below == "" {
		return
	}
	g.flatWarned = true
	c.log.Warn("a limit of cgroup v1 does not hold the cgroups below, and so not this one's share as a whole: move its processes into the cgroup itself, "+
		"or use a scheduler with weights and actuator: weights, or cgroup v2", "device", c.disk.Device, "cgroup", g.Cgroup, "below", below)
}

// limitedCgroup is one whose limits are being steered.
type limitedCgroup struct {
	g *governed
	// before is what was known of it until now.
	before governed
	// now is in force, holds what its share needs.
	now, holds Limits
}

// lookAtLimits takes in what another program did to a cgroup's limits: that is
// the original now. It must be in the state before anything is written.
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

// steerLimit writes what a cgroup's limits should be. The originals are in the
// state, and bounds: what an operator limits is never allowed more.
func (c *Controller) steerLimit(s limitedCgroup) (decisions []LimitDecision) {
	g := s.g
	wanted := Limits{Read: s.now.Read, Write: g.WriteBytesPerSecond}
	if wanted.Write != 0 && c.config.CorrectLimits {
		wanted.Write = CorrectLimit(wanted.Write, g.hidden.rate())
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
		"original_read", g.ReadBytesPerSecond, "original_write", g.WriteBytesPerSecond, "hidden_bytes_per_second", uint64(g.hidden.rate()))
	return decisions
}
