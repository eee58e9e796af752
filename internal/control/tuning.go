package control

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/control/judge"
	"github.com/daybook-project/daybook/internal/control/law"
)

// When tunables are set; docs/control-scheduler.md says how these were chosen.
const (
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
	// base is what containers did before the first, active how many of them were active.
	base   throughput
	active int
	measurement
	check check
	// doubt is why a check is due whatever the rate was before; "": none is. doubtedSeconds is
	// the time until they may be doubted again because the shares are missed.
	doubt          string
	doubtedSeconds float64
	// forgiveSeconds is the time until a refused level may be set again; 0: never.
	forgiveSeconds float64
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
	first := c.tuning.level + 1
	if highest {
		first = max(first, last)
	}
	for level := first; level <= last; level++ {
		if c.changes(1, level) {
			return level
		}
	}
	return 0
}

// changes reports whether tunables of these levels would change from what is in force.
func (c *Controller) changes(first, last int) bool {
	return slices.ContainsFunc(c.freeTunables(), func(name string) bool {
		value, known := c.tunable(name)
		_, ok := better(name, value)
		return ok && known && levels[name] >= first && levels[name] <= last
	})
}

// tunes reports whether control has set tunables up to that level, or would.
func (c *Controller) tunes(level int) bool {
	return c.changes(1, level) || slices.ContainsFunc(c.freeTunables(), func(name string) bool {
		_, held := c.state.Tunables[name]
		return held && levels[name] > 0 && levels[name] <= level
	})
}

// endTuning follows a configuration that leaves to control none of the tunables that were set, and
// that are restored by now: what they cost is judged no longer.
func (c *Controller) endTuning() {
	t := &c.tuning
	if level := max(t.level, t.check.level); level == 0 || c.tunes(level) {
		return
	}
	*t = tuning{refused: t.refused, forgiveSeconds: t.forgiveSeconds}
	c.forgetWindows()
	c.answerAnew()
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
	c.tuning.short, c.tuning.doubt = short, ""
	c.tuning.level, c.tuning.missedSeconds, c.tuning.measurement = level, 0, measurement{}
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
		c.tune(level, s.missed.Short, fmt.Sprintf("%s lacked %.0f %% of the disk that is due to it for %.0f s", c.who(s.missed.Short), 100*part, s.seconds))
	case part > tunePart:
		short := ""
		if s.missed.Lack > tunePart {
			short = s.missed.Short // what one has too much, several lack: this one most
		}
		c.tune(level, short, fmt.Sprintf("%s had %.0f %% of the disk beyond what is due to it for %.0f s, and others lacked that", c.who(s.missed.Greedy), 100*part, s.seconds))
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
