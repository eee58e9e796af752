package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/experiment/papers2to4/memoryvolumes"
)

// runBench runs a command of daybook-bench, and returns its error.
func runBench(t *testing.T, args ...string) error {
	t.Helper()
	cmd := newRootCommand()
	cmd.SetArgs(args)
	cmd.SetOut(&bytes.Buffer{})
	cmd.SetErr(&bytes.Buffer{})
	return cmd.ExecuteContext(t.Context())
}

// What the container did is in the figures: those of MariaDB do not replace the page and the figures of
// the writer.
func TestTheLoadOfTheFiguresNamesThePage(t *testing.T) {
	for load, name := range map[string]string{memoryvolumes.MariaDB: "memory-volumes-mariadb", memoryvolumes.Writer: "memory-volumes"} {
		directory := t.TempDir()
		text, err := encode(memoryvolumes.Result{Load: load, Rounds: 3})
		if err != nil {
			t.Fatal(err)
		}
		kept := filepath.Join(directory, "kept.json")
		if err := os.WriteFile(kept, text, 0o600); err != nil {
			t.Fatal(err)
		}
		docs, figures := filepath.Join(directory, "docs"), filepath.Join(directory, "bench")
		err = runBench(t, "memory-volumes", "--again", kept, "--docs", docs, "--output", filepath.Join(figures, "memory-volumes.json"))
		if err == nil || !strings.HasPrefix(err.Error(), missedBounds) {
			t.Errorf("%s: %v; want no goal to be met by nothing", load, err)
		}
		for folder, want := range map[string]string{docs: name + ".md", figures: name + ".json"} {
			if files, err := os.ReadDir(folder); err != nil || len(files) != 1 || files[0].Name() != want {
				t.Errorf("%s: %v, %v; want %s", load, files, err, want)
			}
		}
	}
}

// A page of all arrangements is not replaced by one of some.
func TestAPartOfMemoryVolumesHasNoPage(t *testing.T) {
	for _, selection := range []string{"--arrangements=memory", "--neighbours=none"} {
		directory := t.TempDir()
		err := runBench(t, "memory-volumes", selection, "--docs", directory, "--output", filepath.Join(directory, "figures.json"), "--source", filepath.Join(directory, "none"))
		if err == nil || !strings.Contains(err.Error(), "omit --arrangements and --neighbours, or --docs") {
			t.Errorf("%s: %v", selection, err)
		}
	}
}

// Figures of a selection do not replace those of all.
func TestASelectionOfMemoryVolumesHasItsOwnFigures(t *testing.T) {
	for _, c := range []struct {
		load, output string
		selection    bool
		want         string
	}{
		{memoryvolumes.Writer, "bench/memory-volumes.json", true, "bench/memory-volumes-selection.json"},
		{memoryvolumes.Writer, "bench/memory-volumes.json", false, "bench/memory-volumes.json"},
		{memoryvolumes.MariaDB, "bench/memory-volumes.json", true, "bench/memory-volumes-mariadb-selection.json"},
		{memoryvolumes.Writer, "bench/mine.json", true, "bench/mine.json"},
	} {
		b := &bench{name: "memory-volumes", output: c.output}
		if b.nameMemoryVolumes(c.load, c.selection); b.output != c.want {
			t.Errorf("%+v: %s", c, b.output)
		}
	}
}

// The kept figures of a selection make no page, and stay beside those of all.
func TestKeptFiguresOfASelectionMakeNoPage(t *testing.T) {
	directory := t.TempDir()
	text, err := encode(memoryvolumes.Result{Load: memoryvolumes.Writer, Rounds: 3})
	if err != nil {
		t.Fatal(err)
	}
	kept, all := filepath.Join(directory, "memory-volumes-selection.json"), filepath.Join(directory, "memory-volumes.json")
	if err := os.WriteFile(kept, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := runBench(t, "memory-volumes", "--again", kept, "--output", all, "--docs", directory); err == nil || !strings.Contains(err.Error(), "of a selection") {
		t.Errorf("with a page: %v", err)
	}
	_ = runBench(t, "memory-volumes", "--again", kept, "--output", all)
	if _, err := os.Stat(all); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the figures of all: %v", err)
	}
}

// A wrong option is reported before the kernel is built.
func TestWrongOptionsOfMemoryVolumesAreRefused(t *testing.T) {
	for option, want := range map[string]string{"--rounds=-3": "-3 rounds", "--rounds=0": "0 rounds", "--arrangements=none": `no arrangement "none"`} {
		directory := t.TempDir()
		err := runBench(t, "memory-volumes", option, "--output", filepath.Join(directory, "figures.json"), "--source", filepath.Join(directory, "none"))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", option, err, want)
		}
	}
}
