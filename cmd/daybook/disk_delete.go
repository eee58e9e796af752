package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/internal/disksim"
)

func newDiskDeleteCommand(disk *diskFlags) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "delete NAME... | --all",
		Short: "Delete disks",
		Long: `Delete removes disks: device, server, data in memory. It keeps a file that --file
named. A disk that is mounted or otherwise in use is not deleted.`,
		Example: `  daybook disk delete slow
  daybook disk delete --all`,
		Args: func(cmd *cobra.Command, args []string) error {
			if all == (len(args) > 0) {
				return usageError{fmt.Errorf("%s takes names or --all", cmd.CommandPath())}
			}
			return nil
		},
		ValidArgsFunction: disk.completeNames,
		RunE: func(cmd *cobra.Command, names []string) error {
			// delete itself removes a named disk whose server is dead, so the
			// disk counts as found.
			var errs []error
			if all {
				errs = append(errs, disk.recover(cmd))
				records, err := disksim.List(disk.stateDir)
				errs = append(errs, err)
				for _, record := range records {
					names = append(names, record.Name)
				}
			}
			for _, name := range names {
				err := disksim.Delete(cmd.Context(), disk.stateDir, name)
				if all && errors.Is(err, disksim.ErrNotFound) {
					err = nil // removed since the listing
				}
				errs = append(errs, explainDisk(err))
			}
			if !all {
				errs = append(errs, disk.recover(cmd))
			}
			return errors.Join(errs...)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "delete all disks")
	return cmd
}
