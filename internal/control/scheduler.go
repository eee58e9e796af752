package control

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/blockdev"
)

// schedulerTrust records whether the disk's scheduler follows its weights.
type schedulerTrust struct {
	trust
	// windows are by the group's parent. All end in the same step, so that a window
	// without evidence does not interrupt another one. elapsedSeconds is their age.
	windows        map[string]*obedience
	elapsedSeconds float64
	// verdict and seconds are those of the windows that ended in this interval;
	// worst is the clearest of them.
	verdict verdict
	seconds float64
	worst   *obedience
	// shortfalls are by the group's parent, missed what the worst of them said in this
	// interval, few what it said of the sibling that lacks; lack is negative while there
	// is none.
	shortfalls map[string]*shortfall
	missed     missed
	few        bool
	hidden     float64
	// observed: the first windows have ended.
	observed bool
	// control is what other programs see.
	control account.Control

	// limiting means that limits enforce the shares, and the weights in force are
	// the ideal ones.
	limiting bool
	// retrying means that weights are in force although they were not followed
	// before.
	retrying bool
	// waitSeconds is the time until the other means is tried. pauseSeconds is how
	// long limits are kept the next time.
	waitSeconds, pauseSeconds float64
	// calmSeconds is how long weights have been in force and not ignored.
	calmSeconds float64
	// limitedSeconds is how long limits have been in force. weightsRate and
	// limitsRate are the throughput under weights and under limits, with as many
	// active containers.
	limitedSeconds float64
	weightsRate    throughput
	limitsRate     mean
	active         int
	fewer          fewer
	activity       activity
}

// How limits and weights alternate if weights are not followed.
const (
	// firstPause is how long limits are kept before weights are tried again. It
	// doubles each time that this fails, up to lastPause. It is firstPause again once weights
	// were followed for as long as it is.
	firstPause, lastPause = 120.0, 1800.0
	// retrySeconds is how long weights must be ignored again to end the try.
	retrySeconds = 10.0
	// rateSeconds is the time constant of the disk's throughput.
	rateSeconds = 15.0
	// costSeconds is how long limits are in force before the throughputs are
	// compared. Less than costPart of the throughput under weights is too little.
	costSeconds, costPart = 30.0, 0.5
)

func (s *schedulerTrust) reset() {
	*s = schedulerTrust{activity: activity{}, windows: map[string]*obedience{}, shortfalls: map[string]*shortfall{}, missed: missed{lack: -1}, pauseSeconds: firstPause, control: account.Control{Actuator: account.ActuatorWeights}}
}

// observeScheduler enters one group's step.
func (c *Controller) observeScheduler(group Group, seconds float64, siblings []Observation) {
	s := &c.scheduler
	window := s.windows[group.Parent]
	if window == nil {
		window = &obedience{seconds: s.elapsedSeconds} // its members are observed in the next one
		s.windows[group.Parent] = window
	}
	if c.state.Scheduler == blockdev.BFQ {
		shares := s.shortfalls[group.Parent]
		if shares == nil {
			shares = &shortfall{seconds: s.elapsedSeconds}
			s.shortfalls[group.Parent] = shares
		}
		if shares.add(seconds, siblings) {
			s.hidden = max(s.hidden, shares.hidden)
			if shares.excess > s.missed.excess {
				s.missed.excess, s.missed.greedy = shares.excess, shares.greedy
			}
			if s.missed.lack < 0 || shares.lack > s.missed.lack {
				s.missed.lack, s.missed.short, s.few = shares.lack, shares.short, shares.few
			}
		}
	}
	// A window ends with the step that is nearest to judgeSeconds. On a busy host steps last
	// longer, and then it can be a little shorter than that: two windows in a row are two all
	// the same.
	length := max(judgeSeconds, window.seconds+seconds)
	v, ended := window.add(seconds, siblings)
	if !ended {
		return
	}
	if window.ratio > 0 {
		c.log.Debug("compared what was served with the weights", "below", group.Parent, "ratio", window.ratio, "most", window.most, "least", window.least)
	}
	s.seconds = max(s.seconds, length)
	if v == ignores && (s.verdict != ignores || window.ratio > s.worst.ratio) || v == follows && s.verdict == noEvidence {
		s.verdict, s.worst = v, window
	}
}

