package main

import (
	"bytes"
	"errors"
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
		if err != nil || string(text) != "{\n  \"rounds\": 3\n}\n" {
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
