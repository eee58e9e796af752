package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/experiment/paper1/attribution"
)

func newAttributionCommand() *cobra.Command {
	b := &bench{name: "attribution"}
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
			return measure(b, cmd, func(ctx context.Context, lab fixture.Lab) (attribution.Result, error) {
				return attribution.Run(ctx, lab, extent(b, attribution.Full, attribution.Quick))
			})
		},
	}
	b.flags(cmd)
	return cmd
}
