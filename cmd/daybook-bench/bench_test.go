package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/internal/experiment/report"
)

func TestAPageIsNotWrittenFromPartialFigures(t *testing.T) {
	directory := t.TempDir()
	kept := filepath.Join(directory, "kept.json")
	if err := os.WriteFile(kept, []byte(`{"rounds": 3}`), 0o600); err != nil {
		t.Fatal(err)
	}
	broken := filepath.Join(directory, "broken.json")
	if err := os.WriteFile(broken, []byte(`{"rounds": `), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		output, docs string
		rounds       int
		wrong        string // text that the error must contain; "": no error
	}{
		"kept, with a page":         {kept, "docs", 3, ""},
		"kept, without a page":      {kept, "", 3, ""},
		"nothing, without a page":   {filepath.Join(directory, "none.json"), "", 0, ""},
		"nothing, with a page":      {filepath.Join(directory, "none.json"), "docs", 0, "docs/volumes.md would lose"},
		"damaged, without a page":   {broken, "", 0, "cannot read the earlier figures"},
		"what cannot be read there": {directory, "", 0, "cannot read the earlier figures"},
	} {
		b := bench{name: "volumes", output: c.output, docs: c.docs}
		var before struct{ Rounds int }
		err := b.before(&before)
		if c.wrong == "" && err != nil || c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)) {
			t.Errorf("%s: %v; want %q", name, err, c.wrong)
		}
		if before.Rounds != c.rounds {
			t.Errorf("%s: %d rounds, want %d", name, before.Rounds, c.rounds)
		}
	}
}

// Figures of a form of the benchmark do not replace those of another one.
func TestAFormHasItsOwnFigures(t *testing.T) {
	for given, want := range map[string]string{
		"build/bench/shares.json": "build/bench/shares-paper.json",
		"mine/of-today.json":      "mine/of-today.json",
	} {
		b := bench{name: "shares", output: given, docs: "docs"}
		b.variant("shares-paper", "make x")
		if b.output != want || b.page() != "docs/shares-paper" || b.command != "make x" {
			t.Errorf("%s: figures in %s, page %s, command %q; want %s", given, b.output, b.page(), b.command, want)
		}
	}
}

// Figures of a short measurement neither replace those of a whole one, nor are they mixed with them.
func TestAShortMeasurementHasItsOwnFigures(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, c := range []struct {
		args          []string
		want, variant string
	}{
		{nil, "build/bench/volumes.json", "build/bench/volumes-paper.json"},
		{[]string{"--quick"}, "build/bench/volumes-quick.json", "build/bench/volumes-paper-quick.json"},
		{[]string{"--quick", "--output", "build/papers/volumes.json"}, "build/papers/volumes-quick.json", "build/papers/volumes-paper-quick.json"},
		{[]string{"--quick", "--output", "mine/of-today.json"}, "mine/of-today.json", "mine/of-today.json"},
	} {
		b := &bench{name: "volumes"}
		cmd := &cobra.Command{RunE: func(*cobra.Command, []string) error {
			if b.output != c.want {
				t.Errorf("%q: figures in %s; want %s", c.args, b.output, c.want)
			}
			b.variant("volumes-paper", "make x")
			if b.output != c.variant {
				t.Errorf("%q: figures of a form in %s; want %s", c.args, b.output, c.variant)
			}
			return nil
		}}
		b.flags(cmd)
		cmd.SetArgs(c.args)
		if err := cmd.Execute(); err != nil {
			t.Errorf("%q: %v", c.args, err)
		}
	}
}

