package control

import (
	"fmt"
	"maps"
	"strconv"
	"strings"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/control/judge"
	"github.com/daybook-project/daybook/internal/control/law"
)

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
	// tunePart is the part of the disk that a sibling must lack in a window, or have too
	// much, for the tunables of BFQ to matter: those of the first level, and all of them for
	// one that keeps few requests outstanding. It is less than what counts as missed, because
	// intervals that miss the shares by far come some seconds later. lastingPart is the same
	// for the top level beside the first, in windows in a row, and strictPart in one window.
	// hiddenPart is the part that the hidden I/O of a sibling must be for those of the first
	// level: the law then changes the weights, and BFQ's own slices are too long for that.
	tunePart, lastingPart, strictPart, hiddenPart = 0.03, 0.04, 0.1, 0.05
)

// tuning is what a controller does about the tunables that the configuration leaves to it.
type tuning struct {
	// level is that of the tunables that are set: see levels. refused is the lowest that
	// cost too much here; 0: none did.
	level, refused int
	// missedSeconds is how long the windows have said under these that a container lacks a
	// part of its share, or has too much.
	missedSeconds float64
	// short is the container that lacked a part of its share when they were set; "": they were
	// set for another reason.
	short string
	// seconds is how long they are set, rate what containers do since, and base what
	// they did before the first, with as many active ones; judged: the rate is known.
	seconds float64
	rate    throughput
	base    throughput
	active  int
	fewer   fewer
	stall   stall
	judged  bool
	check   check
	// doubt is why a check is due whatever the rate was before; "": none is. doubtedSeconds is
	// the time until they may be doubted again because the shares are missed.
	doubt          string
	doubtedSeconds float64
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
	// fewer is what containers do while fewer of them are active than before, fewerSeconds how
	// long that has been.
	fewer        throughput
	fewerSeconds float64
}

// busier enters a step in which fewer containers are active than under the tunables. It reports
// whether these do so much more that it is clear what the tunables cost: without them the
// scheduler starves the others.
func (k *check) busier(step bytesDone, seconds float64) bool {
	if k.fewerSeconds += seconds; k.fewerSeconds <= tunedSettle {
		return false
	}
	k.fewer.add(step, seconds, tunedSeconds)
	return k.fewerSeconds >= tunedSettle+tunedSeconds && k.rate.all < tunedPart*k.fewer.all.Rate()
}

// levels are those of the tunables that cost throughput. They are set when shares are
// missed, one level after the other, and as long as weights hold the shares. The others
// are set at the start.
var levels = map[string]int{timeoutSync: 1, sliceIdle: 1, strictGuarantees: topLevel}

// topLevel costs throughput also where a disk seeks, and most of it elsewhere.
const topLevel = 2

// better is the value of a tunable that helps weights; ok is false where it has one.
func better(name string, value uint64) (best uint64, ok bool) {
	switch name {
	case sliceIdle:
		return longIdle, value < longIdle
	case timeoutSync:
		return tunedSlice, value > tunedSlice
	}
	weak, ok := weakTunable(name, value)
	return weak.Best, ok
}

// wantedTunables are the values to hold: those of the configuration, and of the others
// those that weights need, if the configuration leaves them to control.
func (c *Controller) wantedTunables() map[string]uint64 {
	wanted := maps.Clone(c.config.Tunables)
	if wanted == nil {
		wanted = map[string]uint64{}
	}
	for _, name := range c.freeTunables() {
		if level := levels[name]; level > c.tuning.level || level > 0 && c.scheduler.limiting {
			continue
		}
		value, known := c.tunable(name)
		if !known {
			continue
		}
		if best, ok := better(name, value); ok {
			wanted[name] = best
		} else if _, held := c.state.Tunables[name]; held {
			wanted[name] = value
		}
	}
	return wanted
}

// freeTunables are those of the disk that control may choose.
func (c *Controller) freeTunables() (free []string) {
	if !c.config.AutoTunables || c.host.Tunables == nil || c.mustLimit() || c.state.Scheduler != blockdev.BFQ {
		return nil
	}
	for _, name := range TunableNames() {
		if _, named := c.config.Tunables[name]; !named {
			free = append(free, name)
		}
	}
	return free
}

