package control

import "fmt"

// How it is judged what tunables cost; docs/control-scheduler.md says how these were chosen.
const (
	// tunedSettle is how long the first seconds under new tunables do not count, and
	// tunedSeconds how long the throughput is measured then.
	tunedSettle, tunedSeconds = 2.0, 10.0
	// tunedPart is the part of the throughput before that is enough: that of the disk, and
	// that of the container that the tunables are to help.
	tunedPart = 0.8
	// checkSeconds is the longest time of a check.
	checkSeconds = 60.0
	// doubtSeconds is the shortest time from one doubt to the next.
	doubtSeconds = 600.0
)

// measurement is that of the tunables in force.
type measurement struct {
	// seconds is how long they are in force, rate what containers do since, while as many are
	// active as before; judged: the rate is known.
	seconds float64
	rate    throughput
	judged  bool
	fewer   fewer
	stall   stall
}

// check is a second measurement under the tunables as found, while they are in force again. The
// disk or the load may have changed since the first: then it is not the tunables that cost.
type check struct {
	// level is that under test; 0: there is no check. names are its tunables.
	level int
	names string
	// rate is what containers did under them, seconds how long the check lasts.
	rate    rates
	seconds float64
	// sofar is what containers do in it, however many are active.
	sofar throughput
}

// busier enters a step of the check. It reports whether the containers do so much more than under
// the tunables that it is clear what these cost, also if fewer containers are active: without the
// tunables the scheduler starves the others.
func (k *check) busier(step bytesDone, seconds float64) bool {
	if k.seconds <= tunedSettle {
		return false
	}
	k.sofar.add(step, seconds, tunedSeconds)
	return k.seconds >= tunedSettle+tunedSeconds && k.rate.all < tunedPart*k.sofar.all.Rate()
}

// judgeTunables restores tunables that cost too much of the throughput. step is what
// the containers did in the step, active how many do something.
func (c *Controller) judgeTunables(seconds float64, step bytesDone, active int) {
	t := &c.tuning
	t.doubtedSeconds = max(0, t.doubtedSeconds-seconds)
	if t.forgiveSeconds > 0 {
		if t.forgiveSeconds -= seconds; t.forgiveSeconds <= 0 {
			t.refused = 0
		}
	}
	checking, busier := t.check.level > 0, false
	if t.level == 0 && !checking || t.judged || c.scheduler.limiting || c.options.DryRun {
		return
	}
	if checking {
		if t.check.seconds += seconds; t.check.seconds > checkSeconds {
			c.refuse(t.base)
			return
		}
		busier = t.check.busier(step, seconds)
	} else if t.stall.add(step, active, t.base.all.Rate(), seconds) {
		// Fewer may be active because they are starved. Those that were are enough to measure.
		t.active, t.fewer = t.stall.most, fewer{}
		c.beginCheck(t.stall.rate.of(t.short, c.groups))
		return
	}
	most, lasting := t.fewer.add(active, t.active, seconds)
	if lasting && !checking {
		// What so many do is measured with the tunables, and then without.
		t.active, t.doubt, t.fewer = most, "fewer containers are active than before control set", fewer{}
	}
	if active < t.active {
		// Fewer of them do less, whatever the tunables.
		t.seconds, t.rate = 0, throughput{}
		if busier {
			// Another may have ended, or paused, at the start of the check. So this verdict
			// does not hold for good.
			t.active = active
			c.refuse(t.check.sofar)
			t.forgiveSeconds = doubtSeconds
		}
		return
	}
	if t.seconds += seconds; t.seconds <= tunedSettle {
		return
	}
	t.rate.add(step, seconds, tunedSeconds)
	if t.seconds < tunedSettle+tunedSeconds {
		return
	}
	rate := t.rate.of(t.short, c.groups)
	switch {
	case !checking && t.doubt == "" && rate.reach(tunedPart, t.base.of(t.short, c.groups)):
		if t.judged = true; c.scheduler.Ignored {
			t.doubtedSeconds = doubtSeconds // they were measured while the shares were missed
		}
	case !checking:
		c.beginCheck(rate)
	case t.check.rate.reach(tunedPart, rate):
		c.confirm()
	default:
		c.refuse(t.rate)
	}
}

// doubtTunables measures again what the tunables cost, with and without them, while the
// shares are missed with them, too. The load can have changed since they were judged.
func (c *Controller) doubtTunables(short string, active int) {
	t := &c.tuning
	if t.level == 0 || !t.judged || t.doubtedSeconds > 0 {
		return
	}
	if short != "" {
		t.short = short
	}
	t.active, t.doubt, t.doubtedSeconds = active, "shares are missed with", doubtSeconds
	t.measurement = measurement{}
}

// comparison gives the rate that tunables lower, of the disk or of the container that they
// are to help, with and without them.
func (c *Controller) comparison(with, without rates) string {
	if with.all < tunedPart*without.all || c.tuning.short == "" {
		return fmt.Sprintf("the disk does %.1f MB/s, and %.1f MB/s without", with.all/1e6, without.all/1e6)
	}
	return fmt.Sprintf("%s does %.2f MB/s, and %.2f MB/s without", c.who(c.tuning.short), with.one/1e6, without.one/1e6)
}

// beginCheck restores the tunables as found, to measure the disk with them again. rate is what
// was measured under those that are set.
func (c *Controller) beginCheck(rate rates) {
	t := &c.tuning
	t.check = check{level: t.level, names: c.tunedNames(), rate: rate}
	why := t.doubt + " BFQ's tunables " + t.check.names
	if t.doubt == "" {
		why = fmt.Sprintf("with BFQ's tunables %s %s", t.check.names, c.comparison(rate, t.base.of(t.short, c.groups)))
	}
	t.doubt = ""
	c.log.Info(why+"; control restores them for a while, to measure again", "device", c.disk.Device)
	c.changeLevel(0)
}

// confirm sets the tunables again: the disk does as little without them.
func (c *Controller) confirm() {
	t := &c.tuning
	c.log.Info(fmt.Sprintf("with BFQ's tunables %s %s; control sets them again", t.check.names, c.comparison(t.check.rate, t.rate.of(t.short, c.groups))),
		"device", c.disk.Device)
	level, base := t.check.level, t.rate
	t.base, t.check = base, check{}
	c.changeLevel(level)
	t.judged = true
}

// refuse restores what was set last. base is what containers do without.
func (c *Controller) refuse(base throughput) {
	t := &c.tuning
	c.log.Warn(fmt.Sprintf("BFQ's tunables %s cost throughput: %s; control restores what it set last", t.check.names, c.comparison(t.check.rate, base.of(t.short, c.groups))),
		"device", c.disk.Device)
	t.refused, t.forgiveSeconds = t.check.level, 0
	for t.refused > 1 && !c.changes(t.refused, t.refused) {
		t.refused-- // those as found are in force, and the level has none of its own here
	}
	t.base, t.check = base, check{}
	c.changeLevel(t.refused - 1)
}

// changeLevel sets or restores tunables, and measures anew.
func (c *Controller) changeLevel(level int) {
	t := &c.tuning
	t.level, t.missedSeconds, t.measurement = level, 0, measurement{}
	c.holdTunablesOrLog()
	c.forgetWindows()
	c.answerAnew()
}
