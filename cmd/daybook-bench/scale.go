package main

import (
	"context"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/internal/experiment/daemon/scale"
	"github.com/daybook-project/daybook/internal/experiment/fixture"
)

func newScaleCommand() *cobra.Command {
	b := &bench{name: "scale"}
	var program string
	cmd := &cobra.Command{
		Use:   "scale",
		Short: "Measure the cost of the daemon with a thousand cgroups",
		Long: `Scale makes a thousand cgroups and does I/O in all of them. It measures the daemon's
processor time for one interval, and its memory. It fails if either exceeds its bound.`,
		Example: "  daybook-bench scale --daybook bin/daybook",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			options := scale.Options{Program: program, Cgroups: scale.Cgroups, Interval: 5 * time.Second, Intervals: 10}
			if b.quick {
				options.Intervals = 2
			}
			return measure(b, cmd, func(ctx context.Context, lab fixture.Lab) (scale.Result, error) {
				return scale.Run(ctx, lab, options)
			})
		},
	}
	b.flags(cmd)
	cmd.Flags().StringVar(&program, "daybook", filepath.Join("bin", "daybook"), "`PROGRAM` to run as the daemon")
	return cmd
}
