package account

import (
	"fmt"
	"math"
	"unicode/utf8"
)

// Bounds of one sample. They are far above what a disk does and low enough
// that no sum of a reader can overflow, and that every number survives the
// floating-point JSON readers of other languages.
const (
	maxIntervalSeconds = 7 * 24 * 3600
	// maxRequestSeconds is a week of a million requests.
	maxRequestSeconds = maxIntervalSeconds * 1_000_000
	maxBytes          = 1 << 53
	maxCount          = 1 << 53
	maxSum            = 1 << 62
	maxWeight         = 1 << 20
	// maxNameBytes is that of a path of the kernel (4,096 bytes) of which no byte is
	// valid UTF-8: JSON has U+FFFD, three bytes, for each.
	maxNameBytes      = 3 * 4096
	maxEstimatorBytes = 64
)

// jsonBytes is the length of a text after it was written as JSON and read again.
func jsonBytes(text string) int {
	if utf8.ValidString(text) {
		return len(text)
	}
	return len(string([]rune(text)))
}

// check reports the first value of a sample that is out of its range.
func (s Sample) check() error {
	if !(s.IntervalSeconds > 0 && s.IntervalSeconds <= maxIntervalSeconds) {
		return fmt.Errorf("interval_seconds is %g; want more than 0 and at most %d", s.IntervalSeconds, maxIntervalSeconds)
	}
	if len(s.Estimator) > maxEstimatorBytes {
		return fmt.Errorf("estimator has %d bytes; want at most %d", len(s.Estimator), maxEstimatorBytes)
	}
	for _, f := range []bounded{
		{"owners_forgotten", s.OwnersForgotten, maxCount}, {"cgroups_skipped", s.CgroupsSkipped, maxCount},
		{"waits_lost", s.WaitsLost, maxCount},
		{"wait_events_missed", s.WaitEventsMissed, maxCount},
	} {
		if err := f.check(); err != nil {
			return err
		}
	}
	seen := make(map[string]bool, len(s.Devices))
	for i, d := range s.Devices {
		if d.Device == "" || jsonBytes(d.Device) > maxNameBytes {
			return fmt.Errorf("the name of device %d has %d bytes; want 1 to %d", i+1, jsonBytes(d.Device), maxNameBytes)
		}
		if seen[d.Device] {
			return fmt.Errorf("device %q is there twice", d.Device)
		}
		seen[d.Device] = true
		if err := d.check(); err != nil {
			return fmt.Errorf("device %q: %w", d.Device, err)
		}
	}
	for _, w := range s.Waiters {
		if err := w.check(); err != nil {
			return fmt.Errorf("waiter %q: %w", w.Cgroup, err)
		}
	}
	return nil
}

func (d Device) check() error {
	if len(d.Dev) > maxNameBytes {
		return fmt.Errorf("dev has %d bytes; want at most %d", len(d.Dev), maxNameBytes)
	}
	for _, f := range []bounded{
		{"disk_bytes", d.DiskBytes, maxBytes},
		{"journal_bytes", d.JournalBytes, maxBytes},
		{"journal_elsewhere_bytes", d.JournalElsewhereBytes, maxBytes},
		{"metadata_bytes", d.MetadataBytes, maxBytes},
		{"transactions", d.Transactions, maxCount},
		{"lost_events", d.LostEvents, maxCount},
	} {
		if err := f.check(); err != nil {
			return err
		}
	}
	for _, m := range d.MemoryJournals {
		if err := m.check(); err != nil {
			return fmt.Errorf("memory journal %q: %w", m.Filesystem, err)
		}
	}
	if d.Control != nil && d.Control.Actuator != ActuatorWeights && d.Control.Actuator != ActuatorLimits {
		return fmt.Errorf("control: actuator is %.100q; want %s or %s", d.Control.Actuator, ActuatorWeights, ActuatorLimits)
	}
	if d.UnaccountedBytes > maxSum || d.UnaccountedBytes < -maxSum {
		return fmt.Errorf("unaccounted_bytes is %d; want it between -2^62 and 2^62", d.UnaccountedBytes)
	}
	// The negation also catches NaN, which a live source could hand over.
	if !(d.CommitSeconds >= 0 && d.CommitSeconds <= maxIntervalSeconds) {
		return fmt.Errorf("commit_seconds is %g; want 0 to %d", d.CommitSeconds, maxIntervalSeconds)
	}
	var sum uint64
	for _, c := range d.Containers {
		if err := c.check(); err != nil {
			return fmt.Errorf("cgroup %q: %w", c.Cgroup, err)
		}
		// Each term is below 2^56, so this cannot wrap before it is seen.
		if sum += c.Bytes(); sum > maxSum {
			return fmt.Errorf("the containers' bytes together are more than 2^62")
		}
	}
	return nil
}

