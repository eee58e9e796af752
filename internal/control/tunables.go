package control

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/configfile"
)

// Tunables that a configuration may set: of BFQ
// (Documentation/block/bfq-iosched.rst, 6.18), and one of the queue that BFQ
// divides (Documentation/ABI/stable/sysfs-block).
const (
	// lowLatency lets BFQ raise weights by itself, so that shares vary.
	lowLatency = "low_latency"
	// strictGuarantees makes BFQ serve one request at a time and always wait for
	// the next request of the cgroup in service. Then writes of the root cgroup
	// cannot be served in between.
	strictGuarantees = "strict_guarantees"
	// timeoutSync is the longest slice, in milliseconds.
	timeoutSync = "timeout_sync"
	// tunedSlice is what control sets by itself: slices of 40 ms, as in FairTunables, cost
	// 6 % of the throughput of a disk that seeks, and these 3 %.
	tunedSlice = 60
	// nrRequests is how many requests the scheduler holds, queue/nr_requests. A
	// further request waits outside the scheduler, where weights do not count. BFQ
	// also gives each container only its share of them: beyond it a container waits
	// for one particular request to end (bfqq_request_over_limit and
	// bfq_limit_depth, block/bfq-iosched.c, 6.12 and 6.18).
	nrRequests = "nr_requests"
	// enoughRequests is the kernel's number for a device that takes 128 requests or
	// more at a time. The results in docs/results have it, too.
	enoughRequests = 256
	// sliceIdle is how long BFQ waits for the next request of the cgroup in
	// service, in milliseconds.
	sliceIdle = "slice_idle"
	// longIdle is beyond what BFQ takes for a long think time: with the kernel's own 8 ms
	// it keeps a mean of up to 16 ms, and compares it with half of slice_idle
	// (bfq_update_io_thinktime and bfq_update_has_short_ttime, block/bfq-iosched.c).
	longIdle = 33
)

// tunableRange has the tunables that Daybook writes, with the range of each.
var tunableRange = map[string]struct{ min, max uint64 }{
	lowLatency: {0, 1}, strictGuarantees: {0, 1}, timeoutSync: {4, 10_000},
	sliceIdle:  {1, 1000},
	nrRequests: {4, 2048}, // at most MAX_SCHED_RQ, block/blk-mq-sched.h
}

// TunableNames lists what a configuration may set, sorted.
func TunableNames() []string { return slices.Sorted(maps.Keys(tunableRange)) }

// FairTunables are those with which BFQ follows its weights most exactly. The
// results in docs/results have them in all phases. They cost some throughput:
// slices of 40 ms instead of 125 ms mean more seeks, and one request at a time is
// too little for a fast SSD.
func FairTunables() map[string]uint64 {
	return map[string]uint64{lowLatency: 0, strictGuarantees: 1, timeoutSync: 40}
}

// What a configuration may say of all tunables.
const (
	// tunablesAuto leaves to control those that it does not name.
	tunablesAuto = "auto"
	// tunablesNone: control changes none.
	tunablesNone = "none"
)

// readTunables reads the configuration's map of them, or the word for all, and returns
// all problems. auto means that control may choose those that are not named.
func readTunables(node yaml.Node) (tunables map[string]uint64, auto bool, problems []Problem) {
	if node.IsZero() {
		return nil, true, nil
	}
	node = configfile.Resolve(node)
	refuse := func(line int, format string, values ...any) {
		problems = append(problems, Problem{Line: line, Text: "tunables: " + fmt.Sprintf(format, values...)})
	}
	names := strings.Join(TunableNames(), ", ")
	if node.Kind == yaml.ScalarNode && (node.Value == tunablesAuto || node.Value == tunablesNone) {
		return nil, node.Value == tunablesAuto, nil
	}
	if node.Kind != yaml.MappingNode {
		refuse(node.Line, "want %s, %s, or a map of %s to numbers", tunablesAuto, tunablesNone, names)
		return nil, true, problems
	}
	tunables = make(map[string]uint64)
	for n := 0; n+1 < len(node.Content); n += 2 {
		key, value := configfile.Resolve(*node.Content[n]), configfile.Resolve(*node.Content[n+1])
		r, known := tunableRange[key.Value]
		if !known {
			refuse(key.Line, "%q is none that Daybook changes (%s)", key.Value, names)
			continue
		}
		if _, twice := tunables[key.Value]; twice {
			refuse(key.Line, "%s is there twice", key.Value)
		}
		number, err := strconv.ParseUint(value.Value, 10, 64)
		if err != nil || number < r.min || number > r.max {
			refuse(value.Line, "%s: %q: want %d to %d", key.Value, value.Value, r.min, r.max)
		}
		tunables[key.Value] = number
	}
	return tunables, true, problems
}

