package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/internal/experiment/papers3and4/filesystems"
	"github.com/daybook-project/daybook/internal/experiment/report"
	"github.com/daybook-project/daybook/internal/experiment/statistics"
)

// equallyFast are figures in which ext4nvj gains nothing: a target is missed.
func equallyFast(disks []string, rate float64) filesystems.Result {
	n := filesystems.Result{Host: report.ThisHost(), Kernel: "6.1.9", CPUs: 2, Rounds: 3, Milliseconds: 300, CreateFiles: 3072}
	for _, disk := range disks {
		for _, load := range filesystems.Loads() {
			for _, threads := range []int{1, 2, 4, 16} {
				for _, arrangement := range filesystems.Arrangements() {
					n.Runs = append(n.Runs, filesystems.Run{Disk: disk, Load: load, Threads: threads, Arrangement: arrangement, OperationsPerSecond: statistics.SpreadOf([]float64{rate})})
				}
			}
		}
	}
	return n
}

// Each part of the page is measured by itself. The page of the papers needs the native one.
func TestAPartOfThePageIsWrittenAndJudged(t *testing.T) {
	emulated, native := equallyFast([]string{"undelayed"}, 4321), equallyFast([]string{"undelayed", "10us", "80us"}, 1234)
	one := statistics.SpreadOf([]float64{1})
	native.Native = &filesystems.NativeResult{Sanity: []filesystems.Sanity{{Load: filesystems.Varmail, HostOperationsPerSecond: one, OperationsPerSecond: one}}}
	// At least as fast as stock ext4 is met.
	for n := range native.Runs {
		if r := &native.Runs[n]; r.Arrangement == filesystems.StockDisk && r.Threads == 4 {
			r.OperationsPerSecond = statistics.SpreadOf([]float64{2345})
		}
	}
	for name, c := range map[string]struct {
		result filesystems.Result
		quick  bool
		// changed is a text of the new part; papers is one of the page of the papers, if it
		// changes; command repeats it.
		changed, papers, command string
		chosen                   string
	}{
		"emulated":      {emulated, false, "| ext4nvj, P = 8 | 4321 ", "", "\nmake bench-ext4nvj\n", ""},
		"native":        {native, false, "| ext4nvj, P = 8 | 1234 ", "ext4 2345", "\n" + filesystems.NativeCommand + "\n", "--native"},
		"native, quick": {native, true, "| ext4nvj, P = 8 | 1234 ", "ext4 2345", "\ndaybook-bench ext4nvj --quick --native\n", "--native"},
	} {
		docs := t.TempDir()
		if err := os.CopyFS(docs, os.DirFS(filepath.Join("..", "..", "docs"))); err != nil {
			t.Fatal(err)
		}
		text := func(name string) string {
			t.Helper()
			text, err := os.ReadFile(filepath.Join(docs, name))
			if err != nil {
				t.Fatal(err)
			}
			return string(text)
		}
		partBefore, restBefore := filesystems.NativePart(text("results/ext4nvj.md"))
		papersBefore := text("papers.md")
		b := &bench{name: "ext4nvj", output: filepath.Join(docs, "ext4nvj.json"), docs: filepath.Join(docs, "results"), quick: c.quick, chosen: c.chosen}
		cmd := &cobra.Command{}
		cmd.SetOut(&bytes.Buffer{})
		if err := b.finishExt4NVJ(cmd, c.result); err == nil || !strings.HasPrefix(err.Error(), "outside the bounds:\n") {
			t.Errorf("%s: %v", name, err)
		}
		part, rest := filesystems.NativePart(text("results/ext4nvj.md"))
		kept, made, keptBefore := part, rest, partBefore
		if c.result.Native != nil {
			kept, made, keptBefore = rest, part, restBefore
		}
		if kept != keptBefore || kept == "" || !strings.Contains(made, c.changed) || !strings.Contains(made, c.command) {
			t.Errorf("%s: the other part is the same: %v; this part:\n%s", name, kept == keptBefore, made)
		}
		if papers := text("papers.md"); c.papers == "" && papers != papersBefore || !strings.Contains(papers, c.papers) {
			t.Errorf("%s: the page of the papers has no %q", name, c.papers)
		}
	}
}

// The options are checked later: a number that is not positive must not be left out before.
func TestAnyNumberOfRoundsIsPassedOn(t *testing.T) {
	for given, want := range map[string]int{"--rounds=-3": -3, "--rounds=0": 0, "--rounds=5": 5, "--quick": 1} {
		var f filesystemsFlags
		b := &bench{name: "ext4nvj"}
		cmd := &cobra.Command{}
		cmd.SetContext(t.Context())
		cmd.SetErr(&bytes.Buffer{})
		b.flags(cmd)
		f.flags(cmd, nil, nil)
		if err := cmd.ParseFlags([]string{given, "--source", t.TempDir()}); err != nil {
			t.Fatal(err)
		}
		options := filesystems.QuickNative
		// There is nothing to build.
		if _, err := f.prepare(cmd, b, &options); err == nil || options.Rounds != want {
			t.Errorf("%s: %d rounds, %v; want %d", given, options.Rounds, err, want)
		}
	}
}

// The disks of the emulated measurement and of the native one are not the same.
func TestAnUnknownDiskIsAnsweredWithThoseThatCanBeMeasured(t *testing.T) {
	for command, want := range map[string]string{
		"ext4nvj --native": "--only floppy: no such disk; choose of undelayed, 10us, 80us",
		"jfsnvj":           "--only floppy: no such disk; choose of undelayed, 10us, 80us",
	} {
		arguments := append(strings.Fields(command), "--only", "floppy", "--output", filepath.Join(t.TempDir(), "figures.json"))
		if err := runBench(t, arguments...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", command, err, want)
		}
	}
}
