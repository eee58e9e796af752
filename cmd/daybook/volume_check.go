package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/internal/top"
	"github.com/daybook-project/daybook/volume"
)

func newVolumeCheckCommand(v *volumeFlags) *cobra.Command {
	var o volume.CheckOptions
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "check NAME",
		Short: "Check the file system of a volume or snapshot",
		Long: `Check runs e2fsck on the file system of a detached volume, or of a snapshot, whose
volume may be attached. It changes nothing; with --repair e2fsck corrects what it can by
itself. If errors are left, check ends with 1.`,
		Example: `  daybook volume check db1
  daybook volume check db1 --snapshot monday
  daybook volume check db1 --repair --json`,
		Args:              volumeNames("NAME"),
		ValidArgsFunction: v.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			what := args[0]
			if cmd.Flags().Changed("snapshot") {
				if err := volume.CheckName(o.Snapshot); err != nil {
					return usageError{fmt.Errorf("--snapshot: %w", err)}
				}
				if o.Repair {
					return usageError{errors.New("--repair and --snapshot exclude each other: clone the snapshot and repair the clone")}
				}
				what += ", snapshot " + o.Snapshot
			}
			pool, err := v.find(cmd, args[0])
			if err != nil {
				return err
			}
			report, err := pool.Check(cmd.Context(), args[0], o)
			return explainVolume(errors.Join(err, printCheck(cmd.OutOrStdout(), what, report, asJSON)))
		},
	}
	cmd.Flags().StringVar(&o.Snapshot, "snapshot", "", "check this `SNAP` instead of the volume")
	_ = cmd.RegisterFlagCompletionFunc("snapshot", v.completeSnapshotFlag)
	cmd.Flags().BoolVar(&o.Repair, "repair", false, "let e2fsck correct what it can")
	addJSONFlag(cmd, &asJSON)
	return cmd
}

func newVolumeRepairCommand(v *volumeFlags) *cobra.Command {
	var asJSON bool
	var forget string
	cmd := &cobra.Command{
		Use:   "repair",
		Short: "Finish or roll back what killed commands left",
		Long: `Repair finishes or rolls back unfinished commands on the volumes of a pool, or without
--pool and DAYBOOK_POOL of all known pools. Unfinished creations and deletions are then
gone, and a volume is attached completely or not at all. Repair may run at any time and
be repeated. It leaves alone what a living process works on, and every loop device,
mount or cgroup that no volume's record names.

If a volume is damaged, such as by a missing image, repair names it and ends with 1. It
also ends with 1 if a repair fails, such as on a full disk; then run repair again.
"daybook volume check" checks file systems.

An unfinished creation or deletion in an LVM volume group that is gone cannot be removed.
Repair then names its record, WORK. If the volume group never comes back, --forget WORK
removes that record and does nothing else. It refuses while the volume group is there.
If a device cannot be wiped, repair names the record, too. --forget WORK then removes it,
and leaves what is on the device.`,
		Example: `  daybook volume repair
  daybook volume repair --pool /srv/pool --json
  daybook volume repair --forget 7d0f4a52-2c64-4d1e-9a53-0c0b6f1f2f7e`,
		Args:              noArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			pools, err := v.all(cmd)
			if err != nil && len(pools) == 0 {
				return err
			}
			errs := []error{err}
			repaired := []repairedJSON{}
			if cmd.Flags().Changed("forget") {
				if pools, err = forgetWork(cmd.Context(), pools, forget); err != nil {
					return explainVolume(errors.Join(append(errs, err)...))
				}
			}
			for _, pool := range pools {
				if forget != "" {
					repaired = append(repaired, repairedJSON{pool.Dir(), volume.Repaired{Work: 1, Volumes: map[string]string{}, Busy: []string{}, Damaged: map[string]string{}, Failed: map[string]string{}, Newer: map[string]string{}}})
					continue
				}
				done, err := pool.Repair(cmd.Context())
				repaired = append(repaired, repairedJSON{pool.Dir(), done})
				errs = append(errs, err)
			}
			if asJSON {
				errs = append(errs, printVolumeJSON(cmd.OutOrStdout(), map[string]any{"pools": repaired}))
			} else {
				writeRepaired(cmd.OutOrStdout(), repaired, errors.Join(errs...) == nil)
			}
			return explainVolume(errors.Join(errs...))
		},
	}
	cmd.Flags().StringVar(&forget, "forget", "", "remove the record of this `WORK`, which repair cannot remove, and repair nothing")
	_ = cmd.RegisterFlagCompletionFunc("forget", cobra.NoFileCompletions)
	addJSONFlag(cmd, &asJSON)
	return cmd
}

// forgetWork forgets a work in the pool that has it, and returns that pool.
func forgetWork(ctx context.Context, pools []*volume.Pool, work string) ([]*volume.Pool, error) {
	var errs []error
	for _, pool := range pools {
		err := pool.Forget(ctx, work)
		if err == nil {
			return []*volume.Pool{pool}, nil
		}
		if !errors.Is(err, volume.ErrNotFound) {
			return nil, err
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(append(errs, usageError{fmt.Errorf("no known pool has the work %q", work)})...)
}

// repairedJSON is the result of a repair of one pool.
type repairedJSON struct {
	Pool string `json:"pool"`
	volume.Repaired
}

func writeRepaired(out io.Writer, pools []repairedJSON, whole bool) {
	silent := true
	say := func(pool, format string, words ...any) {
		fmt.Fprintf(out, "%s: %s\n", top.Safe(pool), fmt.Sprintf(format, words...))
		silent = false
	}
	for _, p := range pools {
		if p.Work > 0 {
			say(p.Pool, "removed %d unfinished creations or deletions", p.Work)
		}
		for _, name := range slices.Sorted(maps.Keys(p.Volumes)) {
			say(p.Pool, "volume %s: %s", name, top.Safe(p.Volumes[name]))
		}
		for _, name := range p.Busy {
			say(p.Pool, "volume %s: another process works on it, not repaired", name)
		}
		for _, name := range slices.Sorted(maps.Keys(p.Damaged)) {
			say(p.Pool, "volume %s is damaged: %s", name, top.Safe(p.Damaged[name]))
		}
		for _, name := range slices.Sorted(maps.Keys(p.Failed)) {
			say(p.Pool, "volume %s: the repair failed: %s", name, top.Safe(p.Failed[name]))
		}
		for _, name := range slices.Sorted(maps.Keys(p.Newer)) {
			say(p.Pool, "volume %s, not repaired: %s", name, top.Safe(p.Newer[name]))
		}
	}
	if silent && whole {
		fmt.Fprintln(out, "nothing to repair")
	}
}

// printCheck prints the report of e2fsck, if there is one.
func printCheck(out io.Writer, name string, report volume.CheckReport, asJSON bool) error {
	if report.Report == "" && !report.Clean {
		return nil
	}
	if asJSON {
		return printVolumeJSON(out, report)
	}
	for line := range strings.Lines(report.Report) {
		fmt.Fprintln(out, top.Safe(strings.TrimSpace(line)))
	}
	what := "clean"
	switch {
	case !report.Clean:
		what = "damaged; daybook volume check --repair corrects what it can"
	case report.Corrected:
		what = "corrected"
	case report.Replayed:
		what = "clean, once its journal is replayed"
	}
	_, err := fmt.Fprintf(out, "%s: %s\n", name, what)
	return err
}
