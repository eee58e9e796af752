package filesystems

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// How long threads wait is measured by tracepoints that the kernel joins to events of our own
// (Documentation/trace/histogram.rst, of Linux 6.3 and later). The kernel adds up such an
// event by stack and by lock. This takes time, also while the lock is held. So only one
// thread of the load is measured; all threads do the same work.
const (
	timedThread = "load/0"
	lockEvent   = "daybook_lock"
	sleepEvent  = "daybook_sleep"
)

// timingEvents are the definitions of our events.
var timingEvents = []string{
	lockEvent + " u64 lock; u64 ns; unsigned long[] stack",
	sleepEvent + " u64 ns; unsigned long[] stack",
}

// timing are the triggers. A mutex begins a wait each time that the thread begins to spin, and
// each time that it begins to sleep (flags 32). Each ends the one before. A variable is cleared
// when its time is taken.
var timing = []struct{ event, trigger string }{
	{"synthetic/" + lockEvent, "hist:keys=stack.stacktrace:vals=ns:size=8192"},
	{"synthetic/" + lockEvent, "hist:keys=lock.sym-offset:vals=ns:size=16384"},
	{"synthetic/" + sleepEvent, "hist:keys=stack.stacktrace:vals=ns:size=8192"},
	{lockBegins, lockKeys + "began=common_timestamp,at=common_stacktrace:clock=mono if flags != 32 && " + ofThread},
	{lockBegins, lockKeys + "slept=common_timestamp,asleep=common_stacktrace:clock=mono if flags == 32 && " + ofThread},
	{lockBegins, lockTime("began", "at", "a") + " if flags == 32 && " + ofThread},
	{lockBegins, lockTime("slept", "asleep", "b") + " if flags == 33 && " + ofThread},
	{lockEnds, lockTime("began", "at", "c") + " if " + ofThread},
	{lockEnds, lockTime("slept", "asleep", "d") + " if " + ofThread},
	{switches, "hist:keys=prev_pid:left=common_timestamp,from=common_stacktrace:clock=mono if (prev_state == 2 || prev_state == 128) && prev_" + ofThread},
	{switches, "hist:keys=next_pid:gone=common_timestamp-$left,stack=$from:clock=mono:onmatch(sched.sched_switch).trace(" + sleepEvent + ",$gone,$stack) if next_" + ofThread},
}

const (
	lockBegins, lockEnds, switches = "lock/contention_begin", "lock/contention_end", "sched/sched_switch"

	lockKeys = "hist:keys=common_pid,lock_addr:size=16384:"
	ofThread = `comm == "` + timedThread + `"`
)

// lockTime passes the time since a variable was set, and the stack of then, to lockEvent.
// Names of variables end with a suffix of the trigger, because each name must be new.
func lockTime(since, stack, suffix string) string {
	return fmt.Sprintf("%[1]slock%[4]s=lock_addr,ns%[4]s=common_timestamp-$%[2]s,stack%[4]s=$%[3]s:clock=mono:onmatch(lock.contention_begin).trace(%[5]s,$lock%[4]s,$ns%[4]s,$stack%[4]s)",
		lockKeys, since, stack, suffix, lockEvent)
}

// startTiming starts to measure. stop ends this, and may be called again.
func startTiming() (stop func() error, err error) {
	var defined, on int
	stop = func() error {
		var errs []error
		// A trigger cannot be removed before those that read its variables.
		for ; on > 0; on-- {
			t := timing[on-1]
			errs = append(errs, writeTrigger(t.event, "!"+t.trigger))
		}
		for ; defined > 0; defined-- {
			name, _, _ := strings.Cut(timingEvents[defined-1], " ")
			errs = append(errs, writeEvent("-:synthetic/"+name))
		}
		return errors.Join(errs...)
	}
	for _, e := range timingEvents {
		if err := writeEvent("s:" + e); err != nil {
			return stop, errors.Join(err, stop())
		}
		defined++
	}
	for _, t := range timing {
		if err := writeTrigger(t.event, t.trigger); err != nil {
			return stop, errors.Join(err, stop())
		}
		on++
	}
	return stop, nil
}

// writeEvent defines an event, or removes one.
func writeEvent(line string) error {
	path := filepath.Join(filepath.Dir(tracing), "dynamic_events")
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteString(line + "\n")
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("cannot measure waits: %q to %s: %w", line, path, err)
	}
	return nil
}

// times are what startTiming has added up since.
type times struct{ stacks, locks, sleeps string }

func readTimes() (t times, err error) {
	for _, of := range []struct {
		text *string
		from int
		key  string
	}{{&t.stacks, 0, "stack"}, {&t.locks, 0, "lock"}, {&t.sleeps, 2, "stack"}} {
		text, err := readHistogram(timing[of.from].event)
		if err != nil {
			return t, err
		}
		*of.text = histogramBy(text, of.key)
	}
	return t, nil
}

// histogramBy returns of the histograms of an event the one whose keys begin with a key.
func histogramBy(text, key string) string {
	const info = "# trigger info: hist:keys="
	for _, part := range strings.Split(text, "# event histogram") {
		if at := strings.Index(part, info); at >= 0 && strings.HasPrefix(part[at+len(info):], key) {
			return part
		}
	}
	return ""
}

// put enters the places of waits, of which begins and sleeps have the number.
func (t times) put(c *Counts, begins, sleeps []histogramEntry, threads int, operations uint64) error {
	var parsed [3][]histogramEntry
	for n, text := range []string{t.stacks, t.locks, t.sleeps} {
		var err error
		if parsed[n], err = parseHistogram(text); err != nil {
			return err
		}
	}
	c.WaitSites = waitSites(begins, sleeps, parsed[0], parsed[2], threads, operations)
	c.LockSymbols = lockSymbols(parsed[1], threads, operations)
	return nil
}
