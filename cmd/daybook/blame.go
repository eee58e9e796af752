package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/container"
	"github.com/daybook-project/daybook/internal/top"
)

// blameOutput is what blame prints with --json.
type blameOutput struct {
	Time            time.Time        `json:"time"`
	IntervalSeconds float64          `json:"interval_seconds"`
	Waiters         []account.Waiter `json:"waiters"`
	WaitsLost       uint64           `json:"waits_lost,omitempty"`
	EventsMissed    uint64           `json:"wait_events_missed,omitempty"`
}

func newBlameCommand() *cobra.Command {
	source := sourceOptions{Estimator: "handles", Waits: true}
	var pattern string
	var limit int
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "blame",
		Short: "Show who waits for the journal, and for whom",
		Long: `Blame measures for one interval how long each container waits in fsync, fdatasync,
msync and synchronous writes on ext4, ext4nvj and jfsnvj, and at the start of other
calls that change metadata. It divides the time by its causes: open handles for which a
commit waited, ordered data, writes to the log, a full log, the flush of the disk's
cache, and the call's own data. It names the containers whose handles, data and
metadata they were. The parts add up to the measured time.

The programs that measure this are attached only while blame runs. Blame changes
nothing on the host. It needs root and a kernel with BTF, 5.15 or newer.`,
		Example: `  # Why is the database slow?
  daybook blame

  # One container, for a script
  daybook blame --container db1 --device sda --interval 1m --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if source.Interval < minInterval || source.Interval > maxInterval {
				return usageError{fmt.Errorf("--interval is %v; want %v to %v", source.Interval, minInterval, maxInterval)}
			}
			if err := container.CheckPattern(pattern); err != nil {
				return usageError{fmt.Errorf("--container is %q: %w", pattern, err)}
			}
			if limit < 0 {
				return usageError{fmt.Errorf("--limit is %d; want 0 or more", limit)}
			}
			measured, err := openSource(cmd.Context(), source)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, measured.Close()) }()
			sample, err := measured.Next(cmd.Context())
			if err != nil {
				return err
			}
			all := slices.Clone(sample.Waiters)
			sample.Waiters = slices.DeleteFunc(sample.Waiters, func(w account.Waiter) bool { return !isContainer(w, pattern) })
			if note := whoElseWaited(all, len(sample.Waiters), pattern); note != "" {
				fmt.Fprintln(cmd.ErrOrStderr(), "daybook:", note)
			}
			if !asJSON {
				return top.WriteWaits(cmd.OutOrStdout(), sample, pattern, limit, 0)
			}
			if limit > 0 && len(sample.Waiters) > limit {
				sample.Waiters = sample.Waiters[:limit]
			}
			return writeBlame(cmd, sample)
		},
	}
	flags := cmd.Flags()
	flags.DurationVar(&source.Interval, "interval", 10*time.Second, "how long to measure, 1s to 24h")
	flags.StringArrayVar(&source.Devices, "device", nil, "observe only this disk: a name such as sda, a node, major:minor, or a mount point; may be repeated")
	flags.StringVar(&pattern, "container", "", "show only waiters with this container name or cgroup path; * does not cross /")
	flags.IntVar(&limit, "limit", 10, "show at most so many waiters; 0: all")
	flags.BoolVar(&asJSON, "json", false, "print JSON")
	completeDisks(cmd, "device")
	return cmd
}

// isContainer reports whether a waiter has a name or path that matches; "" matches
// all.
func isContainer(w account.Waiter, pattern string) bool {
	if pattern == "" {
		return true
	}
	return container.Matches(pattern, w.Name) || container.Matches(pattern, w.Cgroup)
}

// whoElseWaited is a note on containers that waited, if a pattern found none of them: it may
// be wrong. Else it is empty.
func whoElseWaited(waiters []account.Waiter, found int, pattern string) string {
	if found > 0 || pattern == "" || len(waiters) == 0 {
		return ""
	}
	names := make([]string, len(waiters))
	for i, w := range waiters {
		names[i] = w.Name
	}
	slices.Sort(names)
	names = slices.Compact(names)
	const most = 5
	more := ""
	if len(names) > most {
		names, more = names[:most], fmt.Sprintf(" and %d others", len(names)-most)
	}
	return fmt.Sprintf("no container that waited matches --container %s; these waited: %s%s",
		top.Safe(pattern), top.Safe(strings.Join(names, ", ")), more)
}

func writeBlame(cmd *cobra.Command, sample account.Sample) error {
	waiters := sample.Waiters
	if waiters == nil {
		waiters = []account.Waiter{}
	}
	text, err := json.MarshalIndent(blameOutput{sample.Time, sample.IntervalSeconds, waiters, sample.WaitsLost, sample.WaitEventsMissed}, "", "  ")
	if err != nil {
		return fmt.Errorf("cannot write the waits as JSON: %w", err)
	}
	_, err = cmd.OutOrStdout().Write(append(account.AppendPrintable(nil, text), '\n'))
	return err
}