// tunable is the value in force of one that the disk's scheduler has.
func (c *Controller) tunable(name string) (value uint64, known bool) {
	text, err := c.host.Tunables.Get(name)
	if err != nil {
		return 0, false
	}
	value, err = strconv.ParseUint(strings.TrimSpace(text), 10, 64)
	return value, err == nil
}

// helps gives the next level of tunables that would change something, or the highest of
// them; 0: none would.
func (c *Controller) helps(highest bool) int {
	if c.tuning.check.level > 0 {
		return 0
	}
	last := topLevel
	if c.tuning.refused > 0 {
		last = c.tuning.refused - 1
	}
	for level := c.tuning.level + 1; level <= last; level++ {
		if highest {
			level = last
		}
		for _, name := range c.freeTunables() {
			value, known := c.tunable(name)
			if _, ok := better(name, value); ok && known && levels[name] > 0 && levels[name] <= level {
				return level
			}
		}
	}
	return 0
}

// onlyObserves reports whether the ideal weights stay for now: until the first window
// says whether tunables are needed, and during a check. A BFQ that serves a container past
// its weight books that at the weight of that moment, and makes the container wait for it
// once it follows weights: with a weight of a tenth, ten times as long.
func (c *Controller) onlyObserves() bool {
	return c.tuning.check.level > 0 || !c.scheduler.observed && c.helps(true) > 0
}

// tune sets the tunables of a level that are left to control, and says so. short is the
// container that lacks a part of its share, if that is why.
func (c *Controller) tune(level int, short, why string) {
	s := &c.scheduler
	if c.tuning.level == 0 {
		c.tuning.base, c.tuning.active = s.weightsRate.copied(), s.active
	}
	c.tuning.short, c.tuning.doubt, c.tuning.fewer = short, "", fewer{}
	c.tuning.level, c.tuning.missedSeconds, c.tuning.seconds, c.tuning.rate, c.tuning.judged = level, 0, 0, throughput{}, false
	c.tuning.stall = stall{}
	sets := "sets"
	if c.options.DryRun {
		sets = "would set"
	}
	c.log.Info(why+"; control "+sets+" BFQ's tunables that help, until the end: "+c.tunedNames()+
		" (to prevent that, name them in tunables, or write tunables: none)", "device", c.disk.Device)
	c.holdTunablesOrLog()
	c.answerAnew()
}

// tuneIfNeeded sets tunables if the windows that ended say that they matter.
func (c *Controller) tuneIfNeeded() bool {
	s := &c.scheduler
	if s.seconds == 0 || s.limiting {
		return false
	}
	ignored := s.verdict == judge.Ignores && !s.missed.Held() && s.IgnoredSeconds+s.seconds >= judge.VerdictSeconds
	part := s.missed.Worst()
	if c.tuning.missedSeconds += s.seconds; part <= lastingPart {
		c.tuning.missedSeconds = 0
	}
	level := 0
	switch {
	case ignored || part > strictPart || s.few && s.missed.Lack > tunePart:
		level = c.helps(true)
	case part > tunePart && c.tuning.level == 0 || c.tuning.missedSeconds >= judge.ShortSeconds:
		level = c.helps(false)
	case s.hidden > hiddenPart:
		if level = c.helps(false); level > 1 {
			level = 0
		}
	}
	switch {
	case level == 0:
		return false
	case part > tunePart && part == s.missed.Lack:
		c.tune(level, s.missed.Short, fmt.Sprintf("%s lacked %.0f %% of the disk that is due to it for %.0f s", s.missed.Short, 100*part, s.seconds))
	case part > tunePart:
		short := ""
		if s.missed.Lack > tunePart {
			short = s.missed.Short // what one has too much, several lack: this one most
		}
		c.tune(level, short, fmt.Sprintf("%s had %.0f %% of the disk beyond what is due to it for %.0f s, and others lacked that", s.missed.Greedy, 100*part, s.seconds))
	case !ignored:
		c.tune(level, "", fmt.Sprintf("a container's journal and metadata are %.0f %% of the disk", 100*s.hidden))
	default:
		c.tune(level, "", fmt.Sprintf("the scheduler has not followed its weights for %.0f s", judge.VerdictSeconds))
	}
	return true
}

// tunedNames lists the tunables of the level, with their values.
func (c *Controller) tunedNames() string {
	var names []string
	wanted := c.wantedTunables()
	for _, name := range c.freeTunables() {
		if value, ok := wanted[name]; ok && levels[name] > 0 {
			names = append(names, fmt.Sprintf("%s=%d", name, value))
		}
	}
	return strings.Join(names, " ")
}