// judgeScheduler draws the conclusion from the windows of all groups, and chooses
// the means that enforces the shares in the next step.
func (c *Controller) judgeScheduler(seconds float64, done map[string]usage) {
	s := &c.scheduler
	if c.late {
		// Control was stopped, or the host had no processor for it. So nothing corrected
		// the weights or the limits, and that the shares were missed is not their fault.
		c.forgetWindows()
		s.forgetStep()
		s.restart()
		return
	}
	if s.elapsedSeconds += seconds; s.elapsedSeconds >= judgeSeconds-seconds/2 {
		s.elapsedSeconds = 0
		for parent, w := range s.windows {
			if w.seconds > 0 { // it missed a step
				s.windows[parent] = &obedience{}
				delete(s.shortfalls, parent)
			}
		}
	}
	for parent := range s.windows {
		if c.laws[parent] == nil {
			delete(s.windows, parent) // the group is gone
			delete(s.shortfalls, parent)
		}
	}
	step := c.served(done)
	active := s.activity.count(seconds, c.outermost(), done)
	if !s.limiting {
		s.observeRate(seconds, step, active)
	}
	checking := c.tuning.check.level > 0
	c.judgeTunables(seconds, step, active)
	// What a step under the tunables as found says decides nothing.
	checking = checking || c.tuning.check.level > 0
	tuned := !checking && c.tuneIfShort()
	s.observed = s.observed || s.seconds > 0
	changed := !tuned && !checking && s.seconds > 0 && s.take(s.verdict, s.missed, s.seconds)
	worst, short, greedy := s.worst, s.short, s.greedy
	s.forgetStep()
	before := s.control
	c.chooseActuator(seconds, step.all, active)
	switch {
	case changed && s.ignored && short.seconds >= shortSeconds:
		c.log.Warn(fmt.Sprintf("weights have not held the shares for %.0f s: %s has lacked more than %.0f %% of the disk that is due to it, and others had that; %s",
			shortSeconds, short.id, 100*shortPart, c.advice()), "device", c.disk.Device, "actuator", s.actuator())
	case changed && s.ignored && greedy.seconds >= shortSeconds:
		c.log.Warn(fmt.Sprintf("weights have not held the shares for %.0f s: %s has had more than %.0f %% of the disk beyond what is due to it, and others lacked that; %s",
			shortSeconds, greedy.id, 100*shortPart, c.advice()), "device", c.disk.Device, "actuator", s.actuator())
	case changed && s.ignored:
		c.log.Warn(fmt.Sprintf("the scheduler has not followed its weights for %.0f s: %s got %.1f times as many bytes for its weight as %s, and both had requests waiting all the time; %s",
			verdictSeconds, worst.most, worst.ratio, worst.least, c.advice()), "device", c.disk.Device, "actuator", s.actuator())
	case changed:
		c.log.Info("the scheduler follows its weights again, and they hold the shares", "device", c.disk.Device)
	}
	if s.ignored && !s.limiting {
		// Not only when that changes: it can be known before it is known what the tunables cost.
		c.doubtTunables(short.id, active)
	}
	s.control = account.Control{Actuator: s.actuator(), WeightsIgnored: s.ignored}
	if s.control != before {
		c.publish(c.ideals)
	}
}

// forgetStep forgets what the windows that ended in the step say.
func (s *schedulerTrust) forgetStep() {
	s.verdict, s.seconds, s.worst, s.missed, s.few, s.hidden = noEvidence, 0, nil, missed{lack: -1}, false, 0
}

// forgetWindows begins new windows with the next step.
func (c *Controller) forgetWindows() {
	s := &c.scheduler
	clear(s.windows)
	clear(s.shortfalls)
	s.elapsedSeconds = 0
}

// observeRate keeps what the disk does under weights, while most of the containers are
// active: as many as ever, or as the most of the last time.
func (s *schedulerTrust) observeRate(seconds float64, step bytesDone, active int) {
	most, lasting := s.fewer.add(active, s.active, seconds)
	if active > s.active || lasting {
		s.active, s.weightsRate, s.fewer = most, throughput{}, fewer{}
	}
	if active == s.active {
		s.weightsRate.add(step, seconds, rateSeconds)
	}
}

func (s *schedulerTrust) actuator() string {
	if s.limiting {
		return account.ActuatorLimits
	}
	return account.ActuatorWeights
}