func (m MemoryJournal) check() error {
	if m.Filesystem == "" || len(m.Filesystem) > maxNameBytes {
		return fmt.Errorf("filesystem has %d bytes; want 1 to %d", len(m.Filesystem), maxNameBytes)
	}
	for _, f := range []bounded{
		{"logged_bytes", m.LoggedBytes, maxBytes}, {"handles", m.Handles, maxCount}, {"commits", m.Commits, maxCount},
		{"used_lines", m.UsedLines, maxCount}, {"ring_lines", m.RingLines, maxCount}, {"lag_transactions", m.LagTransactions, maxCount},
	} {
		if err := f.check(); err != nil {
			return err
		}
	}
	return nil
}

func (c Container) check() error {
	for _, text := range []struct{ field, value string }{
		{"cgroup", c.Cgroup}, {"name", c.Name}, {"runtime", c.Runtime},
	} {
		if n := jsonBytes(text.value); n > maxNameBytes {
			return fmt.Errorf("%s has %d bytes; want at most %d", text.field, n, maxNameBytes)
		}
	}
	for _, ratio := range []struct {
		field string
		value float64
	}{{"share", c.Share}, {"target_share", c.TargetShare}} {
		// Sums of floating-point parts end a little above 1.
		if math.IsNaN(ratio.value) || ratio.value < 0 || ratio.value > 1.000001 {
			return fmt.Errorf("%s is %g; want 0 to 1", ratio.field, ratio.value)
		}
	}
	for _, time := range []struct {
		field string
		value float64
	}{{"request_seconds", c.RequestSeconds}, {"busy_seconds", c.BusySeconds}, {"flush_seconds", c.FlushSeconds}, {"stacked_seconds", c.StackedSeconds}} {
		if !(time.value >= 0 && time.value <= maxRequestSeconds) {
			return fmt.Errorf("%s is %g; want 0 to %d", time.field, time.value, maxRequestSeconds)
		}
	}
	for _, f := range []bounded{
		{"weight", c.Weight, maxWeight},
		{"charged_read_bytes", c.ChargedReadBytes, maxBytes},
		{"charged_write_bytes", c.ChargedWriteBytes, maxBytes},
		{"journal_bytes", c.JournalBytes, maxBytes},
		{"metadata_bytes", c.MetadataBytes, maxBytes},
		{"uncharged_bytes", c.UnchargedBytes, maxBytes},
		{"returned_bytes", c.ReturnedBytes, maxBytes},
		{"forced_commits", c.ForcedCommits, maxCount},
		{"memory_journal_bytes", c.MemoryJournalBytes, maxBytes},
		{"memory_journal_handles", c.MemoryJournalHandles, maxCount},
	} {
		if err := f.check(); err != nil {
			return err
		}
	}
	return nil
}

// bounded is a count with its upper bound.
type bounded struct {
	field string
	value uint64
	limit uint64
}

func (b bounded) check() error {
	if b.value > b.limit {
		return fmt.Errorf("%s is %d; want at most %d", b.field, b.value, b.limit)
	}
	return nil
}
