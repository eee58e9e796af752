package control

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/control/judge"
	"github.com/daybook-project/daybook/internal/safetext"
)

// advice is the setting that helps if weights do not hold the shares, and its command. outOfReach
// says why none does once all are as they should be.
func (c *Controller) advice(outOfReach string) string {
	scheduler := ""
	if c.host.Tunables != nil {
		scheduler, _ = c.host.Tunables.Scheduler() // unknown: like any other than BFQ
	}
	if scheduler != blockdev.BFQ {
		return fmt.Sprintf("measure the disk, and give io.cost its model: daybook calibrate --io-cost %s prints the commands", safetext.Word(c.disk.Device))
	}
	// Without idling, BFQ does not remember a reader of one request at a time from
	// one request to the next.
	if idle, err := c.host.Tunables.Get(sliceIdle); err == nil && strings.TrimSpace(idle) == "0" {
		return fmt.Sprintf("it is BFQ with slice_idle = 0; restore its default: echo 8 > %s", blockdev.QueueFile(c.disk.Device, "iosched/slice_idle"))
	}
	if text, err := c.host.Tunables.Get(nrRequests); err == nil {
		if requests, err := strconv.ParseUint(strings.TrimSpace(text), 10, 64); err == nil && requests < enoughRequests {
			return fmt.Sprintf("it is BFQ with nr_requests = %d: requests beyond that wait where no weight counts; write tunables: {nr_requests: %d} into the configuration, or: echo %d > %s",
				requests, enoughRequests, enoughRequests, blockdev.QueueFile(c.disk.Device, nrRequests))
		}
	}
	for _, t := range []struct{ name, good string }{{lowLatency, "0"}, {strictGuarantees, "1"}} {
		value, err := c.host.Tunables.Get(t.name)
		if value = strings.TrimSpace(value); err == nil && value != t.good {
			if refused := c.tuning.refused; refused > 0 && levels[t.name] >= refused {
				return fmt.Sprintf("it is BFQ with %s = %s, and BFQ's tunables that help cost too much throughput here; if a container's requests seek or wait for flushes, no tunable gives it its share of the bytes", t.name, value)
			}
			return fmt.Sprintf("it is BFQ with %s = %s; write tunables: {%s: %s} into the configuration, or: echo %s > %s",
				t.name, value, t.name, t.good, t.good, blockdev.QueueFile(c.disk.Device, "iosched/"+t.name))
		}
	}
	if outOfReach != "" {
		return "BFQ's tunables are as they should be; but " + outOfReach
	}
	return fmt.Sprintf("BFQ's tunables are as they should be; choose it again, so that it measures the disk again: cd %s && echo none > scheduler && echo bfq > scheduler && echo 0 > iosched/low_latency && echo 1 > iosched/strict_guarantees; control then sets the tunables of its configuration",
		blockdev.QueueFile(c.disk.Device, ""))
}

// outOfReach says why no tunable gives containers their shares; "": nothing is known against it.
func (s *schedulerTrust) outOfReach() string {
	switch {
	case s.Short.Seconds >= judge.ShortSeconds && s.few:
		return "it keeps few requests outstanding, as a database does that waits for its syncs, and BFQ serves others between them: " +
			"its share of the bytes can be out of reach. Look at how long it waits (daybook blame); a greater weight, or limits on the others, shorten that"
	case s.Short.Seconds < judge.ShortSeconds && s.Greedy.Seconds >= judge.ShortSeconds && s.fewOthers:
		return "those that lack it keep few requests outstanding, as databases do that wait for their syncs, and BFQ serves others between them: " +
			"their shares of the bytes can be out of reach. Look at how long they wait (daybook blame); greater weights for them, or a limit on what has too much, shorten that"
	}
	return ""
}
