package main

import (
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/internal/experiment/shares"
)

func newSharesCommand() *cobra.Command {
	b := bench{name: "shares"}
	var scenario string
	cmd := &cobra.Command{
		Use:   "shares",
		Short: "Shares of a simulated disk, uncontrolled and under both laws",
		Long: `Shares runs paper 1's experiment and five like it (50:50, 70:30 and 40:30:20:10, each
without any fsync and with one a second), 60 s each, uncontrolled and under both laws.
It fails if the feedback law is outside its bounds. It takes 28 minutes.`,
		Example: `  daybook-bench shares --docs docs/results

  # One scenario again; the others stay as they are in --output
  daybook-bench shares --scenario 70:30 --docs docs/results`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			lab, err := b.lab(cmd)
			if err != nil {
				return err
			}
			options := shares.Full
			if b.quick {
				options = shares.Quick
			}
			if options.Only = scenario; scenario != "" {
				if err := read(b.output, &options.Before); err != nil {
					return err
				}
			}
			result, err := shares.Bench(cmd.Context(), lab, options)
			if err != nil {
				return err
			}
			if b.docs != "" {
				for name, picture := range result.Figures() {
					if err := write(filepath.Join(b.docs, name), picture); err != nil {
						return err
					}
				}
			}
			return b.finish(cmd, result, result.Report, result.Check)
		},
	}
	b.flags(cmd)
	cmd.Flags().StringVar(&scenario, "scenario", "", "measure only the scenario of that `NAME` again")
	return cmd
}
