package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/experiment/report"
)

// bench is what the benchmarks have in common: how much they measure, and
// where the figures go.
type bench struct {
	name, output, docs string
	quick              bool
}

func (b *bench) flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVar(&b.quick, "quick", false, "measure less, to see that it works")
	flags.StringVar(&b.output, "output", filepath.Join("build", "bench", b.name+".json"), "write the figures to `FILE`")
	flags.StringVar(&b.docs, "docs", "", "write the page "+b.name+".md and its picture into `DIR`")
}

// lab tells on standard error what is being done.
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
	r, err := page()
	if err != nil {
		return err
	}
	if err := r.WriteText(cmd.OutOrStdout()); err != nil {
		return err
	}
	text, err := json.MarshalIndent(result, "", "  ")
	if err != nil {
		return err
	}
	if err := write(b.output, append(text, '\n')); err != nil {
		return err
	}
	if b.docs != "" {
		command := "make bench-" + b.name
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
	if err := check(); err != nil {
		return fmt.Errorf("outside the bounds:\n%w", err)
	}
	return nil
}

// figures are what a benchmark came to.
type figures interface {
	Report() (report.Report, error)
	Check() error
}

// again measures nothing: it finishes with the figures in a file.
func again[F figures](b bench, cmd *cobra.Command, path string) error {
	var result F
	if err := read(path, &result); err != nil {
		return err
	}
	return b.finish(cmd, result, result.Report, result.Check)
}

// choose puts what was asked for, if anything, in the place of what a benchmark
// measures by itself.
func choose[T ~string](measured *[]T, asked []string) {
	if len(asked) == 0 {
		return
	}
	*measured = nil
	for _, name := range asked {
		*measured = append(*measured, T(name))
	}
}

// runMake builds what is in a directory.
func runMake(cmd *cobra.Command, what, directory string, arguments ...string) error {
	make := exec.CommandContext(cmd.Context(), "make", append([]string{"-C", directory}, arguments...)...)
	make.Stdout, make.Stderr = cmd.ErrOrStderr(), cmd.ErrOrStderr()
	if err := make.Run(); err != nil {
		return fmt.Errorf("cannot build %s in %s: %w", what, directory, err)
	}
	return nil
}

// read takes a result that was kept.
func read(path string, result any) error {
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, result)
	}
	if err != nil {
		return fmt.Errorf("cannot read the figures kept before: %w", err)
	}
	return nil
}

// before takes the result that was kept, for what is not measured this time. Without
// it there is nothing to keep; but then the page, which has all, must not be written.
func (b *bench) before(result any) error {
	err := read(b.output, result)
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if b.docs != "" {
		return fmt.Errorf("%s would lose what is not measured now, as there are no figures of it: %w; measure all, or leave --docs out",
			b.page()+".md", err)
	}
	return nil
}

// page is where the page goes, without its extension.
func (b *bench) page() string { return filepath.Join(b.docs, b.name) }

func write(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("cannot keep the figures: %w", err)
	}
	if err := os.WriteFile(path, content, 0o644); err != nil {
		return fmt.Errorf("cannot keep the figures: %w", err)
	}
	return nil
}
