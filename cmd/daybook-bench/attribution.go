package main

import (
	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/internal/experiment/attribution"
)

func newAttributionCommand() *cobra.Command {
	b := bench{name: "attribution"}
	cmd := &cobra.Command{
		Use:   "attribution",
		Short: "How far both estimators are from the bytes that reach an external journal",
		Long: `Attribution compares the handles and the syscalls estimator, on the same run, with the
byte count of an external journal device: each operation alone, then two and eight
containers at once and in turns; and what was charged with the kernel's own counters.
It fails if the handles estimator is outside its bounds.`,
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
