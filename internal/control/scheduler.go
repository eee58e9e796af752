package control

import (
	"fmt"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/blockdev"
)

// schedulerTrust records whether the disk's scheduler follows its weights, and what enforces
// the shares therefore.
type schedulerTrust struct {
	trust
	actuatorChoice
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
}

func (s *schedulerTrust) reset() {
	*s = schedulerTrust{
		actuatorChoice: actuatorChoice{activity: activity{}, pauseSeconds: firstPause},
		windows:        map[string]*obedience{}, shortfalls: map[string]*shortfall{}, missed: missed{lack: -1},
		control: account.Control{Actuator: account.ActuatorWeights},
	}
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
	tuned := !checking && c.tuneIfNeeded()
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
