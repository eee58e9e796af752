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
)

// Tunables of BFQ that a configuration may hold (Documentation/block/bfq-iosched.rst, 6.18).
const (
	// lowLatency raises weights of BFQ's own accord, and shares wander.
	lowLatency = "low_latency"
	// strictGuarantees serves one request at a time and always waits for the
	// next one of whoever is in service: what the root cgroup writes no
	// longer slips in between.
	strictGuarantees = "strict_guarantees"
	// timeoutSync is the longest slice, in milliseconds.
	timeoutSync = "timeout_sync"
	// sliceIdle is how long BFQ waits for the next request of whoever is in
	// service, in milliseconds. It is never written.
	sliceIdle = "slice_idle"
)

// tunableRange has the tunables that are ever written, and what they take.
var tunableRange = map[string]struct{ min, max uint64 }{
	lowLatency: {0, 1}, strictGuarantees: {0, 1}, timeoutSync: {4, 10_000},
}

// FairTunables are those under which BFQ keeps to its weights most exactly:
// what the results in docs/results were made with, in all phases. They cost
// some throughput: slices of 40 ms instead of 125 ms mean more seeks, and one
// request at a time is too little for a fast SSD.
func FairTunables() map[string]uint64 {
	return map[string]uint64{lowLatency: 0, strictGuarantees: 1, timeoutSync: 40}
}

// readTunables reads the configuration's map of them.
func readTunables(node yaml.Node) (map[string]uint64, error) {
	if node.IsZero() {
		return nil, nil
	}
	names := strings.Join(slices.Sorted(maps.Keys(tunableRange)), ", ")
	if node.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("line %d: tunables: want a map of %s to numbers", node.Line, names)
	}
	tunables := make(map[string]uint64)
	for n := 0; n+1 < len(node.Content); n += 2 {
		key, value := node.Content[n], node.Content[n+1]
		r, known := tunableRange[key.Value]
		if !known {
			return nil, fmt.Errorf("line %d: tunables: %q is none that Daybook changes (%s)", key.Line, key.Value, names)
		}
		if _, twice := tunables[key.Value]; twice {
			return nil, fmt.Errorf("line %d: tunables: %s stands twice", key.Line, key.Value)
		}
		number, err := strconv.ParseUint(value.Value, 10, 64)
		if err != nil || number < r.min || number > r.max {
			return nil, fmt.Errorf("line %d: tunables: %s: %q: want %d to %d", value.Line, key.Value, value.Value, r.min, r.max)
		}
		tunables[key.Value] = number
	}
	return tunables, nil
}

// checkTunable refuses what this program cannot have recorded.
func checkTunable(name, value string) error {
	if _, known := tunableRange[name]; known {
		if _, err := strconv.ParseUint(value, 10, 32); err == nil {
			return nil
		}
	}
	return fmt.Errorf("tunable %q = %q is none that Daybook changes", name, value)
}

// holdTunables does what the configuration says about the scheduler's
// tunables, the original values being in the state first, and puts back those
// that it no longer names. All are tried; the errors are joined.
func (c *Controller) holdTunables() error {
	if c.host.Tunables == nil {
		return nil
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(tunableRange)) {
		if err := c.holdTunable(name); err != nil {
			errs = append(errs, fmt.Errorf("tunable %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

func (c *Controller) holdTunable(name string) error {
	wanted, named := c.config.Tunables[name]
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
		if number, err := strconv.ParseUint(value, 10, 64); err == nil {
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

// weakness is what a tunable of BFQ costs where it is not as in FairTunables.
var weakness = map[string]string{
	lowLatency: "BFQ's low_latency is on: it raises weights of its own accord, and shares will wander",
	strictGuarantees: "BFQ's strict_guarantees is off: the journal is written past all weights, and with eight requests in flight " +
		"from each of three readers BFQ did not follow its weights in 2 of 6 runs: shares were 17 and 29 points off (docs/control.md)",
	timeoutSync: "BFQ's timeout_sync is long: a container waits long for its next slice; at BFQ's own 125 ms, and strict_guarantees off too, 78 % of the intervals " +
		"of 5 s were within 5 points of their target, and at 40 ms all (docs/results/shares.md)",
}

// warnTunable says at the start what makes the guarantee weaker, and which line
// of the configuration helps. Where limits hold the shares it does not matter.
func (c *Controller) warnTunable(name string, value uint64) {
	best := FairTunables()[name]
	if c.mustLimit() || value == best || name == timeoutSync && value < best {
		return
	}
	c.log.Warn(fmt.Sprintf("%s; write tunables: {%s: %d} into the configuration to have that while in control", weakness[name], name, best),
		"device", c.disk.Device, "value", value, "or", fmt.Sprintf("echo %d > /sys/block/%s/queue/iosched/%s", best, c.disk.Device, name))
}

// setTunable keeps the original first. Which value is in force then is recorded
// afterwards, because the kernel rounds some; until then a restore is
// unconditional.
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
