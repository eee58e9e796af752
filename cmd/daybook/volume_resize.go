package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/volume"
)

func newVolumeResizeCommand(v *volumeFlags) *cobra.Command {
	var size byteSize
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "resize NAME --size SIZE",
		Short: "Grow a volume, or shrink it while it is detached",
		Long: `Resize changes the size of a volume. A volume grows also while it is attached and
written. It shrinks only while it is detached, and not below its content. The new blocks
of a full volume are written. Grow the device of a volume on a device first (lvextend).`,
		Example: `  daybook volume resize db1 --size 40G

  # Smaller. A persistent volume needs no --target to be attached again
  daybook volume detach db1 --keep-persist && daybook volume resize db1 --size 10G
  daybook volume attach db1`,
		Args:              volumeNames("NAME"),
		ValidArgsFunction: v.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !cmd.Flags().Changed("size") {
				return usageError{errors.New("how large? want --size, such as --size 40G")}
			}
			if err := volume.CheckSize(uint64(size)); err != nil {
				return usageError{fmt.Errorf("--size: %w", err)}
			}
			pool, err := v.find(cmd, args[0])
			if err != nil {
				return err
			}
			progress := newWorkProgress(cmd.ErrOrStderr(), "resizing "+args[0])
			record, err := pool.Resize(cmd.Context(), args[0], uint64(size), volume.ResizeOptions{Progress: progress.show})
			progress.end()
			if err != nil {
				return explainVolume(err)
			}
			return printRecord(cmd, pool, "resized", record, asJSON)
		},
	}
	cmd.Flags().Var(&size, "size", "the new size, such as 40G (required)")
	cmd.Flags().Lookup("size").DefValue = ""
	_ = cmd.RegisterFlagCompletionFunc("size", cobra.NoFileCompletions)
	addJSONFlag(cmd, &asJSON)
	return cmd
}

func newVolumeTrimCommand(v *volumeFlags) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "trim NAME",
		Short: "Return unused blocks of a volume to the pool",
		Long: `Trim asks the volume's ext4 for its unused blocks, as fstrim does. It returns those of
an image to the pool; a volume's own device discards them. The volume must be attached
and must not have been created with --provision full.`,
		Example: `  daybook volume trim db1
  daybook volume trim db1 --json`,
		Args:              volumeNames("NAME"),
		ValidArgsFunction: v.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			pool, err := v.find(cmd, args[0])
			if err != nil {
				return err
			}
			trimmed, err := pool.Trim(cmd.Context(), args[0])
			if err != nil {
				return explainVolume(err)
			}
			if asJSON {
				return printVolumeJSON(cmd.OutOrStdout(), struct {
					Name         string `json:"name"`
					Pool         string `json:"pool"`
					TrimmedBytes uint64 `json:"trimmed_bytes"`
				}{args[0], pool.Dir(), trimmed})
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "trimmed %s of volume %s\n", roundBytes(trimmed), args[0])
			return err
		},
	}
	addJSONFlag(cmd, &asJSON)
	return cmd
}
