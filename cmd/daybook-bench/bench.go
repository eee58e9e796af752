package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/experiment/papers"
	"github.com/daybook-project/daybook/internal/experiment/report"
	"github.com/daybook-project/daybook/internal/program"
)

// bench has the flags that all benchmarks share: how much to measure, and where
// to write the results.
type bench struct {
	name, output, docs string
	// command makes the page again; "": make bench-NAME with the chosen flags.
	command string
	// target is the name before that of a variant; chosen are the flags of this measurement.
	target, chosen string
	// kept means that the figures were read from a file; its command is then that of the page.
	// copied means that the user named a file for them.
	kept, copied bool
	quick        bool
	// whole makes the text of the page from that of the report, if other parts of the page
	// stay; nil: the report is the page.
	whole func(report string) (page string, err error)
	// unjudged means that a quick measurement is too short for a verdict.
	unjudged bool
}

func (b *bench) flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVar(&b.quick, "quick", false, "a short measurement, to try the command; its figures are in "+b.name+"-quick.json")
	flags.StringVar(&b.output, "output", filepath.Join("build", "bench", b.name+".json"), "write the figures to `FILE`")
	flags.StringVar(&b.docs, "docs", "", "write the page "+b.name+".md and its picture into `DIR`")
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error { return b.begin(cmd) }
}

// begin names the file of the figures, and tries whether the results can be written: a measurement may
// take hours.
func (b *bench) begin(cmd *cobra.Command) error {
	b.target, b.chosen, b.copied = b.name, chosen(cmd), cmd.Flags().Changed("output")
	b.figures(b.name)
	err := tryReplacing(b.output)
	if b.docs != "" {
		err = errors.Join(err, tryReplacing(b.page()+".md"))
	}
	return err
}

// variant gives a form of the benchmark figures and a page of its own. A name that the
// user chose for the figures stays.
func (b *bench) variant(name, command string) {
	b.figures(name)
	b.name, b.command = name, command
}

// figures names the file of the figures, unless the user chose a name that is not the usual one.
// Those of a short measurement have a name of their own: they do not replace those of a whole one,
// nor are they mixed with them.
func (b *bench) figures(name string) {
	suffix := ".json"
	if b.quick {
		suffix = "-quick.json"
	}
	if base := filepath.Base(b.output); base == b.name+".json" || base == b.name+suffix {
		b.output = filepath.Join(filepath.Dir(b.output), name+suffix)
	}
}

// lab returns the environment of an experiment; it reports progress on standard
// error.
func (b *bench) lab(cmd *cobra.Command) (fixture.Lab, error) {
	if os.Geteuid() != 0 {
		return fixture.Lab{}, errors.New("want root: the experiment makes disks, cgroups and BPF programs")
	}
	tree, err := cgroup.Find()
	return fixture.Lab{
		Tree: tree,
		Log:  slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn})),
		Progress: func(_, what string, _ *account.Sample) {
			if what != "" {
				b.say(cmd, what)
			}
		},
	}, err
}

// say reports progress on standard error.
func (b *bench) say(cmd *cobra.Command, line string) {
	fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s\n", b.name, line)
}

// extent returns the options of a benchmark, or those of its quick form.
func extent[O any](b *bench, full, quick O) O {
	if b.quick {
		return quick
	}
	return full
}

// figures are the results of a benchmark.
type figures interface {
	Report() (report.Report, error)
	Check() error
}

// measure runs an experiment in the lab, and finishes with its result.
func measure[F figures](b *bench, cmd *cobra.Command, run func(ctx context.Context, lab fixture.Lab) (F, error)) error {
	lab, err := b.lab(cmd)
	if err != nil {
		return err
	}
	result, err := run(cmd.Context(), lab)
	if err != nil {
		return err
	}
	return b.finish(cmd, result)
}

// again measures nothing. It finishes with the results in a file.
func again[F figures](b *bench, cmd *cobra.Command, path string) error {
	var result F
	if err := b.readKept(path, &result); err != nil {
		return err
	}
	return b.finish(cmd, result)
}

// missedBounds begins the error of a benchmark that has done everything, and whose figures miss a bound.
const missedBounds = "outside the bounds"

// finish prints the result, keeps it, and says whether its bounds hold.
func (b *bench) finish(cmd *cobra.Command, result figures) error {
	return b.finishWith(cmd, result, result.Report)
}

// finishWith is finish with another page.
func (b *bench) finishWith(cmd *cobra.Command, result figures, page func() (report.Report, error)) error {
	// First the figures: whatever fails then, they are not lost. The tables are printed in any case.
	var errs []error
	if !b.kept || b.copied {
		errs = append(errs, b.save(result))
	}
	r, err := page()
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	errs = append(errs, r.WriteText(cmd.OutOrStdout()))
	if b.docs != "" {
		errs = append(errs, b.writePage(r))
	}
	if b.quick && b.unjudged {
		return errors.Join(errs...)
	}
	if err := result.Check(); err != nil {
		errs = append(errs, fmt.Errorf(missedBounds+":\n%w", err))
	}
	return errors.Join(errs...)
}

// writePage writes a report and its picture into the folder of the results pages.
func (b *bench) writePage(r report.Report) error {
	text := r.Markdown(b.made(), b.name+".svg")
	if b.whole != nil {
		page, err := b.whole(string(text))
		if err != nil {
			return err
		}
		text = []byte(page)
	}
	if err := write(b.page()+".md", text); err != nil {
		return err
	}
	if r.Picture != nil {
		if err := write(b.page()+".svg", r.Picture); err != nil {
			return err
		}
	}
	return updatePapers(b.docs)
}

// writePictures writes further pictures of the page, by file name; nothing without a page.
func (b *bench) writePictures(pictures map[string][]byte) error {
	if b.docs == "" {
		return nil
	}
	var errs []error
	for name, picture := range pictures {
		errs = append(errs, write(filepath.Join(b.docs, name), picture))
	}
	return errors.Join(errs...)
}

// updatePapers brings the page of the papers, beside the folder of the results pages,
// up to date with them. A folder without this page has nothing to update.
func updatePapers(docs string) error {
	page := filepath.Join(docs, "..", "papers.md")
	if err := papers.Rewrite(page, docs); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the results are written, but not the page of the papers: %w", err)
	}
	return nil
}

// choose replaces the default list of a benchmark by the values that the user
// asked for, if any.
func choose[T ~string](measured *[]T, asked []string) {
	if len(asked) == 0 {
		return
	}
	*measured = nil
	for _, name := range asked {
		*measured = append(*measured, T(name))
	}
}

// runMake runs make in a directory.
func runMake(cmd *cobra.Command, what, directory string, arguments ...string) error {
	out := cmd.ErrOrStderr()
	make := program.Command{Path: "make", Args: append([]string{"-C", directory}, arguments...), Output: out, Errors: out}
	if _, err := program.Run(cmd.Context(), make); err != nil {
		return fmt.Errorf("cannot build %s in %s: %w", what, directory, err)
	}
	return nil
}

// page is the path of the page without its extension.
func (b *bench) page() string { return filepath.Join(b.docs, b.name) }
