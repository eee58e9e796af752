package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/volume"
)

func newVolumeDeleteCommand(v *volumeFlags) *cobra.Command {
	var snapshot string
	var damaged, asJSON bool
	cmd := &cobra.Command{
		Use:   "delete NAME",
		Short: "Delete a volume, or one of its snapshots",
		Long: `Delete deletes a volume with its snapshots, or with --snapshot that snapshot alone.
It does not ask for confirmation. An attached volume is not deleted.

With --damaged it deletes a volume whose record cannot be read. If that volume was
persistent, its mount point keeps the immutable flag: "lsattr -d DIR" shows the flag as
"i", and "chattr -i DIR" clears it. It also deletes a volume on LVM whose volume group is
gone, or that has a snapshot whose record cannot be read; its logical volumes are left.`,
		Example: `  daybook volume delete db1
  daybook volume delete db1 --snapshot monday`,
		Args:              volumeNames("NAME"),
		ValidArgsFunction: v.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			// --snapshot "$EMPTY" must not delete the volume.
			one := cmd.Flags().Changed("snapshot")
			if one {
				if err := volume.CheckName(snapshot); err != nil {
					return usageError{fmt.Errorf("--snapshot: %w", err)}
				}
				if damaged {
					return usageError{errors.New("--damaged and --snapshot exclude each other")}
				}
			}
			pool, err := v.find(cmd, args[0])
			if err != nil {
				return err
			}
			if one {
				err = pool.DeleteSnapshot(cmd.Context(), args[0], snapshot)
			} else {
				err = pool.Delete(cmd.Context(), args[0], volume.DeleteOptions{Damaged: damaged})
			}
			if err != nil {
				return explainVolume(err)
			}
			if !asJSON {
				return nil
			}
			return printVolumeJSON(cmd.OutOrStdout(), struct {
				Name     string `json:"name"`
				Snapshot string `json:"snapshot,omitempty"`
				Pool     string `json:"pool"`
				Deleted  bool   `json:"deleted"`
			}{args[0], snapshot, pool.Dir(), true})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&snapshot, "snapshot", "", "delete only this `SNAP`")
	flags.BoolVar(&damaged, "damaged", false, "delete it even though its record is damaged")
	addJSONFlag(cmd, &asJSON)
	_ = cmd.RegisterFlagCompletionFunc("snapshot", v.completeSnapshotFlag)
	return cmd
}
