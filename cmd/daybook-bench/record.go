package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/experiment/paper1/shares"
	"github.com/daybook-project/daybook/internal/experiment/scenario"
)

func newRecordCommand() *cobra.Command {
	b := &bench{name: "record"}
	var seconds float64
	cmd := &cobra.Command{
		Use:   "record FILE",
		Short: "Record the samples of an uncontrolled disk, for the tests of the laws",
		Long: `Record runs the scenario 50:50 uncontrolled under BFQ's default slices, which vary the most,
and appends a sample to FILE every 5 s. The containers' cgroups are named /A and /B. The recording
disk.jsonl in internal/control/law/testdata was made with it.`,
		Example: "  daybook-bench record --seconds 250 internal/control/law/testdata/disk.jsonl",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			lab, err := b.lab(cmd)
			if err != nil {
				return err
			}
			recorder, err := account.OpenRecorder(args[0])
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, recorder.Close()) }()
			return recordUncontrolled(cmd.Context(), lab, recorder, seconds)
		},
	}
	cmd.Flags().Float64Var(&seconds, "seconds", 250, "duration in seconds")
	return cmd
}

func recordUncontrolled(ctx context.Context, lab fixture.Lab, recorder *account.Recorder, seconds float64) error {
	s := shares.DefaultSlices(seconds, 5*time.Second)
	phase, err := s.Run(ctx, lab, scenario.Uncontrolled)
	if err != nil {
		return err
	}
	for _, sample := range phase.Recording() {
		if err := recorder.Record(sample); err != nil {
			return err
		}
	}
	return nil
}
