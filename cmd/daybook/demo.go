package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/control/law"
	"github.com/daybook-project/daybook/internal/disksim"
	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/experiment/paper1/shares"
	"github.com/daybook-project/daybook/internal/experiment/scenario"
	"github.com/daybook-project/daybook/internal/safetext"
)

type demoFlags struct {
	seconds  float64
	output   string
	asJSON   bool
	law      string
	interval time.Duration
}

func newDemoCommand() *cobra.Command {
	var f demoFlags
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show a noisy neighbour on a simulated disk, and correct it",
		Long: `Demo creates a simulated hard disk (a FUSE file with service times, under a loop device
with BFQ), an ext4 on it, and two containers A and B with equal weights. Both read; B
also makes 2000 directories a second. In the first phase nothing corrects the weights;
in the second Daybook does. Demo prints and draws the cost of each container.

It removes everything at the end and touches nothing else on the host. It needs root,
FUSE, loop devices, BFQ and a kernel with BTF, and takes about two minutes.`,
		Example: `  daybook demo
  daybook demo --seconds 30 --json
  daybook demo --law paper --output /tmp/demo.html`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.Float64Var(&f.seconds, "seconds", 55, "length of each of the two phases, 5 to 3600")
	flags.DurationVar(&f.interval, "interval", 5*time.Second, "time between samples and corrections")
	flags.StringVar(&f.law, "law", law.FeedbackLaw, "law of the controlled phase: feedback or paper")
	flags.StringVar(&f.output, "output", "", "write the report to `FILE` (.html, with a .svg beside it); default build/demo.html, with --json none")
	flags.BoolVar(&f.asJSON, "json", false, "print the result as JSON")
	completeWith(cmd, "law", law.FeedbackLaw, law.PaperLaw)
	return cmd
}

func (f *demoFlags) run(ctx context.Context, stdout, stderr io.Writer) error {
	switch {
	case !(f.seconds >= 5 && f.seconds <= 3600): // NaN too
		return usageError{fmt.Errorf("--seconds is %v; want 5 to 3600", f.seconds)}
	case f.interval < minInterval || f.interval.Seconds() > f.seconds:
		return usageError{fmt.Errorf("--interval is %v; want 1s to the length of a phase", f.interval)}
	}
	if _, err := law.NewLaw(f.law, law.BFQRange); err != nil {
		return usageError{fmt.Errorf("--law: %w", err)}
	}
	if filepath.Ext(f.output) == pictureSuffix {
		return usageError{fmt.Errorf("--output is %s; want the name of the HTML report, such as %s: the picture is written beside it",
			safetext.Word(f.output), safetext.Word(withSuffix(f.output, ".html")))}
	}
	if os.Geteuid() != 0 {
		return unsupportedError{errors.New("the demo needs root: it makes a disk, cgroups and BPF programs; try: sudo daybook demo")}
	}
	tree, err := cgroup.Find()
	if err != nil {
		return unsupportedError{err}
	}
	paper := scenario.Paper(f.seconds, f.interval)
	progress := newDemoProgress(stderr, paper)
	lab := fixture.Lab{Tree: tree, Progress: progress.show, Log: slog.New(slog.DiscardHandler)}
	phases := make([]scenario.Phase, 0, 2)
	for _, law := range []string{scenario.Uncontrolled, f.law} {
		phase, err := paper.Run(ctx, lab, law)
		progress.end()
		if err != nil {
			return demoError(err)
		}
		phases = append(phases, phase)
	}
	if f.asJSON {
		if err := json.NewEncoder(stdout).Encode(paper.Summarize(phases)); err != nil {
			return err
		}
	} else if err := paper.WriteTable(stdout, phases); err != nil {
		return err
	}
	return f.draw(stdout, paper, phases)
}

func demoError(err error) error {
	if errors.Is(err, disksim.ErrUnsupported) || errors.Is(err, cgroup.ErrNoWeights) {
		return unsupportedError{err}
	}
	return hostError(err)
}

func (f *demoFlags) draw(stdout io.Writer, paper scenario.Scenario, phases []scenario.Phase) error {
	output := f.output
	if output == "" {
		if f.asJSON {
			return nil
		}
		output = filepath.Join("build", "demo.html")
	}
	report, err := shares.Draw(paper, phases, "daybook demo")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(output), 0o755); err != nil {
		return fmt.Errorf("cannot write the report: %w", err)
	}
	picture := withSuffix(output, pictureSuffix)
	if err := errors.Join(os.WriteFile(output, report.HTML, 0o644), os.WriteFile(picture, report.SVG, 0o644)); err != nil {
		return fmt.Errorf("cannot write the report: %w", err)
	}
	if !f.asJSON {
		_, err = fmt.Fprintf(stdout, "\nThe figures: %s and %s\n", output, picture)
	}
	return err
}

// pictureSuffix is that of the picture beside the report.
const pictureSuffix = ".svg"

// withSuffix replaces the suffix of a file's name.
func withSuffix(path, suffix string) string {
	return strings.TrimSuffix(path, filepath.Ext(path)) + suffix
}
