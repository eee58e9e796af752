package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/internal/disksim"
)

// diskFlags are the flags of all disk commands.
type diskFlags struct{ stateDir string }

func newDiskCommand() *cobra.Command {
	flags := &diskFlags{}
	cmd := &cobra.Command{
		Use:   "disk",
		Short: "Create simulated disks, for experiments",
		Long: `Disk creates block devices with computed service times (seeks by distance, bandwidth,
cache flush), so that an experiment does not depend on the host's disk. A disk is a
FUSE file under a loop device with direct I/O, with BFQ as its scheduler if the kernel
has it. Use it as any other disk: mkfs, mount, fio. Its data is in memory or in a
sparse file; a crash of the host destroys it.

Each disk command first removes the remains of disks whose server was killed.`,
		Example: `  daybook disk create slow --model hdd
  mkfs.ext4 $(daybook disk list --path slow)
  daybook disk delete slow`,
		Args: knownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().StringVar(&flags.stateDir, "state-dir", disksim.DefaultStateDir, "where disks are recorded and mounted")
	_ = cmd.MarkPersistentFlagDirname("state-dir")
	cmd.AddCommand(newDiskCreateCommand(flags), newDiskListCommand(flags), newDiskDeleteCommand(flags))
	return cmd
}

// recover removes the remains of killed servers and reports them.
func (f *diskFlags) recover(cmd *cobra.Command) error {
	if os.Geteuid() != 0 {
		return nil
	}
	recovered, err := disksim.Recover(cmd.Context(), f.stateDir)
	for _, disk := range recovered {
		message := fmt.Sprintf("daybook: removed the remains of disk %s, whose server was killed", disk.Name)
		if disk.LastWords != "" {
			message += ": " + disk.LastWords
		}
		fmt.Fprintln(cmd.ErrOrStderr(), message)
	}
	return err
}

// completeNames completes the names of disks.
func (f *diskFlags) completeNames(_ *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	records, _ := disksim.List(f.stateDir)
	var names []cobra.Completion
	for _, record := range records {
		names = append(names, cobra.CompletionWithDesc(record.Name, record.DevicePath()))
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// explainDisk maps the errors of disksim to exit codes.
func explainDisk(err error) error {
	switch {
	case errors.Is(err, disksim.ErrInvalid), errors.Is(err, disksim.ErrExists), errors.Is(err, disksim.ErrNotFound):
		return usageError{err}
	case errors.Is(err, disksim.ErrUnsupported):
		return unsupportedError{err}
	default:
		return err
	}
}
