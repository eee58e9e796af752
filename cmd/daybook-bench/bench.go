package main

import (
	"cmp"
	"encoding/json"
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
	// command makes the page again; "": make bench-NAME.
	command string
	quick   bool
}

func (b *bench) flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVar(&b.quick, "quick", false, "a short measurement, to try the command")
	flags.StringVar(&b.output, "output", filepath.Join("build", "bench", b.name+".json"), "write the figures to `FILE`")
	flags.StringVar(&b.docs, "docs", "", "write the page "+b.name+".md and its picture into `DIR`")
}

// variant gives a form of the benchmark figures and a page of its own. A name that the
// user chose for the figures stays.
func (b *bench) variant(name, command string) {
	b.figures(name)
	b.name, b.command = name, command
}

// figures names the file of the figures.
func (b *bench) figures(name string) {
	if filepath.Base(b.output) == b.name+".json" {
		b.output = filepath.Join(filepath.Dir(b.output), name+".json")
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
				fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s\n", b.name, what)
			}
		},
	}, err
}

// finish prints the result, keeps it, and says whether its bounds hold.
func (b *bench) finish(cmd *cobra.Command, result any, page func() (report.Report, error), check func() error) error {
	// First the figures: whatever fails then, they are not lost.
	text, err := json.MarshalIndent(result, "", "  ")
	if err != nil {
		return err
	}
	if err := write(b.output, append(text, '\n')); err != nil {
		return err
	}
	r, err := page()
	if err != nil {
		return err
	}
	if err := r.WriteText(cmd.OutOrStdout()); err != nil {
		return err
	}
	if b.docs != "" {
		command := cmp.Or(b.command, "make bench-"+b.name)
		if b.quick {
			command = "daybook-bench " + b.name + " --quick"
		}
		if err := write(b.page()+".md", r.Markdown(command, b.name+".svg")); err != nil {
			return err
		}
		if r.Picture != nil {
			if err := write(b.page()+".svg", r.Picture); err != nil {
				return err
			}
		}
	}
	if b.docs != "" {
		if err := updatePapers(b.docs); err != nil {
			return err
		}
	}
	if err := check(); err != nil {
		return fmt.Errorf("outside the bounds:\n%w", err)
	}
	return nil
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

// figures are the results of a benchmark.
type figures interface {
	Report() (report.Report, error)
	Check() error
}

// again measures nothing. It finishes with the results in a file.
func again[F figures](b bench, cmd *cobra.Command, path string) error {
	var result F
	if err := read(path, &result); err != nil {
		return err
	}
	return b.finish(cmd, result, result.Report, result.Check)
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

// read reads a result from a file.
func read(path string, result any) error {
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, result)
	}
	if err != nil {
		return fmt.Errorf("cannot read the earlier figures: %w", err)
	}
	return nil
}

// before reads the earlier result, for the parts that are not measured this time. A
// missing file is an error only if the page is written, because the page shows all
// parts.
func (b *bench) before(result any) error {
	err := read(b.output, result)
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if b.docs != "" {
		return fmt.Errorf("%s would lose the parts that are not measured now, because earlier figures are missing: %w; measure all parts, or omit --docs",
			b.page()+".md", err)
	}
	return nil
}

// page is the path of the page without its extension.
func (b *bench) page() string { return filepath.Join(b.docs, b.name) }

func write(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("cannot write the figures: %w", err)
	}
	if err := os.WriteFile(path, content, 0o644); err != nil {
		return fmt.Errorf("cannot write the figures: %w", err)
	}
	return nil
}
