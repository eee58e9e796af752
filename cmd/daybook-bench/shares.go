package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/internal/experiment/daemon/shares"
	"github.com/daybook-project/daybook/internal/experiment/fixture"
	papershares "github.com/daybook-project/daybook/internal/experiment/paper1/shares"
)

// sharesFlags are those of bench-shares alone.
type sharesFlags struct {
	paper, resume bool
	repetitions   int
	lanes         int
	only          []string
	scenario      string
}

func newSharesCommand() *cobra.Command {
	b, f := &bench{name: "shares", unjudged: true}, sharesFlags{}
	cmd := &cobra.Command{
		Use:   "shares",
		Short: "Measure shares of a simulated disk under control, in many runs of many scenarios",
		Long: `Shares repeats each of 14 scenarios, and reports the median and the worst run. The
scenarios differ in queue depth (1, 8, 32), load (readers, writers with and without
fsync, a mix), number of containers (2, 3, 4), and storms of metadata changes. The disk
has BFQ with its own tunables (but low_latency=0), BFQ with the recommended tunables, or
mq-deadline or none with limits.

Each run has an uncontrolled phase of 15 s and a controlled one of 75 s, in alternating
order on one disk. The first 15 s under control do not count, because the law finds its
weights in them. It fails if any run misses a goal: mean of a minute within 1 point of
the target, 95 % of the 5 s intervals within 5 points, none more than 10 points off, and
at least 0.95 of the throughput.

Several runs can run at a time, each on its own disk (--lanes). Each needs about 2 GiB
of memory and a quarter of a processor. The result is written after each run. After
Ctrl-C, continue with --resume.

With --paper it runs the experiment of paper 1 and five similar ones instead (50:50,
70:30 and 40:30:20:10, each without fsync and with one fsync a second), 60 s each,
uncontrolled and under both laws. That takes 28 minutes.`,
		Example: `  daybook-bench shares --lanes 4 --docs docs/results

  # Continue after an interruption, with the same settings
  daybook-bench shares --lanes 4 --docs docs/results --resume

  # One scenario again; the others in --output stay unchanged
  daybook-bench shares --only "3 readers, depth 8, storm, BFQ recommended"

  # Examine a bad run
  daybook replay build/bench/shares-runs/3-readers-depth-8-storm-bfq-default-07.json

  # The paper's scenarios, or one of them
  daybook-bench shares --paper --docs docs/results
  daybook-bench shares --paper --scenario 70:30 --docs docs/results`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.paper {
				b.variant("shares-paper", `make bench-shares BENCHFLAGS=--paper`)
				return f.runPaper(cmd, b)
			}
			return f.run(cmd, b)
		},
	}
	b.flags(cmd)
	flags := cmd.Flags()
	flags.IntVar(&f.repetitions, "repetitions", shares.Full.Repetitions, "number of runs of each scenario")
	flags.IntVar(&f.lanes, "lanes", defaultLanes(runtime.NumCPU()), "number of concurrent runs, 1 to 16")
	flags.StringArrayVar(&f.only, "only", nil, "measure only the scenario `NAME`; may be repeated")
	flags.BoolVar(&f.resume, "resume", false, "continue with the runs in --output")
	flags.BoolVar(&f.paper, "paper", false, "run the scenarios of paper 1 instead")
	flags.StringVar(&f.scenario, "scenario", "", "with --paper: measure only the scenario `NAME`")
	return cmd
}

// defaultLanes leaves a processor for the loads and the meters: a starved lane
// measures the host.
func defaultLanes(processors int) int { return min(8, max(1, processors-1)) }

func (f *sharesFlags) check() error {
	switch {
	case f.repetitions < 1 || f.repetitions > 1000:
		return fmt.Errorf("--repetitions is %d; want 1 to 1000", f.repetitions)
	case f.lanes < 1 || f.lanes > 16:
		return fmt.Errorf("--lanes is %d; want 1 to 16", f.lanes)
	case f.scenario != "":
		return errors.New("--scenario is for --paper; here it is --only")
	}
	return nil
}

func (f *sharesFlags) run(cmd *cobra.Command, b *bench) error {
	if err := f.check(); err != nil {
		return err
	}
	lab, err := b.lab(cmd)
	if err != nil {
		return err
	}
	o := extent(b, shares.Full, shares.Quick)
	if b.quick {
		o.Only = shares.Names()[:1]
	}
	if !b.quick || cmd.Flags().Changed("repetitions") {
		o.Repetitions = f.repetitions
	}
	if len(f.only) > 0 {
		o.Only = f.only
	}
	o.Lanes, o.Anew = f.lanes, !f.resume
	if f.resume || len(f.only) > 0 {
		var before shares.Result
		if err := b.before(&before); err != nil {
			return err
		}
		if len(before.Plan) > 0 {
			o.Before = &before
		}
	} else if err := b.setAside(cmd); err != nil {
		return err
	}
	o.Version = version
	o.Recordings = strings.TrimSuffix(b.output, ".json") + "-runs"
	o.Say = func(line string) { b.say(cmd, line) }
	o.Save = func(result shares.Result) error { return b.save(result) }
	result, err := shares.Measure(cmd.Context(), lab, o)
	if err != nil {
		if len(result.Runs) > 0 {
			b.say(cmd, fmt.Sprintf("%d runs are in %s; --resume goes on", len(result.Runs), b.output))
		}
		return err
	}
	b.chosen = fmt.Sprintf("--repetitions %d --lanes %d", result.Repetitions, o.Lanes)
	return b.finish(cmd, result)
}

func (f *sharesFlags) runPaper(cmd *cobra.Command, b *bench) error {
	options := extent(b, papershares.Full, papershares.Quick)
	if options.Only = f.scenario; f.scenario != "" {
		if err := read(b.output, &options.Before); err != nil {
			return err
		}
	}
	b.unjudged = false
	var drawn error
	err := measure(b, cmd, func(ctx context.Context, lab fixture.Lab) (papershares.Result, error) {
		result, err := papershares.Bench(ctx, lab, options)
		if err == nil {
			drawn = b.writePictures(result.Figures())
		}
		return result, err
	})
	return errors.Join(drawn, err) // an error that begins with the missed bounds has no other
}