// answerAnew judges a scheduler anew that answers weights in another way from now on.
func (c *Controller) answerAnew() {
	c.scheduler.Restart()
	for _, of := range c.laws {
		if f, ok := of.(*law.Feedback); ok {
			f.ForgetAnswers()
		}
	}
}

// judgeTunables restores tunables that cost too much of the throughput. step is what
// the containers did in the step, active how many do something.
func (c *Controller) judgeTunables(seconds float64, step bytesDone, active int) {
	t := &c.tuning
	t.doubtedSeconds = max(0, t.doubtedSeconds-seconds)
	if t.level == 0 && t.check.level == 0 || t.judged || c.scheduler.limiting || c.options.DryRun {
		return
	}
	if t.check.level > 0 {
		if t.check.seconds += seconds; t.check.seconds > checkSeconds {
			c.refuse(t.base)
			return
		}
	}
	if t.check.level == 0 && t.stall.add(step, active, t.base.all.Rate(), seconds) {
		// Fewer may be active because they are starved. Those that were are enough to measure.
		t.active, t.fewer = t.stall.most, fewer{}
		c.beginCheck(t.stall.rate.of(t.short, c.groups))
		return
	}
	most, lasting := t.fewer.add(active, t.active, seconds)
	if lasting && t.check.level == 0 {
		// What so many do is measured with the tunables, and then without.
		t.active, t.doubt, t.fewer = most, "fewer containers are active than before control set", fewer{}
	}
	if active < t.active {
		// Fewer of them do less, whatever the tunables.
		t.seconds, t.rate = 0, throughput{}
		if t.check.level > 0 && t.check.busier(step, seconds) {
			c.refuse(t.check.fewer)
		}
		return
	}
	t.check.fewer, t.check.fewerSeconds = throughput{}, 0
	if t.seconds += seconds; t.seconds <= tunedSettle {
		return
	}
	t.rate.add(step, seconds, tunedSeconds)
	if t.seconds < tunedSettle+tunedSeconds {
		return
	}
	rate := t.rate.of(t.short, c.groups)
	switch {
	case t.check.level == 0 && t.doubt == "" && rate.reach(tunedPart, t.base.of(t.short, c.groups)):
		if t.judged = true; c.scheduler.Ignored {
			t.doubtedSeconds = doubtSeconds // they were measured while the shares were missed
		}
	case t.check.level == 0:
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
	t.judged, t.seconds, t.rate, t.stall = false, 0, throughput{}, stall{}
}

// comparison gives the rate that tunables lower, of the disk or of the container that they
// are to help, with and without them.
func (c *Controller) comparison(with, without rates) string {
	if with.all < tunedPart*without.all || c.tuning.short == "" {
		return fmt.Sprintf("the disk does %.1f MB/s, and %.1f MB/s without", with.all/1e6, without.all/1e6)
	}
	return fmt.Sprintf("%s does %.2f MB/s, and %.2f MB/s without", c.tuning.short, with.one/1e6, without.one/1e6)
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

// refuse restores what was set last, for good. base is what containers do without.
func (c *Controller) refuse(base throughput) {
	t := &c.tuning
	c.log.Warn(fmt.Sprintf("BFQ's tunables %s cost throughput: %s; control restores what it set last", t.check.names, c.comparison(t.check.rate, base.of(t.short, c.groups))),
		"device", c.disk.Device)
	t.refused = t.check.level
	for t.refused > 1 && !c.adds(t.refused) {
		t.refused--
	}
	t.base, t.check = base, check{}
	c.changeLevel(t.refused - 1)
}

// adds reports whether a level has tunables of its own here, while those as found are in force.
func (c *Controller) adds(level int) bool {
	for _, name := range c.freeTunables() {
		value, known := c.tunable(name)
		if _, ok := better(name, value); ok && known && levels[name] == level {
			return true
		}
	}
	return false
}

// changeLevel sets or restores tunables, and measures anew.
func (c *Controller) changeLevel(level int) {
	t := &c.tuning
	t.level, t.missedSeconds, t.seconds, t.rate, t.judged, t.fewer, t.stall = level, 0, 0, throughput{}, false, fewer{}, stall{}
	c.holdTunablesOrLog()
	c.forgetWindows()
	c.answerAnew()
}
