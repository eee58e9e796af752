package main

import (
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/internal/experiment/daemon/overhead"
)

func newOverheadCommand() *cobra.Command {
	b := bench{name: "overhead"}
	var program string
	cmd := &cobra.Command{
		Use:   "overhead",
		Short: "Measure the cost of the daemon for programs on the host",
		Long: `Overhead measures mkdir, creat+unlink and 4 KiB append+fsync with and without the daemon, in
alternating rounds. It also reads the time of each BPF program from the kernel's statistics.
It fails if the whole range of an operation's slowdown is above 1 %.`,
		Example: "  daybook-bench overhead --quick --daybook bin/daybook",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			lab, err := b.lab(cmd)
			if err != nil {
				return err
			}
			options := overhead.Options{Program: program, Pairs: 20, Scale: 1}
			if b.quick {
				options.Pairs, options.Scale = 3, 10
			}
			result, err := overhead.Run(cmd.Context(), lab, options)
			if err != nil {
				return err
			}
			check := result.Check
			if b.quick {
				check = func() error { return nil } // too few rounds for a verdict
			}
			return b.finish(cmd, result, result.Report, check)
		},
	}
	b.flags(cmd)
	cmd.Flags().StringVar(&program, "daybook", filepath.Join("bin", "daybook"), "`PROGRAM` to run as the daemon")
	return cmd
}
