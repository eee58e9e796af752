package control

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/daybook-project/daybook/internal/control/law"
)

// costMissedPart is the part of the disk that a container must lack in one window under io.cost, or
// have too much, for limits to take over, if hidden I/O is more than hiddenPart. In the first window
// the law begins from the ideal weights, so there it is costFirstPart. docs/control-scheduler.md says
// how these were chosen.
const costMissedPart, costFirstPart = 0.02, 0.075

// hiddenMeans are the means of the hidden I/O of each sibling, and of what all of them did.
type hiddenMeans struct {
	all law.Mean
	by  map[string]*law.Mean
}

// add enters a step of the siblings.
func (h *hiddenMeans) add(seconds float64, siblings []law.Observation) {
	by := make(map[string]*law.Mean, len(siblings))
	var all float64
	for _, o := range siblings {
		all += math.Max(0, o.OtherBytes) + o.Journal()
		if by[o.ID] = h.by[o.ID]; by[o.ID] == nil {
			by[o.ID] = &law.Mean{}
		}
		by[o.ID].Add(o.Journal(), seconds, law.MeanSeconds)
	}
	h.all.Add(all, seconds, law.MeanSeconds)
	h.by = by
}

// most is the most of a sibling, as a part of what all did.
func (h *hiddenMeans) most() (part float64) {
	for _, hidden := range h.by {
		if all := h.all.Rate(); all > 0 {
			part = math.Max(part, hidden.Rate()/all)
		}
	}
	return part
}

// observePassing enters one group's step, whatever enforces the shares.
func (c *Controller) observePassing(group Group, seconds float64, siblings []law.Observation) {
	if !c.host.CostDivides {
		return
	}
	means := c.scheduler.passing[group.Parent]
	if means == nil {
		means = &hiddenMeans{}
		c.scheduler.passing[group.Parent] = means
	}
	means.add(seconds, siblings)
}

// forgetPassing forgets the groups that are gone.
func (c *Controller) forgetPassing() {
	maps.DeleteFunc(c.scheduler.passing, func(parent string, _ *hiddenMeans) bool {
		return !slices.ContainsFunc(c.groups, func(g Group) bool { return g.Parent == parent })
	})
}

// passing is the most hidden I/O of a container, as a part of what its siblings do. io.cost neither
// counts nor holds back journal and metadata (ioc_rqos_throttle, block/blk-iocost.c). Requests then
// wait in the disk, which knows no weights, and what a container cannot use meanwhile io.cost gives
// to the others.
func (c *Controller) passing() (part float64) {
	for _, means := range c.scheduler.passing {
		part = math.Max(part, means.most())
	}
	return part
}

// passesCost reports whether that is much.
func (c *Controller) passesCost() bool { return c.host.CostDivides && c.passing() > hiddenPart }

// missedByCost reports whether shares were missed in the window that ended, for that reason.
func (c *Controller) missedByCost(first bool) bool {
	s := &c.scheduler
	bound := costMissedPart
	if first {
		bound = costFirstPart
	}
	return !s.limiting && !s.Ignored && s.seconds > 0 && c.passesCost() && s.missed.Worst() > bound
}

// whyCost is what happened then.
func (c *Controller) whyCost() string {
	s := &c.scheduler
	missed := fmt.Sprintf("%s has lacked %.0f %% of the disk that is due to it", c.who(s.missed.Short), 100*s.missed.Lack)
	if s.missed.Excess > s.missed.Lack {
		missed = fmt.Sprintf("%s has had %.0f %% of the disk beyond what is due to it", c.who(s.missed.Greedy), 100*s.missed.Excess)
	}
	return fmt.Sprintf("weights have not held the shares: for %.0f s %s, and the journal and metadata of a container were %.0f %% of the disk, which io.cost neither counts nor holds back",
		s.seconds, missed, 100*c.passing())
}
