package control

import (
	"fmt"

	"github.com/daybook-project/daybook/internal/account"
)

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
	// costSeconds is how long limits are in force, with as many active containers, before
	// the throughputs are compared. Less than costPart of that under weights is too little,
	// of the sum and of the mean by shares.
	costSeconds, costPart = 30.0, 0.5
)

// actuatorChoice is what enforces the shares, and what it costs.
type actuatorChoice struct {
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
	// weightsRate and limitsRate are the throughput under weights and under limits, with as
	// many active containers. limitedSeconds is the time of limitsRate.
	limitedSeconds float64
	weightsRate    throughput
	limitsRate     throughput
	// priced: it was said in this time by limits that the shares cost throughput.
	priced bool
	// beyond is how long the share of a container was out of reach in this time by limits.
	beyond   map[string]float64
	active   int
	fewer    fewer
	activity activity
}

// observeRate keeps what the disk does under weights, while most of the containers are
// active: as many as ever, or as the most of the last time.
func (s *actuatorChoice) observeRate(seconds float64, step bytesDone, active int) {
	most, lasting := s.fewer.add(active, s.active, seconds)
	if active > s.active || lasting {
		s.active, s.weightsRate, s.fewer = most, throughput{}, fewer{}
	}
	if active == s.active {
		s.weightsRate.add(step, seconds, rateSeconds)
	}
}

func (s *actuatorChoice) actuator() string {
	if s.limiting {
		return account.ActuatorLimits
	}
	return account.ActuatorWeights
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
// the weights, and tries weights again after longer and longer pauses. step is the
// I/O of the containers in the step, active the number of those with I/O.
func (c *Controller) chooseActuator(seconds float64, step bytesDone, active int) {
	s := &c.scheduler
	if c.mustLimit() || !c.canLimit() {
		if limiting := c.mustLimit(); limiting != s.limiting {
			c.useLimits(limiting)
		}
		return
	}
	s.waitSeconds = max(0, s.waitSeconds-seconds)
	if !s.limiting {
		if !s.Ignored {
			s.retrying = false
			if s.calmSeconds += seconds; s.calmSeconds >= s.pauseSeconds {
				s.pauseSeconds = firstPause
			}
			return
		}
		s.calmSeconds = 0
		if s.waitSeconds > 0 || s.retrying && max(s.IgnoredSeconds, s.MissedSeconds()) < retrySeconds {
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
	if active >= s.active { // fewer containers do less I/O, with and without limits
		s.limitedSeconds += seconds
		s.limitsRate.add(step, seconds, rateSeconds)
	}
	if s.limitedSeconds > costSeconds && s.limitsRate.all.Rate() < costPart*s.weightsRate.all.Rate() && (s.waitSeconds > 0 || c.passesCost()) {
		rates := fmt.Sprintf("%.1f MB/s, and %.1f MB/s by weights that are not followed", s.limitsRate.all.Rate()/1e6, s.weightsRate.all.Rate()/1e6)
		before, now := worth(c.groups, s.weightsRate, s.limitsRate)
		if now < costPart*before {
			c.log.Warn(fmt.Sprintf("limits cost the disk's throughput: %s; weights are tried again, and limits in %.0f s", rates, s.pauseSeconds), "device", c.disk.Device)
			c.useLimits(false)
			s.retrying, s.waitSeconds = true, s.pauseSeconds
			return
		}
		if !s.priced {
			s.priced = true
			c.log.Info("limits stay, although all containers together do less than half: "+rates+
				"; bytes of those that lacked their share cost the disk more than those of others (to change that, give them lower weights)", "device", c.disk.Device)
		}
	}
	if s.waitSeconds == 0 && !c.passesCost() {
		c.useLimits(false)
		s.retrying = true
	}
}

// useLimits changes the means that enforces the shares, from the next step on.
func (c *Controller) useLimits(limiting bool) {
	s := &c.scheduler
	s.limiting = limiting
	s.limitedSeconds, s.limitsRate, s.priced, s.beyond = 0, throughput{}, false, map[string]float64{}
	s.Restart()
	c.forgetWindows()
	if limiting {
		c.limits.restart(c.laws)
	} else {
		c.limits.restart(nil)
	}
	clear(c.laws)
	if c.tuning.level > 0 {
		c.holdTunablesOrLog() // limits need none of BFQ's tunables
	}
	c.log.Debug("another actuator", "actuator", s.actuator())
}
