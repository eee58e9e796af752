package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/internal/experiment/papers"
	"github.com/daybook-project/daybook/internal/kernel"
)

// paperPart is a benchmark that measures figures of papers.
type paperPart struct {
	name   string // of the results page
	papers []int
	args   []string
	// minutes is how long it takes on an idle host with two processors.
	minutes int
}

var paperParts = []paperPart{
	{"attribution", []int{1}, []string{"attribution"}, 8},
	{"shares-paper", []int{1}, []string{"shares", "--paper"}, 28},
	{"guests", []int{1}, []string{"guests"}, 25},
	{"volumes", []int{2}, []string{"volumes"}, 55},
	{"guest-volumes", []int{2}, []string{"guest-volumes"}, 120},
	{"ext4nvj", []int{3, 4}, []string{"ext4nvj", "--native"}, 13},
	{"jfsnvj", []int{4}, []string{"jfsnvj"}, 6},
	{"nvjournal", []int{3, 4}, []string{"nvjournal"}, 7},
}

func (p paperPart) of() string {
	var of []string
	for _, n := range p.papers {
		of = append(of, strconv.Itoa(n))
	}
	return strings.Join(of, ", ")
}

// isNamed reports whether a name of --only is its own, or that of a paper: paperN.
func (p paperPart) isNamed(name string) bool {
	number, err := strconv.Atoi(strings.TrimPrefix(name, "paper"))
	return name == p.name || err == nil && slices.Contains(p.papers, number)
}

// namedParts are the parts that --only names; all without it.
func namedParts(only []string) ([]paperPart, error) {
	for _, name := range only {
		if !slices.ContainsFunc(paperParts, func(p paperPart) bool { return p.isNamed(name) }) {
			return nil, fmt.Errorf("--only %s names no part: want paper1 to paper4, or a name that --list shows", name)
		}
	}
	return slices.DeleteFunc(slices.Clone(paperParts), func(p paperPart) bool {
		return len(only) > 0 && !slices.ContainsFunc(only, p.isNamed)
	}), nil
}

// paperRun is how the last run of a part ended; it is kept beside the figures.
type paperRun struct {
	Ended   time.Time `json:"ended"`
	Seconds float64   `json:"seconds"`
	Quick   bool      `json:"quick"`
	// Kernel is uname -r of the host, and Version that of this program; "" in states of earlier versions.
	Kernel  string `json:"kernel,omitempty"`
	Version string `json:"version,omitempty"`
	// Error is why it failed, or which bounds it missed.
	Error string `json:"error,omitempty"`
}

// when says when the part was measured, and by what on which kernel: parts of one page may be of
// several.
func (r paperRun) when() string {
	text := r.Ended.Format("2006-01-02 15:04")
	if r.Kernel != "" {
		text += ", Linux " + r.Kernel
	}
	if r.Version != "" {
		text += ", version " + r.Version
	}
	return text
}

// paperRuns runs parts of the papers one after the other, and continues after an
// interruption.
type paperRuns struct {
	folder  string // state.json, NAME.json, NAME.log, results/
	quick   bool
	say     func(format string, a ...any)
	execute func(ctx context.Context, log io.Writer, args []string) error
	state   map[string]paperRun
}

func (r *paperRuns) statePath() string { return filepath.Join(r.folder, "state.json") }
func (r *paperRuns) results() string   { return filepath.Join(r.folder, "results") }

func (r *paperRuns) load() error {
	r.state = map[string]paperRun{} // stays if it cannot be read
	text, err := os.ReadFile(r.statePath())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(text, &r.state)
	}
	if err != nil {
		return fmt.Errorf("cannot read which parts have finished; --fresh begins anew: %w", err)
	}
	return nil
}

func (r *paperRuns) save() error {
	return keep("which parts have finished", r.statePath(), r.state)
}

// finished reports whether a part has figures of this extent. A missed bound does not
// count: its figures are there.
func (r *paperRuns) finished(p paperPart) bool {
	run, ran := r.state[p.name]
	return ran && (r.quick || !run.Quick) && r.hasFigures(p)
}

// hasFigures reports whether the last run of a part did everything. It may have missed a bound.
func (r *paperRuns) hasFigures(p paperPart) bool {
	_, err := os.Stat(filepath.Join(r.results(), p.name+".md"))
	failed := r.state[p.name].Error
	return err == nil && (failed == "" || strings.HasPrefix(failed, missedBounds))
}

