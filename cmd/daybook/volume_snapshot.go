package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/volume"
)

func newVolumeSnapshotCommand(v *volumeFlags) *cobra.Command {
	var asJSON bool
	var o volume.SnapshotOptions
	cmd := &cobra.Command{
		Use:   "snapshot NAME SNAP",
		Short: "Take a snapshot of a volume",
		Long: `Snapshot keeps the present content of a volume under the name SNAP, also while it is
attached and written. The ext4 in the snapshot is clean and has everything that was
fsynced. On pools with reflinks (XFS, btrfs) writers wait for a moment, and no space is
taken. Elsewhere the volume is copied while it works; then its writers wait while it is
read again and the changes are copied. --json reports how long (frozen_seconds).

` + maxFreezeLong + `

"daybook volume inspect" lists the snapshots, "clone --snapshot" creates a volume from
one, "delete --snapshot" deletes it.`,
		Example: `  daybook volume snapshot db1 monday
  daybook volume clone db1 db1-test --snapshot monday
  daybook volume delete db1 --snapshot monday`,
		Args:              volumeNames("NAME", "SNAP"),
		ValidArgsFunction: v.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkMaxFreezeFlag(o.MaxFreeze); err != nil {
				return err
			}
			pool, err := v.find(cmd, args[0])
			if err != nil {
				return err
			}
			progress := newWorkProgress(cmd.ErrOrStderr(), fmt.Sprintf("copying %s to %s", args[0], args[1]))
			o.Progress = progress.show
			record, err := pool.Snapshot(cmd.Context(), args[0], args[1], o)
			progress.end()
			if err != nil {
				return explainVolume(err)
			}
			if asJSON {
				return printVolumeJSON(cmd.OutOrStdout(), record)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "kept volume %s as snapshot %s\n", args[0], args[1])
			return err
		},
	}
	addMaxFreezeFlag(cmd, &o.MaxFreeze)
	addJSONFlag(cmd, &asJSON)
	return cmd
}

// maxFreezeLong explains --max-freeze.
const maxFreezeLong = `Writers of an attached volume wait at most --max-freeze. Then they go on, the command
fails, and its copy is deleted. If the volume must be read while they wait, and cannot be
read in that time, the command fails before they wait. A guardian process
(daybook-freeze-guard) thaws the volume if the command is killed.`

func addMaxFreezeFlag(cmd *cobra.Command, longest *time.Duration) {
	cmd.Flags().DurationVar(longest, "max-freeze", volume.DefaultMaxFreeze, "longest time that writers of an attached volume may wait")
	_ = cmd.RegisterFlagCompletionFunc("max-freeze", cobra.NoFileCompletions)
}

func checkMaxFreezeFlag(longest time.Duration) error {
	if longest == 0 {
		return usageError{errors.New("--max-freeze is 0; leave it out for the default, or detach the volume first")}
	}
	if err := volume.CheckMaxFreeze(longest); err != nil {
		return usageError{fmt.Errorf("--max-freeze: %w", err)}
	}
	return nil
}

func newVolumeCloneCommand(v *volumeFlags) *cobra.Command {
	var o volume.CloneOptions
	var snapshot string
	var labels []string
	var memory memoryFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "clone SOURCE NAME",
		Short: "Create a volume with the content of another, or of a snapshot",
		Long: `Clone creates the volume NAME, in the same pool, with the present content of SOURCE or
that of a snapshot. A write to one of the two does not change the other. On pools with
reflinks that takes a moment; elsewhere the blocks in use are copied. The clone's journal
is in the clone, or with --journal memory in a slice of its own.

` + maxFreezeLong,
		Example: `  daybook volume clone db1 db1-test
  daybook volume clone db1 db1-test --snapshot monday --weight 100 --label purpose=test`,
		Args:              volumeNames("SOURCE", "NAME"),
		ValidArgsFunction: v.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if cmd.Flags().Changed("snapshot") {
				if err = volume.CheckName(snapshot); err != nil {
					return usageError{fmt.Errorf("--snapshot: %w", err)}
				}
			}
			if err := checkWeightFlag(cmd, o.Weight); err != nil {
				return usageError{err}
			}
			if o.Labels, err = parseLabels(labels); err != nil {
				return usageError{err}
			}
			if o.JournalMemory, err = memory.options(cmd, "journal"); err != nil {
				return usageError{err}
			}
			if err := checkMaxFreezeFlag(o.MaxFreeze); err != nil {
				return err
			}
			pool, err := v.find(cmd, args[0])
			if err != nil {
				return err
			}
			progress := newWorkProgress(cmd.ErrOrStderr(), fmt.Sprintf("copying %s to %s", args[0], args[1]))
			o.Progress = progress.show
			record, err := pool.Clone(cmd.Context(), args[0], snapshot, args[1], o)
			progress.end()
			if err != nil {
				return explainVolume(err)
			}
			return printRecord(cmd, pool, "created", record, asJSON)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&snapshot, "snapshot", "", "take the content of this `SNAP` of SOURCE (default: its present content)")
	flags.Uint64Var(&o.Weight, "weight", 0, "the clone's weight, 1 to 1000 (default: SOURCE's)")
	flags.StringArrayVar(&labels, "label", nil, "the clone's `KEY=VALUE`; may be repeated (default: SOURCE's labels)")
	memory.add(cmd, "journal", "`PLACE` of the clone's journal: disk; memory, a slice of its own; or memory:SIZE (default disk)")
	addMaxFreezeFlag(cmd, &o.MaxFreeze)
	addJSONFlag(cmd, &asJSON)
	_ = cmd.RegisterFlagCompletionFunc("snapshot", v.completeSnapshotFlag)
	for _, name := range []string{"weight", "label"} {
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.NoFileCompletions)
	}
	return cmd
}