// checkTunable rejects what this program cannot have recorded.
func checkTunable(name, value string) error {
	if _, known := tunableRange[name]; known {
		if _, err := strconv.ParseUint(value, 10, 32); err == nil {
			return nil
		}
	}
	return fmt.Errorf("tunable %q = %q is none that Daybook changes", name, value)
}

// holdTunables sets the scheduler's tunables that are wanted, the original values being
// in the state first, and restores those that no longer are. All are tried; the errors are
// joined.
func (c *Controller) holdTunables() error {
	if c.host.Tunables == nil {
		return nil
	}
	// What is set under another scheduler than that of the state would not be restored.
	if now, err := c.host.Tunables.Scheduler(); err == nil && now != c.state.Scheduler {
		return nil
	}
	var errs []error
	wanted := c.wantedTunables()
	for _, name := range TunableNames() {
		if err := c.holdTunable(name, wanted); err != nil {
			errs = append(errs, fmt.Errorf("tunable %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// holdTunablesOrLog is holdTunables where control goes on without what could not be set.
// An error is logged once, until it is another one.
func (c *Controller) holdTunablesOrLog() {
	if err := c.holdTunables(); c.logged.tunables.isNewError(err) {
		c.log.Error("cannot set all of the scheduler's tunables; control goes on without these", "device", c.disk.Device, "error", err)
	}
}

func (c *Controller) holdTunable(name string, all map[string]uint64) error {
	wanted, named := all[name]
	value, err := c.host.Tunables.Get(name)
	if err != nil {
		missing := errors.Is(err, fs.ErrNotExist) || errors.Is(err, blockdev.ErrNoTunable)
		if named && missing {
			c.log.Warn("the disk's scheduler has no such tunable", "device", c.disk.Device, "tunable", name)
		} else if !missing {
			c.log.Debug("cannot read the tunable", "tunable", name, "error", err)
		}
		return nil // another scheduler, or an older kernel
	}
	value = strings.TrimSpace(value)
	original, held := c.state.Tunables[name]
	switch {
	case !named && held:
		if set, known := c.state.TunablesSet[name]; known && value != set {
			c.log.Info("another program changed a tunable; it stays", "device", c.disk.Device, "tunable", name, "value", value)
		} else if err := c.host.Tunables.Set(name, original); err != nil {
			return err
		}
		delete(c.state.Tunables, name)
		delete(c.state.TunablesSet, name)
		return c.save()
	case !named:
		if number, err := strconv.ParseUint(value, 10, 64); err == nil && !slices.Contains(c.freeTunables(), name) {
			c.warnTunable(name, number)
		}
		return nil
	case value == strconv.FormatUint(wanted, 10):
		return nil
	case c.options.DryRun:
		c.log.Info("would set a tunable", "device", c.disk.Device, "tunable", name, "value", wanted, "before", value)
		return nil
	}
	return c.setTunable(name, value, strconv.FormatUint(wanted, 10))
}

// weakness is the effect of a tunable of BFQ that is not as in FairTunables.
var weakness = map[string]string{
	lowLatency: "BFQ's low_latency is on: BFQ raises weights by itself, and shares vary",
	strictGuarantees: "BFQ's strict_guarantees is off: no weight applies to writes of the journal, and with eight requests in flight " +
		"from each of three readers BFQ did not follow its weights in 2 of 6 runs: shares were 17 and 29 points off (docs/control-scheduler.md)",
	timeoutSync: "BFQ's timeout_sync is long: a container waits long for its next slice; at BFQ's own 125 ms, and strict_guarantees off too, 78 % of the intervals " +
		"of 5 s were within 5 points of their target, and at 40 ms all (docs/results/shares-paper.md)",
	nrRequests: "queue/nr_requests is low: requests beyond it wait where weights do not count; with 32 requests in flight from each of three readers, " +
		"shares were 16 points off at 64, and within 2 points at 256 (docs/control-scheduler.md)",
}

// WeakTunable is a tunable of BFQ with which weights are followed less exactly.
type WeakTunable struct {
	Name        string
	Value, Best uint64
	// Why is the effect.
	Why string
}

// Command sets the best value, until the scheduler is chosen again.
func (w WeakTunable) Command(device string) string {
	attribute := "iosched/" + w.Name
	if w.Name == nrRequests {
		attribute = w.Name
	}
	return fmt.Sprintf("echo %d > %s", w.Best, blockdev.QueueFile(device, attribute))
}

// weakTunable returns the effect of a value; ok is false if it has none.
func weakTunable(name string, value uint64) (weak WeakTunable, ok bool) {
	best := FairTunables()[name]
	if name == nrRequests {
		best = enoughRequests
	}
	if name == sliceIdle || value == best || name == timeoutSync && value < best || name == nrRequests && value > best {
		return WeakTunable{}, false
	}
	return WeakTunable{Name: name, Value: value, Best: best, Why: weakness[name]}, true
}

// WeakTunables lists the tunables that weaken the weights of a disk, by name:
// control warns of them at its start. It leaves out tunables that the disk's
// scheduler does not have.
func WeakTunables(tunables Tunables) []WeakTunable {
	var found []WeakTunable
	for _, name := range TunableNames() {
		text, err := tunables.Get(name)
		if err != nil {
			continue
		}
		if value, err := strconv.ParseUint(strings.TrimSpace(text), 10, 64); err == nil {
			if weak, ok := weakTunable(name, value); ok {
				found = append(found, weak)
			}
		}
	}
	return found
}

// warnTunable warns at the start of a tunable that weakens the shares, with the
// line of the configuration that helps. It does not matter if limits enforce the
// shares.
func (c *Controller) warnTunable(name string, value uint64) {
	weak, ok := weakTunable(name, value)
	if c.mustLimit() || !ok {
		return
	}
	c.log.Warn(fmt.Sprintf("%s; write tunables: {%s: %d} into the configuration to have that while in control", weak.Why, name, weak.Best),
		"device", c.disk.Device, "value", value, "or", weak.Command(c.disk.Device))
}

// setTunable saves the original first. The value in force is saved afterwards,
// because the kernel rounds some; until then a restore is unconditional.
func (c *Controller) setTunable(name, before, wanted string) error {
	original, held := c.state.Tunables[name]
	if !held {
		original = before
	}
	if err := checkTunable(name, original); err != nil {
		return err
	}
	if c.state.Tunables == nil {
		c.state.Tunables, c.state.TunablesSet = make(map[string]string), make(map[string]string)
	}
	c.state.Tunables[name] = original
	delete(c.state.TunablesSet, name)
	if err := c.save(); err != nil {
		if !held {
			delete(c.state.Tunables, name)
		}
		return err
	}
	c.log.Info("setting a tunable until the end", "device", c.disk.Device, "tunable", name, "value", wanted, "before", before)
	if err := c.host.Tunables.Set(name, wanted); err != nil {
		return err
	}
	now, err := c.host.Tunables.Get(name)
	if err != nil {
		return err
	}
	c.state.TunablesSet[name] = strings.TrimSpace(now)
	return c.save()
}
