package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/control/law"
	"github.com/daybook-project/daybook/internal/stdout"
	"github.com/daybook-project/daybook/internal/top"
)

// Bounds of --speed.
const (
	minSpeed = 0.01
	maxSpeed = 1e6
)

func newReplayCommand() *cobra.Command {
	var show showFlags
	var speed float64
	var skip int
	var lawName string
	cmd := &cobra.Command{
		Use:   "replay FILE",
		Short: "Show a recording on the screens of top",
		Long: `Replay shows the samples that "daybook top --record FILE", "daybook metrics --record
FILE" or "daybook control --record FILE" took, on the same screens, at the same speed.
A pause stops the replay. If the output is not a terminal, and with --json, it writes
all samples at once. It needs no root and no kernel feature.

With --law it prints, for each interval, the weights that were in force and those that
the law would have set, for a weight file of 1 to 1000. It does not simulate what these
weights would have changed.

If the recording was rotated, its older files FILE.1, FILE.2, … are shown first,
oldest first. To see one of them alone, name it.

If a crash cut off the last line of a recording, replay shows the rest and warns. Any
other damage is an error with the line number.`,
		Example: `  # Look at it again, ten times as fast
  daybook replay --speed 10 ~/tuesday.daybook

  # Which weights would the law called paper have set?
  daybook replay --law paper ~/tuesday.daybook

  # The journal's bytes per interval and container
  daybook replay --json ~/tuesday.daybook |
    jq '.devices[].containers[] | [.name, .journal_bytes]'`,
		Args: oneFile,
		RunE: func(cmd *cobra.Command, args []string) error {
			options, err := show.options()
			if err != nil {
				return err
			}
			if !(speed >= minSpeed && speed <= maxSpeed) {
				return usageError{fmt.Errorf("--speed is %g; want %g to %g", speed, minSpeed, maxSpeed)}
			}
			if skip < 0 {
				return usageError{fmt.Errorf("--skip is %d; want 0 or more", skip)}
			}
			return replay(cmd.Context(), args[0], skip, func(ctx context.Context, reader *account.Series, path string) error {
				if lawName != "" {
					return showLaw(ctx, reader, lawName, options)
				}
				options.Origin = path
				options.AtEnd = reader.Unfinished
				if top.UsesScreen(options) {
					return top.Run(ctx, top.NewPaced(reader, speed), options)
				}
				return top.Run(ctx, reader, options)
			})
		},
	}
	show.add(cmd)
	cmd.Flags().Float64Var(&speed, "speed", 1, "times the speed of the recording, on the full screen")
	cmd.Flags().IntVar(&skip, "skip", 0, "skip the first `N` samples")
	cmd.Flags().StringVar(&lawName, "law", "", "print the weights that this law would have set: feedback or paper")
	completeWith(cmd, "law", law.FeedbackLaw, law.PaperLaw)
	return cmd
}

// oneFile requires exactly one argument.
func oneFile(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usageError{fmt.Errorf("want the name of one recording, got %d arguments", len(args))}
	}
	return nil
}

// replay opens the recording, skips samples and shows the rest. An error in the
// recording is a usage error, one of the output is none; an interruption stays one, also
// while a pipe has no writer or its writer writes nothing.
func replay(ctx context.Context, path string, skip int, show func(context.Context, *account.Series, string) error) error {
	reader, err := untilDone(ctx, func() (*account.Series, error) { return account.OpenSeries(path) })
	if errors.Is(err, context.Canceled) {
		return err
	}
	if err != nil {
		return usageError{err}
	}
	defer reader.Close()
	defer context.AfterFunc(ctx, func() { _ = reader.Close() })() // ends a read
	for skipped := range skip {
		if _, err = reader.Next(ctx); err == io.EOF {
			err = fmt.Errorf("cannot skip %d samples: %s has %d", skip, path, skipped)
			break
		} else if err != nil {
			err = fmt.Errorf("cannot skip %d samples of %s: %w", skip, path, err)
			break
		}
	}
	if err == nil {
		err = show(ctx, reader, path)
	}
	if err == nil || errors.Is(err, context.Canceled) || stdout.Failed(err) {
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return usageError{err}
}

func showLaw(ctx context.Context, reader *account.Series, lawName string, options top.Options) error {
	whatIf, err := top.NewWhatIf(lawName)
	if err != nil {
		return err
	}
	answers := 0
	for {
		sample, err := reader.Next(ctx)
		if errors.Is(err, io.EOF) {
			if answers == 0 {
				return errors.New("the recording has no sample in which two containers of one parent cgroup have weights; there is nothing for a law to correct")
			}
			if notice := reader.Unfinished(); notice != "" {
				fmt.Fprintln(options.Err, "daybook: warning:", notice)
			}
			return nil
		}
		if err != nil {
			return err
		}
		proposals, err := whatIf.Next(sample)
		if err != nil {
			return err
		}
		if answers == 0 && len(proposals) > 0 && !options.JSON {
			fmt.Fprintln(options.Out, top.ProposalHeading)
		}
		for _, p := range proposals {
			if err := top.WriteProposal(options.Out, p, options.JSON); err != nil {
				return err
			}
		}
		if answers += len(proposals); options.Once && answers > 0 {
			return nil
		}
	}
}
