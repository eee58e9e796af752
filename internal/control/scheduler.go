package control

import (
	"fmt"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/control/judge"
	"github.com/daybook-project/daybook/internal/control/law"
)

// schedulerTrust records whether the disk's scheduler follows its weights, and what enforces
// the shares therefore.
type schedulerTrust struct {
	judge.Trust
	actuatorChoice
	// windows are by the group's parent. All end in the same step, so that a window
	// without evidence does not interrupt another one. elapsedSeconds is their age.
	windows        map[string]*judge.Obedience
	elapsedSeconds float64
	// verdict and seconds are those of the windows that ended in this interval;
	// worst is the clearest of them.
	verdict judge.Verdict
	seconds float64
	worst   *judge.Obedience
	// shortfalls are by the group's parent, missed what the worst of them said in this
	// interval; lack is negative while there is none. few and fewOthers are what it said of
	// the sibling that lacks, and of those that lack what another has too much.
	shortfalls     map[string]*judge.Shortfall
	missed         judge.Missed
	few, fewOthers bool
	hidden         float64
	// fresh: in a window of this interval a container began to do I/O, or got another weight.
	// partial: one is known for a part of its window only.
	fresh, partial bool
	// passing is what io.cost neither counts nor holds back.
	passing passing
	// observed: the first windows have ended.
	observed bool
	// control is what other programs see.
	control account.Control
}

func (s *schedulerTrust) reset() {
	*s = schedulerTrust{
		actuatorChoice: actuatorChoice{activity: activity{}, pauseSeconds: firstPause, beyond: map[string]float64{}},
		windows:        map[string]*judge.Obedience{}, shortfalls: map[string]*judge.Shortfall{}, missed: judge.Missed{Lack: -1},
		control: account.Control{Actuator: account.ActuatorWeights},
	}
}

// observeScheduler enters one group's step.
func (c *Controller) observeScheduler(group Group, seconds float64, siblings []law.Observation) {
	s := &c.scheduler
	window := s.windows[group.Parent]
	if window == nil {
		window = &judge.Obedience{Seconds: s.elapsedSeconds} // its members are observed in the next one
		s.windows[group.Parent] = window
	}
	if c.state.Scheduler == blockdev.BFQ || c.host.CostDivides {
		shares := s.shortfalls[group.Parent]
		if shares == nil {
			shares = &judge.Shortfall{Seconds: s.elapsedSeconds}
			s.shortfalls[group.Parent] = shares
		}
		if shares.Add(seconds, siblings) {
			s.hidden = max(s.hidden, shares.Hidden)
			s.fresh, s.partial = s.fresh || shares.Fresh, s.partial || shares.Partial
			if shares.Excess > s.missed.Excess {
				s.missed.Excess, s.missed.Greedy, s.fewOthers = shares.Excess, shares.Greedy, shares.FewOthers
			}
			if s.missed.Lack < 0 || shares.Lack > s.missed.Lack {
				s.missed.Lack, s.missed.Short, s.few = shares.Lack, shares.Short, shares.Few
			}
		}
	}
	// A window ends with the step that is nearest to judge.WindowSeconds. On a busy host steps last
	// longer, and then it can be a little shorter than that: two windows in a row are two all
	// the same.
	length := max(judge.WindowSeconds, window.Seconds+seconds)
	v, ended := window.Add(seconds, siblings)
	if !ended {
		return
	}
	if window.Ratio > 0 {
		c.log.Debug("compared what was served with the weights", "below", group.Parent, "ratio", window.Ratio, "most", window.Most, "least", window.Least)
	}
	s.seconds = max(s.seconds, length)
	if v == judge.Ignores && (s.verdict != judge.Ignores || window.Ratio > s.worst.Ratio) || v == judge.Follows && s.verdict == judge.NoEvidence {
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
		s.Restart()
		return
	}
	if s.elapsedSeconds += seconds; s.elapsedSeconds >= judge.WindowSeconds-seconds/2 {
		s.elapsedSeconds = 0
		for parent, w := range s.windows {
			if w.Seconds > 0 { // it missed a step
				s.windows[parent] = &judge.Obedience{}
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
	c.observePassing(seconds, step, done)
	active := s.activity.count(seconds, c.outermost(), done)
	if !s.limiting {
		s.observeRate(seconds, step, active)
	}
	checking := c.tuning.check.level > 0
	c.judgeTunables(seconds, step, active)
	// What a step under the tunables as found says decides nothing.
	checking = checking || c.tuning.check.level > 0
	tuned := !checking && c.tuneIfNeeded()
	bounds := c.bounds()
	s.observed = s.observed || s.seconds > 0
	changed := !tuned && !checking && s.seconds > 0 && s.Take(s.verdict, s.missed, bounds, s.seconds)
	missed := s.missed
	worst, short, greedy, reason := s.worst, s.Short, s.Greedy, s.outOfReach()
	s.forgetStep()
	before := s.control
	advice := ""
	if changed && s.Ignored {
		advice = c.advice(reason) // about the tunables in force until now: limits need none of them
	}
	c.chooseActuator(seconds, step, active)
	switch {
	case changed && s.Ignored && bounds != judge.Usual && max(short.Seconds, greedy.Seconds) >= bounds.Seconds:
		c.log.Warn(c.whyCost(missed, max(short.Seconds, greedy.Seconds)), "device", c.disk.Device, "actuator", s.actuator())
	case changed && s.Ignored && short.Seconds >= judge.ShortSeconds:
		c.log.Warn(fmt.Sprintf("weights have not held the shares: for %.0f s in all, %s has lacked more than %.0f %% of the disk that is due to it, and others had that; %s",
			short.Seconds, c.who(short.ID), 100*judge.ShortPart, advice), "device", c.disk.Device, "actuator", s.actuator())
	case changed && s.Ignored && greedy.Seconds >= judge.ShortSeconds:
		c.log.Warn(fmt.Sprintf("weights have not held the shares: for %.0f s in all, %s has had more than %.0f %% of the disk beyond what is due to it, and others lacked that; %s",
			greedy.Seconds, c.who(greedy.ID), 100*judge.ShortPart, advice), "device", c.disk.Device, "actuator", s.actuator())
	case changed && s.Ignored:
		c.log.Warn(fmt.Sprintf("the scheduler has not followed its weights for %.0f s: %s got %.1f times as many bytes for its weight as %s, and both had requests waiting all the time; %s",
			judge.VerdictSeconds, c.who(worst.Most), worst.Ratio, c.who(worst.Least), advice), "device", c.disk.Device, "actuator", s.actuator())
	case changed:
		c.log.Info("the scheduler follows its weights again, and they hold the shares", "device", c.disk.Device)
	}
	if s.Ignored && !s.limiting {
		// Not only when that changes: it can be known before it is known what the tunables cost.
		c.doubtTunables(short.ID, active)
	}
	s.control = account.Control{Actuator: s.actuator(), WeightsIgnored: s.Ignored}
	if s.control != before {
		c.publish(c.ideals)
	}
}

// forgetStep forgets what the windows that ended in the step say.
func (s *schedulerTrust) forgetStep() {
	s.verdict, s.seconds, s.worst, s.missed, s.hidden = judge.NoEvidence, 0, nil, judge.Missed{Lack: -1}, 0
	s.few, s.fewOthers, s.fresh, s.partial = false, false, false, false
}

// forgetWindows begins new windows with the next step.
func (c *Controller) forgetWindows() {
	s := &c.scheduler
	clear(s.windows)
	clear(s.shortfalls)
	s.elapsedSeconds = 0
}
