package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/advise"
	"github.com/daybook-project/daybook/internal/advise/survey"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/container"
	"github.com/daybook-project/daybook/internal/digits"
	"github.com/daybook-project/daybook/internal/disktime"
	"github.com/daybook-project/daybook/internal/kernel"
	"github.com/daybook-project/daybook/internal/top"
)

// adviseOutput is what advise prints with --json.
type adviseOutput struct {
	Time            time.Time    `json:"time"`
	IntervalSeconds float64      `json:"interval_seconds"`
	Waiters         []advisedOne `json:"waiters"`
	// Missing says what this kernel does not report of the disks.
	Missing []string `json:"missing,omitempty"`
	// note is for people: why nobody is in Waiters.
	note string
}

// advisedOne is the advice for one container on one file system.
type advisedOne struct {
	Cgroup string `json:"cgroup"`
	Name   string `json:"name"`
	Device string `json:"device"`
	advise.Advice
}

func newAdviseCommand() *cobra.Command {
	source := sourceOptions{Estimator: "handles", Waits: true}
	var pattern string
	var volumeBytes byteSize
	var limit int
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "advise",
		Short: "Predict what would shorten a container's waits in fsync",
		Long: `Advise measures for one interval how long each container waits in fsync, fdatasync,
msync and synchronous writes on ext4, in which phases and for whom, as daybook blame
does, and the times of the disk's requests. From these it predicts for each remedy the
throughput of syncs, their p50 and p99, each with a range: a volume on a device, a volume
in an image, a mount with dioread_nolock, a journal in memory, weights with daybook
control, and a limit on the container that causes most. It says so if none helps, and
predicts nothing from fewer than 30 syncs.

Advise changes nothing on the host. Its programs are attached only while it runs. It
needs root and a kernel with BTF, 5.15 or newer.`,
		Example: `  # What would help the database?
  daybook advise --container db1

  # For a script, with the size that a volume would have
  daybook advise --container db1 --device sda --interval 1m --volume-size 20GiB --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if source.Interval < minInterval || source.Interval > maxInterval {
				return usageError{fmt.Errorf("--interval is %v; want %v to %v", source.Interval, minInterval, maxInterval)}
			}
			if err := container.CheckPattern(pattern); err != nil {
				return usageError{fmt.Errorf("--container is %q: %w", pattern, err)}
			}
			if limit < 0 {
				return usageError{fmt.Errorf("--limit is %d; want 0 or more", limit)}
			}
			out, err := measureAdvice(cmd.Context(), source, pattern, uint64(volumeBytes), limit)
			if err != nil {
				return err
			}
			if out.note != "" {
				fmt.Fprintln(cmd.ErrOrStderr(), "daybook:", out.note)
			}
			if asJSON {
				text, err := json.MarshalIndent(out, "", "  ")
				if err != nil {
					return fmt.Errorf("cannot write the advice as JSON: %w", err)
				}
				_, err = cmd.OutOrStdout().Write(append(account.AppendPrintable(nil, text), '\n'))
				return err
			}
			for _, line := range adviceLines(out, pattern) {
				if _, err := fmt.Fprintln(cmd.OutOrStdout(), top.Safe(line)); err != nil {
					return err
				}
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.DurationVar(&source.Interval, "interval", 30*time.Second, "how long to measure, 1s to 24h")
	flags.StringArrayVar(&source.Devices, "device", nil, "observe only this disk: a name such as sda, a node, major:minor, or a mount point; may be repeated")
	flags.StringVar(&pattern, "container", "", "advise only for this container name or cgroup path; * does not cross /")
	flags.Var(&volumeBytes, "volume-size", "size that the volume would have, to predict shorter seeks on a hard disk (default: not known)")
	flags.Lookup("volume-size").DefValue = "" // the flag's own text would be 0B
	flags.IntVar(&limit, "limit", 5, "advise for at most so many containers, the longest waits first; 0: all")
	flags.BoolVar(&asJSON, "json", false, "print JSON")
	completeDisks(cmd, "device")
	return cmd
}

// measureAdvice measures one interval and predicts.
func measureAdvice(ctx context.Context, o sourceOptions, pattern string, volumeBytes uint64, limit int) (out adviseOutput, err error) {
	if os.Geteuid() != 0 {
		return out, unsupportedError{errors.New("cannot time the requests of disks: want root, to load BPF programs; try: sudo daybook advise …")}
	}
	requests, err := disktime.Open()
	if err != nil {
		return out, unsupportedError{err}
	}
	defer func() { err = errors.Join(err, requests.Close()) }()
	source, err := openSource(ctx, o)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	sample, reading, err := measureInterval(ctx, source, requests)
	if err != nil {
		return out, err
	}
	tree, err := cgroup.Find()
	if err != nil {
		return out, hostError(err)
	}
	cgroups, err := tree.List(ctx)
	if err != nil {
		return out, err
	}
	out = adviseOutput{Time: sample.Time, IntervalSeconds: sample.IntervalSeconds, Waiters: []advisedOne{}}
	waiting := waitingContainers(sample.Waiters, pattern)
	if len(waiting) == 0 {
		out.note = whyNoAdvice(sample.Waiters, pattern)
	}
	measured := survey.Interval{Sample: sample, Requests: reading, Cgroups: cgroups, Recognised: requests.RecognisesCommits(), Kernel: kernel.Running()}
	for _, w := range waiting {
		if limit > 0 && len(out.Waiters) == limit {
			break
		}
		advice, missing, err := measured.Advise(w, volumeBytes)
		if err != nil {
			return out, err
		}
		if missing != "" && !slices.Contains(out.Missing, missing) {
			out.Missing = append(out.Missing, missing)
		}
		out.Waiters = append(out.Waiters, advisedOne{Cgroup: w.Cgroup, Name: w.Name, Device: w.Device, Advice: advice})
	}
	return out, nil
}

// requestTimes is a disktime.Probe.
type requestTimes interface {
	ReadAll() (disktime.Reading, error)
}

// measureInterval returns the next sample, and the requests that ended in its interval. The
// interval of the source begins when it is opened.
func measureInterval(ctx context.Context, source account.Source, requests requestTimes) (account.Sample, disktime.Reading, error) {
	before, err := requests.ReadAll()
	if err != nil {
		return account.Sample{}, disktime.Reading{}, err
	}
	sample, err := source.Next(ctx)
	if err != nil {
		return sample, disktime.Reading{}, err
	}
	after, err := requests.ReadAll()
	return sample, after.Less(before), err
}

// waitingContainers lists the containers that sync, each once on each file system, the
// longest wait first.
func waitingContainers(waiters []account.Waiter, pattern string) []account.Waiter {
	var found []account.Waiter
	for _, w := range waiters {
		if w.Operation == "handle" || !isContainer(w, pattern) {
			continue
		}
		same := func(o account.Waiter) bool { return o.Cgroup == w.Cgroup && o.Device == w.Device }
		if i := slices.IndexFunc(found, same); i >= 0 {
			found[i].WaitSeconds += w.WaitSeconds
			continue
		}
		found = append(found, w)
	}
	slices.SortFunc(found, func(a, b account.Waiter) int {
		return cmp.Or(cmp.Compare(b.WaitSeconds, a.WaitSeconds), cmp.Compare(a.Cgroup, b.Cgroup), cmp.Compare(a.Device, b.Device))
	})
	return found
}

// whyNoAdvice is a note for the case that nobody is found who waited for a sync: others did, or
// calls waited before they could start, for which there is no prediction.
func whyNoAdvice(waiters []account.Waiter, pattern string) string {
	if note := whoElseWaited(waitingContainers(waiters, ""), 0, pattern); note != "" {
		return note
	}
	var seconds float64
	for _, w := range waiters {
		if isContainer(w, pattern) {
			seconds += w.WaitSeconds
		}
	}
	if seconds == 0 {
		return ""
	}
	return fmt.Sprintf("calls that change metadata waited %s before they could start; \"daybook blame\" shows for what", shortTime(seconds))
}

// remedyTexts name the remedies.
var remedyTexts = map[advise.Kind]string{
	advise.DeviceVolume:  "a volume on a device",
	advise.ImageVolume:   "a volume in an image",
	advise.MountOption:   "a mount with dioread_nolock",
	advise.MemoryJournal: "a journal in persistent memory",
	advise.Weights:       "weights with control",
	advise.Limit:         "half the writes of the worst culprit",
}

// adviceLines is the advice as text. pattern is that of the containers that it is for.
func adviceLines(out adviseOutput, pattern string) []string {
	if len(out.Waiters) == 0 && pattern != "" {
		return []string{fmt.Sprintf("no container that matches %s waited for a sync in the last %s s", pattern, digits.Of(out.IntervalSeconds, 3))}
	}
	if len(out.Waiters) == 0 {
		return []string{fmt.Sprintf("nobody waited for a sync in the last %s s", digits.Of(out.IntervalSeconds, 3))}
	}
	var lines []string
	for _, w := range out.Waiters {
		lines = append(lines, fmt.Sprintf("%s on %s: %s syncs/s, p50 %s, p99 %s", w.Name, w.Device,
			digits.Of(w.Now.SyncsPerSecond, 3), shortTime(w.Now.P50Seconds), shortTime(w.Now.P99Seconds)), "  "+w.Verdict)
		if len(w.Remedies) == 0 {
			continue
		}
		lines = append(lines, remedyLines(w.Remedies)...)
	}
	return append(lines, out.Missing...)
}

// remedyLines is a table of the remedies, each with its reason below.
func remedyLines(remedies []advise.Remedy) []string {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "  remedy\tsyncs/s, compared with now\tp50\tp99")
	for _, r := range remedies {
		fmt.Fprintf(table, "  %s\t%s (%s to %s)\t%s\t%s\n", remedyTexts[r.Kind],
			digits.Of(r.Gain.Median, 3), digits.Of(r.Gain.Low, 2), digits.Of(r.Gain.High, 2), timeRange(r.P50Seconds), timeRange(r.P99Seconds))
	}
	_ = table.Flush() // a strings.Builder has no errors
	rows := strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n")
	lines := rows[:1:1]
	for i, r := range remedies {
		reason := r.Reason
		if !r.Possible {
			reason = "not here: " + reason
		}
		lines = append(lines, rows[i+1], "    "+reason)
	}
	return lines
}

func timeRange(r advise.Range) string {
	return fmt.Sprintf("%s (%s to %s)", shortTime(r.Median), shortTime(r.Low), shortTime(r.High))
}

// shortTime is a time with three digits.
func shortTime(seconds float64) string {
	switch {
	case seconds >= 0.9995: // 999.5 ms would be rounded to 1000
		return digits.Of(seconds, 3) + " s"
	case seconds >= 0.9995e-3:
		return digits.Of(1e3*seconds, 3) + " ms"
	}
	return digits.Of(1e6*seconds, 3) + " us"
}
