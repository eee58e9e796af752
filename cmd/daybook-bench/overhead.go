package main

import (
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/internal/experiment/overhead"
)

func newOverheadCommand() *cobra.Command {
	b := bench{name: "overhead"}
	var program string
	cmd := &cobra.Command{
		Use:   "overhead",
		Short: "What the daemon costs the programs on the host",
		Long: `Overhead measures mkdir, creat+unlink and 4 KiB append+fsync with and without the
daemon, in alternating rounds, and apart from that what each BPF program takes, by the
kernel's own statistics. It fails if an operation is more than 1 % slower for certain.`,
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
				check = func() error { return nil } // too few rounds to tell
			}
			return b.finish(cmd, result, result.Report, check)
		},
	}
	b.flags(cmd)
	cmd.Flags().StringVar(&program, "daybook", filepath.Join("bin", "daybook"), "the `PROGRAM` whose daemon runs")
	return cmd
}
