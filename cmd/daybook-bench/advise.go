package main

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/internal/experiment/daemon/advice"
	"github.com/daybook-project/daybook/internal/experiment/fixture"
)

func newAdviseCommand() *cobra.Command {
	b := &bench{name: "advise", unjudged: true}
	sets := []string{advice.TuningSet, advice.HeldOutSet}
	var from string
	cmd := &cobra.Command{
		Use:   "advise",
		Short: "Compare the predictions of advise with measurements",
		Long: `Advise checks the predictions of daybook advise. It measures a container that syncs
beside each neighbour on one shared ext4, and then with each remedy: volumes on devices,
volumes in images, and ext4 with dioread_nolock. It compares the measured effect of
each remedy with what daybook advise predicts from the shared ext4 alone. The model was
tuned with one set of cases; the bound is for the other set, which is measured twice, to
see how far repeated measurements are apart. It fails if too few predictions are within
the bound. It takes 50 minutes and needs fio, MariaDB and sysbench (scripts/setup bench).
Interrupted, it keeps the parts that were measured in NAME.partial.json, beside the
figures of the last whole run. The command daybook-bench blame writes the page.`,
		Example: `  daybook-bench advise --quick

  # Apply the present model to an earlier measurement
  daybook-bench advise --again build/bench/advise.json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if b.docs != "" {
				return errors.New("advise has no page of its own: daybook-bench blame --docs writes its tables, too")
			}
			if from != "" {
				return again[advice.Result](b, cmd, from)
			}
			var kept advice.Result
			if cmd.Flags().Changed("set") {
				if err := b.before(&kept); err != nil {
					return err
				}
			}
			partial := strings.TrimSuffix(b.output, ".json") + ".partial.json"
			return measure(b, cmd, func(ctx context.Context, lab fixture.Lab) (advice.Result, error) {
				return advice.Measure(ctx, lab, extent(b, advice.Full, advice.Quick), sets, kept, func(r advice.Result) error { return keep("the figures", partial, r) })
			})
		},
	}
	b.flags(cmd)
	cmd.Flags().StringSliceVar(&sets, "set", sets, "measure only these `SETS`; keep the others in --output unchanged: tuning, held-out, other-load")
	cmd.Flags().StringVar(&from, "again", "", "measure nothing; read the figures from `FILE`")
	return cmd
}