// Figures that were set aside stay when the next ones are.
func TestAllFiguresThatAreSetAsideStay(t *testing.T) {
	b := &bench{name: "shares", output: filepath.Join(t.TempDir(), "shares.json")}
	cmd := &cobra.Command{}
	cmd.SetErr(&bytes.Buffer{})
	if err := b.setAside(cmd); err != nil {
		t.Errorf("there are no figures: %v", err)
	}
	for _, text := range []string{"first", "second", "third"} {
		if err := os.WriteFile(b.output, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := b.setAside(cmd); err != nil {
			t.Fatal(err)
		}
	}
	for suffix, want := range map[string]string{".old": "first", ".old2": "second", ".old3": "third"} {
		if text, err := os.ReadFile(b.output + suffix); err != nil || string(text) != want {
			t.Errorf("%s: %q, %v; want %q", suffix, text, err, want)
		}
	}
	if hasFile(b.output) {
		t.Error("the figures are where the next ones will be written")
	}
}

// missed are figures outside their bounds.
type missed struct {
	Rounds int `json:"rounds"`
}

func (missed) Check() error { return errors.New("too slow") }
func (missed) Report() (report.Report, error) {
	return report.Report{Title: "A page", Tables: []report.Table{{Title: "Times", Columns: []string{"load"}}}}, nil
}

// The figures and the page are there, whatever the verdict is.
func TestFiguresAreKeptThoughABoundIsMissed(t *testing.T) {
	for name, c := range map[string]struct{ quick, unjudged, fails bool }{
		"a whole measurement":       {false, true, true},
		"a quick one with verdict":  {true, false, true},
		"a quick one that is short": {true, true, false},
	} {
		directory := t.TempDir()
		b := &bench{name: "scale", output: filepath.Join(directory, "bench", "scale.json"), docs: directory, quick: c.quick, unjudged: c.unjudged}
		var out bytes.Buffer
		cmd := &cobra.Command{}
		cmd.SetOut(&out)
		if err := b.finish(cmd, missed{3}); (err != nil) != c.fails || err != nil && err.Error() != "outside the bounds:\ntoo slow" {
			t.Errorf("%s: %v", name, err)
		}
		text, err := os.ReadFile(b.output)
		want := "{\n  \"command\": \"make bench-scale\",\n  \"rounds\": 3\n}\n"
		if c.quick {
			want = "{\n  \"command\": \"daybook-bench scale --quick\",\n  \"rounds\": 3\n}\n"
		}
		if err != nil || string(text) != want {
			t.Errorf("%s: figures %q, %v", name, text, err)
		}
		page, err := os.ReadFile(filepath.Join(directory, "scale.md"))
		if err != nil || !strings.HasPrefix(string(page), "# A page\n") || strings.Contains(string(page), "--quick") != c.quick {
			t.Errorf("%s: page %q, %v", name, page, err)
		}
		if !strings.HasPrefix(out.String(), "Times\n") {
			t.Errorf("%s: it printed %q", name, out.String())
		}
	}
}

// What cannot be written is found out before hours of measuring.
func TestResultsThatCannotBeWrittenAreNotMeasured(t *testing.T) {
	directory := t.TempDir()
	file := filepath.Join(directory, "file")
	if err := os.WriteFile(file, []byte("earlier"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args   []string
		wrong  string // text that the error must contain; "": it measures
		folder string // that must be there then
	}{
		"a directory as the output":   {[]string{"--output", directory}, "it is a directory", ""},
		"a file in place of a folder": {[]string{"--output", filepath.Join(file, "x.json")}, "cannot write " + filepath.Join(file, "x.json"), ""},
		"the same of the page":        {[]string{"--output", file, "--docs", file}, "cannot write " + filepath.Join(file, "scale.md"), ""},
		"folders that are not there":  {[]string{"--output", filepath.Join(directory, "a", "x.json"), "--docs", filepath.Join(directory, "b")}, "", "b"},
		"a device":                    {[]string{"--output", "/dev/null"}, "", ""},
		"an earlier file":             {[]string{"--output", file}, "", ""},
	} {
		measured := false
		b := &bench{name: "scale"}
		cmd := &cobra.Command{SilenceErrors: true, SilenceUsage: true, RunE: func(*cobra.Command, []string) error { measured = true; return nil }}
		b.flags(cmd)
		cmd.SetArgs(c.args)
		if err := cmd.Execute(); (err == nil) != (c.wrong == "") || err != nil && !strings.Contains(err.Error(), c.wrong) || measured != (err == nil) {
			t.Errorf("%s: measured %v, %v; want %q", name, measured, err, c.wrong)
		}
		if !hasFile(filepath.Join(directory, c.folder)) {
			t.Errorf("%s: no folder %s", name, c.folder)
		}
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "earlier" {
		t.Errorf("the trial changed a file: %q, %v", text, err)
	}
	if left, err := filepath.Glob(filepath.Join(directory, "*", ".daybook-bench-*")); err != nil || left != nil {
		t.Errorf("the trial left %q, %v", left, err)
	}
}

// Hours of measuring are not lost if the disk is full or a folder is gone.
func TestTablesArePrintedThoughNothingCanBeWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b := &bench{name: "scale", output: filepath.Join(file, "scale.json"), docs: file}
	var out bytes.Buffer
	cmd := &cobra.Command{}
	cmd.SetOut(&out)
	err := b.finish(cmd, missed{3})
	for _, want := range []string{"cannot keep the figures: ", "cannot write the figures: ", "outside the bounds:\ntoo slow"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
	if !strings.HasPrefix(out.String(), "Times\n") {
		t.Errorf("it printed %q", out.String())
	}
}

// A reader of figures and pages sees the earlier ones or the new ones, and a device stays one.
func TestFilesAreReplacedAsAWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "figures", "scale.json")
	if err := write(path, []byte("earlier")); err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	reader, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if err := write(path, []byte("new")); err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(reader); err != nil || string(text) != "earlier" {
		t.Errorf("a file changed below its reader: %q, %v", text, err)
	}
	if after, err := os.Stat(path); err != nil || after.Mode() != 0o644 || os.SameFile(before, after) {
		t.Errorf("%v, %v", after, err)
	}
	if err := write("/dev/null", []byte("new")); err != nil || replaceable("/dev/null") {
		t.Errorf("/dev/null: %v", err)
	}
	link := path + ".link"
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	if err := write(link, []byte("by a link")); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "by a link" || replaceable(link) {
		t.Errorf("by a link: %q, %v", text, err)
	}
}

// Figures that are only shown again replace no others.
func TestWritingAPageAgainKeepsTheFigures(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.MkdirAll("build/bench", 0o755); err != nil {
		t.Fatal(err)
	}
	whole, part := "build/bench/memory-volumes.json", "build/bench/memory-volumes.partial.json"
	for path, text := range map[string]string{whole: `{"load": "writer", "rounds": 5}`, part: `{"load": "writer", "rounds": 3}`} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := runBench(t, "memory-volumes", "--again", part); err == nil || !strings.HasPrefix(err.Error(), missedBounds) {
		t.Errorf("%v; want no goal to be met by nothing", err)
	}
	if text, err := os.ReadFile(whole); err != nil || string(text) != `{"load": "writer", "rounds": 5}` {
		t.Errorf("the other figures: %s, %v", text, err)
	}
}

// A page names the command that makes it, with the flags that changed what was measured; also if it is
// written again.
func TestThePageNamesTheFlagsOfItsMeasurement(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "make bench-ext4nvj"},
		{[]string{"--docs", "docs", "--source", "x"}, "make bench-ext4nvj"},
		{[]string{"--native"}, "make bench-ext4nvj BENCHFLAGS=--native"},
		{[]string{"--native", "--rounds", "4", "--threads", "1,16", "--only=10us", "--only=80us/create"}, `make bench-ext4nvj BENCHFLAGS="--native --only 10us,80us/create --rounds 4 --threads 1,16"`},
		{[]string{"--quick", "--rounds=2"}, "daybook-bench ext4nvj --quick --rounds 2"},
	} {
		b := &bench{name: "ext4nvj"}
		var f filesystemsFlags
		native := false
		cmd := &cobra.Command{RunE: func(cmd *cobra.Command, _ []string) error { return b.finish(cmd, nothing{}) }}
		b.flags(cmd)
		f.flags(cmd, nil, nil)
		cmd.Flags().BoolVar(&native, "native", false, "")
		cmd.SetArgs(append([]string{"--output", "figures.json"}, c.args...))
		cmd.SetOut(&bytes.Buffer{})
		if err := cmd.Execute(); err != nil || b.made() != c.want {
			t.Errorf("%q: %q, %v; want %q", c.args, b.made(), err, c.want)
		}
		// A part is measured again.
		part := bench{name: "ext4nvj", output: "figures.json", chosen: "--only 80us"}
		if err := part.before(&nothing{}); err != nil || part.made() != c.want {
			t.Errorf("%q: a part %q, %v; want %q", c.args, part.made(), err, c.want)
		}
		again := bench{name: "ext4nvj"}
		var figures nothing
		if err := again.readKept("figures.json", &figures); err != nil || again.made() != c.want {
			t.Errorf("%q: again %q, %v; want %q", c.args, again.made(), err, c.want)
		}
	}
}

// nothing was measured.
type nothing struct{}

func (nothing) Report() (report.Report, error) { return report.Report{Title: "Nothing"}, nil }
func (nothing) Check() error                   { return nil }
