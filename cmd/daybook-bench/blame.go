package main

import (
	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/internal/experiment/daemon/causes"
)

func newBlameCommand() *cobra.Command {
	b := bench{name: "blame"}
	cmd := &cobra.Command{
		Use:   "blame",
		Short: "Inject causes of waits, and see whether blame finds them",
		Long: `Blame makes calls slow in a known way: by a neighbour's ordered data, by its open
handle, by a full journal, and by a slow flush of the disk. It compares what package
blame says with the cause, and with the times that the caller measured. It fails if too
little of the time is blamed on the cause.`,
		Example: "  daybook-bench blame --quick",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			lab, err := b.lab(cmd)
			if err != nil {
				return err
			}
			options := causes.Full
			if b.quick {
				options = causes.Quick
			}
			result, err := causes.Bench(cmd.Context(), lab, options)
			if err != nil {
				return err
			}
			return b.finish(cmd, result, result.Report, result.Check)
		},
	}
	b.flags(cmd)
	return cmd
}
