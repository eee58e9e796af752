package main

import (
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/internal/disksim"
	"github.com/daybook-project/daybook/internal/top"
)

func newDiskListCommand(disk *diskFlags) *cobra.Command {
	var asJSON, path bool
	cmd := &cobra.Command{
		Use:   "list [NAME]",
		Short: "List the disks",
		Long:  `List shows the disks that "daybook disk create", or a running demo, created.`,
		Example: `  daybook disk list
  daybook disk list --json
  mount $(daybook disk list --path slow) /mnt`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 || path && len(args) != 1 {
				return usageError{fmt.Errorf("%s takes at most one name, and --path wants one; got %d", cmd.CommandPath(), len(args))}
			}
			if path && asJSON {
				return usageError{errors.New("--path and --json exclude each other")}
			}
			return nil
		},
		ValidArgsFunction: disk.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			// One disk that cannot be removed or read does not hide the others.
			recoverErr := disk.recover(cmd)
			records, err := disksim.List(disk.stateDir)
			err = errors.Join(recoverErr, err)
			disks := []diskJSON{}
			for _, record := range records {
				if len(args) == 0 || args[0] == record.Name {
					disks = append(disks, diskJSON{record, record.DevicePath()})
				}
			}
			if len(args) == 1 && len(disks) == 0 {
				return explainDisk(errors.Join(err, fmt.Errorf("disk %s: %w", args[0], disksim.ErrNotFound)))
			}
			var printErr error
			switch {
			case path:
				_, printErr = fmt.Fprintln(cmd.OutOrStdout(), disks[0].DevicePath)
			case asJSON:
				printErr = printVolumeJSON(cmd.OutOrStdout(), map[string]any{"disks": disks})
			default:
				printErr = writeDisks(cmd.OutOrStdout(), disks)
			}
			return errors.Join(err, printErr)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	cmd.Flags().BoolVar(&path, "path", false, "print only the path of NAME's device")
	return cmd
}

func writeDisks(out io.Writer, disks []diskJSON) error {
	table := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(table, "NAME\tDEVICE\tSIZE\tBANDWIDTH\tSEEK\tFLUSH\tSCHEDULER\tDATA\tSERVER")
	for _, disk := range disks {
		device, scheduler, data := disk.DevicePath, disk.Scheduler, disk.Backing
		if device == "" {
			device = "(being created)"
		}
		if scheduler == "" {
			scheduler = "-"
		}
		if data == "" {
			data = "memory"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\n", disk.Name, device, formatBytes(disk.SizeBytes),
			formatRate(disk.Parameters.BandwidthBytesPerSecond), formatSeconds(disk.Parameters.FullStrokeSeekSeconds),
			formatSeconds(disk.Parameters.FlushSeconds), scheduler, top.Safe(data), disk.ServerPID)
	}
	return table.Flush()
}

func formatSeconds(seconds float64) string {
	return time.Duration(seconds * float64(time.Second)).String()
}
