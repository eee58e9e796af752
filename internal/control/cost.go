package control

import (
	"fmt"

	"github.com/daybook-project/daybook/internal/control/judge"
	"github.com/daybook-project/daybook/internal/control/law"
)

// When limits take over under io.cost; docs/control-scheduler.md says how these were chosen.
const (
	// costMissedPart is the part of the disk that a container must lack in a window, or have
	// too much, if much passes io.cost.
	costMissedPart = 0.02
	// littlePassingPart is the most hidden I/O of a container, as a part of what all do, with
	// which weights are tried again. It is less than hiddenPart, so that the two do not
	// alternate.
	littlePassingPart = hiddenPart / 2
)

// passing is the hidden I/O of each container, and what all containers do. io.cost neither counts
// nor holds back journal and metadata (ioc_rqos_throttle, block/blk-iocost.c). Requests then wait in
// the disk, which knows no weights, and what a container cannot use meanwhile io.cost gives to the
// others.
type passing struct {
	all    law.Mean
	hidden map[string]law.Mean
	// idleSeconds is the time since a container did something.
	idleSeconds float64
}

// observePassing enters a step under io.cost, whatever enforces the shares.
func (c *Controller) observePassing(seconds float64, step bytesDone, done map[string]usage) {
	if !c.host.CostDivides {
		return
	}
	p := &c.scheduler.passing
	if p.idleSeconds += seconds; step.all > 0 {
		p.idleSeconds = 0
	}
	p.all.Add(step.all, seconds, law.MeanSeconds)
	hidden := make(map[string]law.Mean, len(step.each))
	for cgroup := range step.each {
		mean := p.hidden[cgroup]
		mean.Add(float64(done[cgroup].hidden), seconds, law.MeanSeconds)
		hidden[cgroup] = mean
	}
	p.hidden = hidden
}

// most is the most hidden I/O of a container, as a part of what all do, and whose it is; 0 and ""
// if there is none.
func (p *passing) most() (part float64, cgroup string) {
	if p.idleSeconds > law.MeanSeconds || !(p.all.Rate() > 0) {
		return 0, ""
	}
	var most float64
	for at, hidden := range p.hidden {
		if rate := hidden.Rate(); rate > most || rate == most && rate > 0 && at < cgroup {
			most, cgroup = rate, at
		}
	}
	return most / p.all.Rate(), cgroup
}

// passesCost reports whether so much passes io.cost that weights do not hold the shares.
func (c *Controller) passesCost() bool {
	bound := hiddenPart
	if c.scheduler.limiting {
		bound = littlePassingPart
	}
	most, _ := c.scheduler.passing.most()
	return most > bound
}

// bounds are those for the windows that ended: one is enough where much passes io.cost. A fresh
// window shows nothing then, except the first, if no container came during it: where the ideal
// weights miss the shares, limits hold them sooner than corrected weights do, if these hold them
// at all. What passes io.cost adds to what its container has: if that container lacks a part, it
// repays.
func (c *Controller) bounds() judge.Bounds {
	s := &c.scheduler
	_, passes := s.passing.most()
	bounds := judge.Bounds{Missed: costMissedPart, Held: costMissedPart, Seconds: judge.WindowSeconds}
	switch {
	case c.options.DryRun || !c.passesCost() || s.missed.Lack > 0 && s.missed.Short == passes:
		return judge.Usual
	case s.fresh && (s.observed || s.partial):
		bounds.Missed = 1
	}
	return bounds
}

// whyCost is what happened, and what to do about it.
func (c *Controller) whyCost(m judge.Missed, seconds float64) string {
	missed := fmt.Sprintf("%s has lacked %.0f %% of the disk that is due to it", c.who(m.Short), 100*m.Lack)
	if m.Excess > m.Lack {
		missed = fmt.Sprintf("%s has had %.0f %% of the disk beyond what is due to it", c.who(m.Greedy), 100*m.Excess)
	}
	advice := ""
	most, _ := c.scheduler.passing.most()
	if !c.canLimit() {
		advice = "; allow limits: actuator: auto"
	}
	return fmt.Sprintf("weights have not held the shares: for %.0f s %s, and the journal and metadata of a container were %.0f %% of what all do, which io.cost neither counts nor holds back%s",
		seconds, missed, 100*most, advice)
}
