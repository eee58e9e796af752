package control

import (
	"maps"
	"math"

	"github.com/daybook-project/daybook/internal/control/law"
)

// bytesDone is what containers did in a step, by cgroup, hidden I/O included; all is the sum
// of the outermost group.
type bytesDone struct {
	all  float64
	each map[string]float64
}

// outermost is the group that contains the others.
func (c *Controller) outermost() (members []Member) {
	for _, group := range c.groups {
		if group.Parent == c.groups[0].Parent {
			members = append(members, group.Members...)
		}
	}
	return members
}

func (c *Controller) served(done map[string]usage) bytesDone {
	step := bytesDone{each: map[string]float64{}}
	for _, group := range c.groups {
		for _, m := range group.Members {
			step.each[m.Cgroup] = float64(done[m.Cgroup].charged() + done[m.Cgroup].hidden)
		}
	}
	for _, m := range c.outermost() {
		step.all += step.each[m.Cgroup]
	}
	return step
}

// throughput is the mean rate of all containers together and of each.
type throughput struct {
	all  law.Mean
	each map[string]law.Mean
}

func (t *throughput) add(step bytesDone, seconds, memorySeconds float64) {
	t.all.Add(step.all, seconds, memorySeconds)
	if t.each == nil {
		t.each = map[string]law.Mean{}
	}
	for cgroup, bytes := range step.each {
		m := t.each[cgroup]
		m.Add(bytes, seconds, memorySeconds)
		t.each[cgroup] = m
	}
	maps.DeleteFunc(t.each, func(cgroup string, _ law.Mean) bool { _, exists := step.each[cgroup]; return !exists })
}

// copied does not change with t.
func (t throughput) copied() throughput { return throughput{t.all, maps.Clone(t.each)} }

// of gives the rates of all and of one of the members of a group; "": of none.
func (t throughput) of(cgroup string, groups []Group) rates {
	one := t.each[cgroup]
	return rates{all: t.all.Rate(), one: one.Rate(), due: t.due(cgroup, groups)}
}

// due is what a container's ideal weight gives it of what it and its siblings do.
func (t throughput) due(cgroup string, groups []Group) float64 {
	for _, group := range groups {
		var own, ideals, all float64
		for _, m := range group.Members {
			each := t.each[m.Cgroup]
			if m.Cgroup == cgroup {
				own = float64(m.Ideal)
			}
			if m.Cgroup == cgroup || each.Rate() > 0 {
				ideals += float64(m.Ideal)
				all += each.Rate()
			}
		}
		if own > 0 {
			return own / ideals * all
		}
	}
	return 0
}

// rates are those of all containers and of one of them, in bytes per second, and what is due
// to that one.
type rates struct{ all, one, due float64 }

// reach reports whether those of all, and of the one, are at least that part of what the
// others are. What the one had beyond what is due to it does not count: control takes that from
// it, and for a while the arrears of that, too.
func (r rates) reach(part float64, others rates) bool {
	wanted := others.one
	if beyond := others.one - others.due; beyond > 0 {
		wanted -= beyond + min(beyond, law.ArrearsPart*others.all)
	}
	return r.all >= part*others.all && r.one >= part*wanted
}

// leastPart is the part of the disk that counts for a container with less than that.
const leastPart = 0.001

// worth compares two throughputs by the geometric mean of the containers' rates, weighted by
// their shares: what proportional fairness maximizes (Kelly, Maulloo and Tan 1998). If the shares
// are the same in both, the ratio is that of the sums. A container whose bytes cost more than
// others', because it seeks, lowers the sum if it has its share, but raises this. Of groups within
// groups the innermost containers count. One that did nothing in a, or is in only one of both,
// does not: it came or ended meanwhile.
func worth(groups []Group, a, b throughput) (ofA, ofB float64) {
	var shares, logA, logB float64
	least := leastPart * max(a.all.Rate(), b.all.Rate())
	for cgroup, share := range innermost(groups) {
		rateA, inA := a.each[cgroup]
		rateB, inB := b.each[cgroup]
		if !inA || !inB || !(rateA.Rate() > 0) || !(least > 0) {
			continue
		}
		shares += share
		logA += share * math.Log(max(rateA.Rate(), least))
		logB += share * math.Log(max(rateB.Rate(), least))
	}
	if !(shares > 0) {
		return 0, 0
	}
	return math.Exp(logA / shares), math.Exp(logB / shares)
}

// innermost gives the part of the disk that is due to each container without controlled
// containers below it.
func innermost(groups []Group) map[string]float64 {
	ideals := map[string]float64{}  // of a group, by its parent
	parents := map[string]string{}  // of a member
	weights := map[string]float64{} // of a member
	for _, group := range groups {
		for _, m := range group.Members {
			ideals[group.Parent] += float64(m.Ideal)
			parents[m.Cgroup], weights[m.Cgroup] = group.Parent, float64(m.Ideal)
		}
	}
	shares := map[string]float64{}
	for cgroup := range parents {
		if ideals[cgroup] > 0 {
			continue // it is the parent of others
		}
		share := 1.0
		for at, ok := cgroup, true; ok; {
			share *= weights[at] / ideals[parents[at]]
			at = parents[at]
			_, ok = parents[at]
		}
		shares[cgroup] = share
	}
	return shares
}

// fewerSeconds is how long fewer containers must be active until the throughput with more of
// them is compared with nothing any more.
const fewerSeconds = 60.0

// fewer is the time in which fewer containers are active than at an earlier time, and the most
// of them.
type fewer struct {
	seconds float64
	most    int
}

// add enters a step. It returns the most containers that were active since there are fewer than
// before, and whether that has lasted. While none is active, nothing can be measured.
func (f *fewer) add(active, before int, seconds float64) (most int, lasting bool) {
	if active >= before {
		*f = fewer{}
		return active, false
	}
	if active > 0 {
		f.seconds += seconds
		f.most = max(f.most, active)
	}
	return f.most, f.seconds >= fewerSeconds
}

// stallPart is the part of the throughput before below which a disk stalls.
const stallPart = 0.5

// stall is the time in which containers together do less than stallPart of what they did at an
// earlier time, the most that are active in it, and what they do.
type stall struct {
	seconds float64
	most    int
	rate    throughput
}

// add enters a step; before is the earlier rate. lasting: the disk has stalled for so long that
// its throughput is known. A container that is starved counts as one that is not active.
func (s *stall) add(step bytesDone, active int, before, seconds float64) (lasting bool) {
	if active == 0 {
		return false
	}
	if s.rate.add(step, seconds, tunedSeconds); s.rate.all.Rate() >= stallPart*before {
		s.seconds, s.most = 0, 0
		return false
	}
	s.seconds += seconds
	s.most = max(s.most, active)
	return s.seconds >= tunedSeconds
}

// activity is the time since each container was charged something, in seconds, by cgroup.
type activity map[string]float64

// count enters a step, and returns how many of the members are active. A container that waits
// for a commit, or for its slice, is charged nothing in some steps.
func (a activity) count(seconds float64, members []Member, done map[string]usage) (active int) {
	known := make(map[string]bool, len(members))
	for _, m := range members {
		known[m.Cgroup] = true
		quiet, seen := a[m.Cgroup]
		switch {
		case done[m.Cgroup].charged() > 0:
			quiet = 0
		case !seen:
			quiet = math.Inf(1)
		default:
			quiet += seconds
		}
		a[m.Cgroup] = quiet
		if quiet < law.WindowSeconds {
			active++
		}
	}
	maps.DeleteFunc(a, func(cgroup string, _ float64) bool { return !known[cgroup] })
	return active
}