// run runs those of the parts that have not finished. Only an interruption ends it:
// wrong returns which parts failed.
func (r *paperRuns) run(ctx context.Context, parts []paperPart, fresh bool) error {
	if err := r.load(); err != nil && !fresh {
		return err
	}
	left := 0
	for _, p := range parts {
		if fresh || !r.finished(p) {
			left += p.minutes
		}
	}
	r.say("%d parts, about %d minutes on an idle host", len(parts), left)
	for n, p := range parts {
		if !fresh && r.finished(p) {
			r.say("%d of %d: %s has finished on %s", n+1, len(parts), p.name, r.state[p.name].when())
			continue
		}
		r.say("%d of %d: %s (paper %s), about %d minutes", n+1, len(parts), p.name, p.of(), p.minutes)
		if err := os.Remove(filepath.Join(r.results(), p.name+".md")); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		began := time.Now()
		runErr := r.one(ctx, p)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		result := paperRun{
			Ended: time.Now().UTC().Truncate(time.Second), Seconds: time.Since(began).Round(time.Second).Seconds(), Quick: r.quick,
			Kernel: kernel.Release(), Version: version,
		}
		if runErr != nil {
			result.Error = runErr.Error()
		}
		r.state[p.name] = result
		if err := r.save(); err != nil {
			return err
		}
		how := r.ended(p)
		if runErr != nil {
			how += "; see " + r.logPath(p)
		}
		r.say("%d of %d: %s: %s, after %s", n+1, len(parts), p.name, how, time.Since(began).Round(time.Second))
	}
	return nil
}

// ended says how the last run of a part ended.
func (r *paperRuns) ended(p paperPart) string {
	run := r.state[p.name]
	switch {
	case !r.hasFigures(p):
		return "failed: " + run.Error
	case run.Error != "":
		return "outside its bounds: " + run.Error
	}
	return "finished"
}

func (r *paperRuns) logPath(p paperPart) string { return filepath.Join(r.folder, p.name+".log") }

func (r *paperRuns) one(ctx context.Context, p paperPart) error {
	if err := os.MkdirAll(r.results(), 0o755); err != nil {
		return err
	}
	log, err := os.Create(r.logPath(p))
	if err != nil {
		return err
	}
	defer log.Close()
	args := append(slices.Clone(p.args), "--output", filepath.Join(r.folder, p.name+".json"), "--docs", r.results())
	if r.quick {
		args = append(args, "--quick")
	}
	return r.execute(ctx, log, args)
}

// outcomes are for the page.
func (r *paperRuns) outcomes() []papers.Outcome {
	var all []papers.Outcome
	for _, p := range paperParts {
		o := papers.Outcome{Part: p.name, Papers: p.of(), When: "–", Result: "not run here; the page of the repository"}
		if run, ran := r.state[p.name]; ran {
			o.When, o.Result = run.when(), r.ended(p)
			if run.Quick {
				o.Result += " (quick)"
			}
		}
		all = append(all, o)
	}
	return all
}

// executeSelf runs this program, and copies what it reports to a log. Its error is the
// last line that it said.
func executeSelf(progress io.Writer) func(context.Context, io.Writer, []string) error {
	return func(ctx context.Context, log io.Writer, args []string) error {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		last := &lastLine{}
		command := exec.CommandContext(ctx, self, args...)
		// Not SIGINT: in the background of a script, and so here, it is ignored.
		command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
		command.WaitDelay = time.Minute // it undoes what it did
		command.Stdout, command.Stderr = log, io.MultiWriter(log, progress, last)
		if err := command.Run(); err != nil {
			if last.text != "" {
				return errors.New(strings.TrimPrefix(last.text, "daybook-bench: "))
			}
			return err
		}
		return nil
	}
}

// lastLine keeps the message with which daybook-bench ends: from the last line that
// begins with its name.
type lastLine struct{ text, rest string }

func (l *lastLine) Write(b []byte) (int, error) {
	l.rest += string(b)
	for {
		line, rest, whole := strings.Cut(l.rest, "\n")
		if !whole {
			return len(b), nil
		}
		l.rest = rest
		switch {
		case strings.HasPrefix(line, "daybook-bench: "):
			l.text = line
		case l.text != "" && len(l.text) < 2000:
			l.text += "; " + line
		}
	}
}

