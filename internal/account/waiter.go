package account

import (
	"fmt"
	"slices"
)

// Waiter is what the calls of one container waited for in the journal of one file
// system, in the interval.
type Waiter struct {
	Cgroup string `json:"cgroup"`
	Name   string `json:"name"`
	// Device is the name of the file system's device in /sys/class/block.
	Device string `json:"device"`
	// Operation is the kind of call: "fsync", "fdatasync", "msync", "write" (with
	// O_SYNC or O_DSYNC), or "handle": other calls, as far as the start of their
	// handle had to wait.
	Operation string `json:"operation"`
	// Calls ended in the interval. WaitSeconds is their whole time, the sum of
	// Phases and the sum of Culprits.
	Calls       uint64  `json:"calls"`
	WaitSeconds float64 `json:"wait_seconds"`
	P50Seconds  float64 `json:"p50_seconds"`
	P99Seconds  float64 `json:"p99_seconds"`
	// Phases has all phases, in seconds (blame.PhaseNames).
	Phases map[string]float64 `json:"phases"`
	// Culprits are sorted by time, greatest first.
	Culprits []Culprit `json:"culprits"`
	// Histogram has the buckets that are not empty, in order.
	Histogram []WaitBucket `json:"histogram"`
}

// Culprit is who made others, or itself, wait.
type Culprit struct {
	// Cgroup and Name are "" where no container is known to be the cause: Cause
	// is then the disk's flush, or the causer is unknown.
	Cgroup  string  `json:"cgroup"`
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`
	// Cause is the phase that it made longer.
	Cause string `json:"cause"`
}

// WaitBucket counts the calls that took less than UpperSeconds, and at least the
// upper bound of the bucket before.
type WaitBucket struct {
	UpperSeconds float64 `json:"upper_seconds"`
	Calls        uint64  `json:"calls"`
}

// WaitPhases are the names of the phases.
var WaitPhases = []string{"lock", "ordered_data", "log", "flush", "checkpoint", "own_data", "rest"}

const (
	// maxWaitSeconds is a week of a million waiting threads.
	maxWaitSeconds = maxIntervalSeconds * 1_000_000
	maxWaitBuckets = 1024
)

func (w Waiter) check() error {
	texts := []string{w.Cgroup, w.Name, w.Device, w.Operation}
	for _, c := range w.Culprits {
		texts = append(texts, c.Cgroup, c.Name, c.Cause)
	}
	for _, text := range texts {
		if n := jsonBytes(text); n > maxNameBytes {
			return fmt.Errorf("a name has %d bytes; want at most %d", n, maxNameBytes)
		}
	}
	seconds := []float64{w.WaitSeconds, w.P50Seconds, w.P99Seconds}
	for phase, s := range w.Phases {
		if !slices.Contains(WaitPhases, phase) {
			return fmt.Errorf("phase is %.100q; want one of %q", phase, WaitPhases)
		}
		seconds = append(seconds, s)
	}
	for _, c := range w.Culprits {
		seconds = append(seconds, c.Seconds)
	}
	if len(w.Histogram) > maxWaitBuckets {
		return fmt.Errorf("the histogram has %d buckets; want at most %d", len(w.Histogram), maxWaitBuckets)
	}
	for _, b := range w.Histogram {
		seconds = append(seconds, b.UpperSeconds)
		if err := (bounded{"calls of a bucket", b.Calls, maxCount}).check(); err != nil {
			return err
		}
	}
	for _, s := range seconds {
		if !(s >= 0 && s <= maxWaitSeconds) { // NaN too
			return fmt.Errorf("a time is %g s; want 0 to %d", s, maxWaitSeconds)
		}
	}
	return bounded{"calls", w.Calls, maxCount}.check()
}