// tuneIfShort sets tunables if the windows that ended say that they matter.
func (c *Controller) tuneIfShort() bool {
	s := &c.scheduler
	if s.seconds == 0 || s.limiting {
		return false
	}
	ignored := s.verdict == ignores && s.ignoredSeconds+s.seconds >= verdictSeconds
	part := s.missed.worst()
	if c.tuning.missedSeconds += s.seconds; part <= lastingPart {
		c.tuning.missedSeconds = 0
	}
	level := 0
	switch {
	case ignored || part > strictPart || s.few && s.missed.lack > tunePart:
		level = c.helps(true)
	case part > tunePart && c.tuning.level == 0 || c.tuning.missedSeconds >= shortSeconds:
		level = c.helps(false)
	case s.hidden > hiddenPart:
		if level = c.helps(false); level > 1 {
			level = 0
		}
	}
	switch {
	case level == 0:
		return false
	case part > tunePart && part == s.missed.lack:
		c.tune(level, s.missed.short, fmt.Sprintf("%s lacked %.0f %% of the disk that is due to it for %.0f s", s.missed.short, 100*part, s.seconds))
	case part > tunePart:
		short := ""
		if s.missed.lack > tunePart {
			short = s.missed.short // what one has too much, several lack: this one most
		}
		c.tune(level, short, fmt.Sprintf("%s had %.0f %% of the disk beyond what is due to it for %.0f s, and others lacked that", s.missed.greedy, 100*part, s.seconds))
	case !ignored:
		c.tune(level, "", fmt.Sprintf("a container's journal and metadata are %.0f %% of the disk", 100*s.hidden))
	default:
		c.tune(level, "", fmt.Sprintf("the scheduler has not followed its weights for %.0f s", verdictSeconds))
	}
	return true
}

// canLimit reports whether limits may enforce the shares.
func (c *Controller) canLimit() bool {
	return c.host.Limits != nil && c.config.Actuator != ActuatorWeights
}

// mustLimit reports whether no other means can.
func (c *Controller) mustLimit() bool {
	return c.canLimit() && (c.host.Unweighted || c.config.Actuator == ActuatorLimits)
}

// chooseActuator changes from weights to limits while the scheduler does not follow
// the weights, and tries weights again after longer and longer pauses. bytes is the
// I/O of the containers in the step, active the number of those with I/O.
func (c *Controller) chooseActuator(seconds, bytes float64, active int) {
	s := &c.scheduler
	if c.mustLimit() || !c.canLimit() {
		if limiting := c.mustLimit(); limiting != s.limiting {
			c.useLimits(limiting)
		}
		return
	}
	s.waitSeconds = max(0, s.waitSeconds-seconds)
	if !s.limiting {
		if !s.ignored {
			s.retrying = false
			if s.calmSeconds += seconds; s.calmSeconds >= s.pauseSeconds {
				s.pauseSeconds = firstPause
			}
			return
		}
		s.calmSeconds = 0
		if s.waitSeconds > 0 || s.retrying && max(s.ignoredSeconds, s.missedSeconds()) < retrySeconds {
			return
		}
		if cgroup := c.unreachable(); cgroup != "" {
			c.warnUnreachable(cgroup)
			return
		}
		if s.retrying {
			s.pauseSeconds = min(lastPause, 2*s.pauseSeconds)
		}
		s.waitSeconds = s.pauseSeconds
		c.useLimits(true)
		return
	}
	if s.limitedSeconds += seconds; active < s.active {
		// Fewer containers do less I/O, with and without limits.
		s.limitedSeconds, s.limitsRate = 0, mean{}
	}
	s.limitsRate.add(bytes, seconds, rateSeconds)
	if s.limitedSeconds > costSeconds && s.limitsRate.rate() < costPart*s.weightsRate.all.rate() && s.waitSeconds > 0 {
		c.log.Warn(fmt.Sprintf("limits cost the disk's throughput: %.1f MB/s, and %.1f MB/s by weights that are not followed; weights are tried again, and limits in %.0f s",
			s.limitsRate.rate()/1e6, s.weightsRate.all.rate()/1e6, s.pauseSeconds), "device", c.disk.Device)
		c.useLimits(false)
		s.retrying, s.waitSeconds = true, s.pauseSeconds
		return
	}
	if s.waitSeconds == 0 {
		c.useLimits(false)
		s.retrying = true
	}
}