func newPapersCommand() *cobra.Command {
	var f papersFlags
	cmd := &cobra.Command{
		Use:   "papers",
		Short: "Run the benchmarks of the four papers and compare all figures",
		Long: `Papers runs the benchmarks that measure figures of the four papers, one after the other.
It writes one page with every table and figure: the paper's result, the measured result,
and the reasons for differences. After an interruption it continues; with --fresh it
also repeats finished parts. If a part fails, or cannot run on this machine, the other
parts still run. For parts that were not run, the page has the figures of the
repository. It fails if one of PARTS failed, or missed its bounds, when it last ran.

All parts take about four and a half hours on an idle host with two processors, and need
root.`,
		Example: `  daybook-bench papers --list
  daybook-bench papers --only paper2
  daybook-bench papers --only nvjournal --fresh

  # Measure nothing; write the page from existing figures
  daybook-bench papers --render

  # Bring the tables of docs/papers.md up to date with docs/results
  daybook-bench papers --docs docs`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&f.only, "only", nil, "run only these `PARTS`: paper1 to paper4, or names that --list shows")
	flags.BoolVar(&f.fresh, "fresh", false, "run parts again that have finished")
	flags.BoolVar(&f.list, "list", false, "list the parts, and which have finished")
	flags.BoolVar(&f.render, "render", false, "measure nothing; write the page from existing figures")
	flags.BoolVar(&f.quick, "quick", false, "a short measurement, to try the command")
	flags.StringVar(&f.folder, "folder", filepath.Join("build", "papers"), "keep figures and logs in `DIR`")
	flags.StringVar(&f.html, "html", filepath.Join("build", "papers.html"), "write the page to `FILE`")
	flags.StringVar(&f.repository, "results", filepath.Join("docs", "results"), "the `DIR` of the repository's results pages")
	flags.StringVar(&f.docs, "docs", "", "only update the tables of papers.md in `DIR`")
	return cmd
}

// papersFlags are those of papers.
type papersFlags struct {
	only                           []string
	fresh, list, render, quick     bool
	folder, html, docs, repository string
}

func (f papersFlags) run(cmd *cobra.Command) error {
	if f.docs != "" {
		return papers.Rewrite(filepath.Join(f.docs, "papers.md"), f.repository)
	}
	parts, err := namedParts(f.only)
	if err != nil {
		return err
	}
	progress := cmd.ErrOrStderr()
	r := &paperRuns{
		folder: f.folder, quick: f.quick, state: map[string]paperRun{},
		say:     func(format string, a ...any) { fmt.Fprintf(progress, "papers: "+format+"\n", a...) },
		execute: executeSelf(progress),
	}
	if f.list {
		return r.list(cmd.OutOrStdout(), parts)
	}
	if f.render {
		err = r.load()
	} else {
		err = r.run(cmd.Context(), parts, f.fresh)
	}
	if err != nil {
		return err
	}
	if err := r.page(f.html, f.repository); err != nil {
		return err
	}
	r.say("%s has all figures", f.html)
	return r.wrong(parts)
}

// wrong returns an error for each of the parts that failed or missed a bound when it last ran, or nil.
func (r *paperRuns) wrong(parts []paperPart) error {
	var errs []error
	for _, p := range parts {
		if r.state[p.name].Error != "" {
			errs = append(errs, fmt.Errorf("%s: %s", p.name, r.ended(p)))
		}
	}
	return errors.Join(errs...)
}

func (r *paperRuns) list(out io.Writer, parts []paperPart) error {
	if err := r.load(); err != nil {
		return err
	}
	for _, p := range parts {
		state := fmt.Sprintf("about %d minutes", p.minutes)
		if r.finished(p) {
			state = "finished " + r.state[p.name].when()
		}
		fmt.Fprintf(out, "%-14s paper %-5s %s\n", p.name, p.of(), state)
	}
	return nil
}

func (r *paperRuns) page(path, repository string) error {
	host := fmt.Sprintf("Linux %s, %s, %d CPUs", kernel.Release(), runtime.GOARCH, runtime.NumCPU())
	text, err := papers.NewResults(os.DirFS(r.results()), os.DirFS(repository)).HTML(host, version, r.outcomes())
	if err != nil {
		return err
	}
	return write(path, text)
}
