package main

import (
	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/internal/experiment/paper1/attribution"
)

func newAttributionCommand() *cobra.Command {
	b := bench{name: "attribution"}
	cmd := &cobra.Command{
		Use:   "attribution",
		Short: "Compare both estimators with the bytes that reach an external journal",
		Long: `Attribution compares the handles and the syscalls estimator with the byte count of an
external journal device, on the same run. It runs each operation alone, and then two and
eight containers at once and in turns. It also compares the charged bytes with the
kernel's own counters. It fails if the handles estimator is outside its bounds.`,
		Example: "  daybook-bench attribution --quick",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			lab, err := b.lab(cmd)
			if err != nil {
				return err
			}
			options := attribution.Full
			if b.quick {
				options = attribution.Quick
			}
			result, err := attribution.Run(cmd.Context(), lab, options)
			if err != nil {
				return err
			}
			return b.finish(cmd, result, result.Report, result.Check)
		},
	}
	b.flags(cmd)
	return cmd
}