// useLimits changes the means that enforces the shares, from the next step on.
func (c *Controller) useLimits(limiting bool) {
	s := &c.scheduler
	s.limiting = limiting
	s.limitedSeconds, s.limitsRate = 0, mean{}
	s.restart()
	c.forgetWindows()
	clear(c.limitLaws)
	for parent, law := range c.laws {
		if f, ok := law.(*Feedback); ok && limiting {
			c.limitLaws[parent] = f.limits()
		}
	}
	clear(c.laws)
	if c.tuning.level > 0 {
		// Limits need none of BFQ's tunables.
		if err := c.holdTunables(); err != nil {
			c.log.Error("cannot set the scheduler's tunables", "error", err)
		}
	}
	c.log.Debug("another actuator", "actuator", s.actuator())
}

// steerByLimits applies the limit law to one group.
func (c *Controller) steerByLimits(group Group, seconds float64, members []*governed, observations []Observation, total float64) []WeightDecision {
	law := c.limitLaws[group.Parent]
	if law == nil {
		law = NewLimitLaw()
		c.limitLaws[group.Parent] = law
	}
	r := c.host.Weights.Range()
	decisions := make([]WeightDecision, len(members))
	var ideals float64
	for _, o := range observations {
		ideals += o.Ideal
	}
	for n, limit := range law.Next(seconds, observations) {
		g, o := members[n], observations[n]
		c.held[g.Cgroup] = splitLimit(limit, g.reads.rate(), g.writes.rate())
		decisions[n] = WeightDecision{Cgroup: g.Cgroup, Ideal: uint64(o.Ideal), Before: uint64(o.Weight), After: uint64(o.Weight), TargetShare: o.Ideal / ideals}
		if total > 0 {
			decisions[n].Share = (o.JournalBytes + o.OtherBytes) / total
		}
		if !g.changed && !c.host.Unweighted {
			decisions[n].After = max(r.Min, min(r.Max, g.ideal))
			c.write(g, decisions[n].After, "limits hold the shares")
		}
	}
	return decisions
}

// splitLimit divides a limit on reads and writes together by the bytes read and
// written per second lately. Each may use what the other leaves, and has some room.
// Rare reads or writes have no limit. No limit is below leastLimit: one large write
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
		return uint64(math.Max(math.Min(limit, leastLimit), limit*math.Min(1, part*(1-left)+left+room)))
	}
	return Limits{Read: of(part), Write: of(1 - part)}
}

// advice is the setting that helps if weights are ignored, and its command.
func (c *Controller) advice() string {
	scheduler := ""
	if c.host.Tunables != nil {
		scheduler, _ = c.host.Tunables.Scheduler() // unknown: like any other than BFQ
	}
	if scheduler != blockdev.BFQ {
		return fmt.Sprintf("measure the disk, and give io.cost its model: daybook calibrate --io-cost %s prints the commands", c.disk.Device)
	}
	// Without idling, BFQ does not remember a reader of one request at a time from
	// one request to the next.
	if idle, err := c.host.Tunables.Get(sliceIdle); err == nil && strings.TrimSpace(idle) == "0" {
		return fmt.Sprintf("it is BFQ with slice_idle = 0; restore its default: echo 8 > /sys/block/%s/queue/iosched/slice_idle", c.disk.Device)
	}
	if text, err := c.host.Tunables.Get(nrRequests); err == nil {
		if requests, err := strconv.ParseUint(strings.TrimSpace(text), 10, 64); err == nil && requests < enoughRequests {
			return fmt.Sprintf("it is BFQ with nr_requests = %d: requests beyond that wait where no weight counts; write tunables: {nr_requests: %d} into the configuration, or: echo %d > /sys/block/%s/queue/nr_requests",
				requests, enoughRequests, enoughRequests, c.disk.Device)
		}
	}
	for _, t := range []struct{ name, good string }{{lowLatency, "0"}, {strictGuarantees, "1"}} {
		value, err := c.host.Tunables.Get(t.name)
		if value = strings.TrimSpace(value); err == nil && value != t.good {
			return fmt.Sprintf("it is BFQ with %s = %s; write tunables: {%s: %s} into the configuration, or: echo %s > /sys/block/%s/queue/iosched/%s",
				t.name, value, t.name, t.good, t.good, c.disk.Device, t.name)
		}
	}
	return fmt.Sprintf("BFQ's tunables are as they should be; choose it again, so that it measures the disk again: cd /sys/block/%s/queue && echo none > scheduler && echo bfq > scheduler && echo 0 > iosched/low_latency && echo 1 > iosched/strict_guarantees; control then sets the tunables of its configuration",
		c.disk.Device)
}
