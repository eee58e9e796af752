package main

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/internal/calibrate"
	"github.com/daybook-project/daybook/internal/iocost"
	"github.com/daybook-project/daybook/internal/journal"
)

func newCalibrateCommand() *cobra.Command {
	var options calibrate.Options
	var disk ioCostFlags
	var output string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "calibrate DIR | calibrate --io-cost DEV [DIR | --raw-writes]",
		Short: "Measure what calls cost the journal, or a disk for io.cost",
		Long: `Calibrate measures, on the ext4 file system of DIR, how many bytes reach the journal for
each kind of call that changes metadata: 1000 calls on 1000 different files, 10 runs.
It prints the table with published values and saves it for the syscalls estimator
("daybook top --estimator syscalls").

It works in a private directory in DIR and removes it at the end, also after Ctrl-C.
The next calibration removes the files of a killed one. DIR must belong to root, and no
other user may write to it, unless it has the sticky bit, as /tmp has. Another user who
can rename the private directory could replace it. A calibration takes some seconds to a
minute. The file system should be idle: a run in which another cgroup wrote to the same
journal is repeated, and reported if every repetition is disturbed.

With --io-cost DEV it measures the disk for io.cost, the controller of cgroup v2 that
divides a modelled disk by weights: sequential bytes per second, and requests of 4 KiB per
second, sequential and random, of reads and of writes. It prints the commands that set
io.cost up, and changes nothing itself. The model has three quarters of the measured rates
(--model-part), because io.cost does not count journals, which come on top. The settings
are for hosts with "daybook control". With --for volumes they are for volumes whose shares
nothing corrects: io.cost then holds large writes to its model, and follows a changed
weight later.

DEV is a disk, a partition, or a directory on a file system. Calibrate --io-cost needs
fio. It reads and overwrites a file of its own in DIR, on an ext4 or XFS file system of
the disk (default: the mount point where most space is free, of those that only root may
write). With --raw-writes it overwrites the disk itself, which must be unused and hold
nothing. The disk should be idle.`,
		Example: `  daybook calibrate /srv/data
  daybook calibrate /srv/data --json --output costs.json
  daybook top --estimator syscalls --calibration costs.json
  sudo daybook calibrate --io-cost nvme0n1
  sudo daybook calibrate --io-cost nvme0n1 --for volumes
  sudo daybook calibrate --io-cost sda /srv/data --size 16GiB --test-time 60s
  sudo daybook calibrate --io-cost /dev/vdb --raw-writes`,
		Args: func(cmd *cobra.Command, args []string) error {
			if disk.device != "" && len(args) <= 1 {
				return nil
			}
			if len(args) != 1 {
				return usageError{fmt.Errorf("%s wants one directory on the file system to measure, got %q", cmd.CommandPath(), args)}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := disk.check(cmd); err != nil {
				return err
			}
			if disk.device != "" {
				return runCalibrateDisk(cmd, disk, args, asJSON)
			}
			options.Dir = args[0]
			return runCalibrate(cmd, options, output, asJSON)
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&options.Calls, "calls", 1000, fmt.Sprintf("calls in each run, 1 to %d", calibrate.MaxCalls))
	flags.IntVar(&options.Runs, "runs", 10, fmt.Sprintf("runs of each operation, 1 to %d", calibrate.MaxRuns))
	flags.StringVar(&output, "output", "", "save to `FILE` (default "+calibrate.DefaultDir+"/calibration-UUID.json)")
	flags.BoolVar(&asJSON, "json", false, "print the table, or the model, as JSON")
	disk.add(flags)
	completeDisks(cmd, "io-cost")
	completeWith(cmd, "for", string(iocost.ForControl), string(iocost.ForVolumes))
	return cmd
}

func runCalibrate(cmd *cobra.Command, options calibrate.Options, output string, asJSON bool) error {
	if err := options.Check(); err != nil {
		return usageError{err}
	}
	if output != "" {
		if err := calibrate.CheckOutput(output); err != nil {
			return usageError{err}
		}
	}
	progress, endProgress := calibrate.NewProgress(cmd.ErrOrStderr())
	options.Progress = progress
	table, err := calibrate.Run(cmd.Context(), options)
	endProgress()
	if err != nil {
		return calibrateError(err)
	}
	warn(cmd, table.Warnings)
	if asJSON {
		encoder := json.NewEncoder(cmd.OutOrStdout())
		encoder.SetIndent("", "  ")
		err = encoder.Encode(table)
	} else {
		err = calibrate.WriteTable(cmd.OutOrStdout(), table)
	}
	if output == "" {
		output = table.FileSystem.DefaultPath()
	}
	if err := errors.Join(err, table.Save(output)); err != nil {
		return err
	}
	if !asJSON {
		fmt.Fprintf(cmd.OutOrStdout(), "\nsaved to %s\n", output)
	}
	return nil
}

// calibrateError gives an error of package calibrate its exit code.
func calibrateError(err error) error {
	switch {
	case errors.Is(err, calibrate.ErrUnsuitable):
		return usageError{err}
	case errors.Is(err, journal.ErrUnsupported), errors.Is(err, calibrate.ErrDiskUnsupported):
		return unsupportedError{err}
	}
	return err
}

func warn(cmd *cobra.Command, warnings []string) {
	for _, warning := range warnings {
		fmt.Fprintln(cmd.ErrOrStderr(), "warning:", warning)
	}
}
