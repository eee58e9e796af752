package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/experiment/paper2/guestvolumes"
	"github.com/daybook-project/daybook/internal/kernel"
	"github.com/daybook-project/daybook/vm/kernels"
)

// fakeParts runs parts without measuring: each writes its page, apart from what wrong says.
type fakeParts struct {
	ran   []string
	wrong map[string]error // by name of the first argument
	page  map[string]bool  // of these: written although wrong
}

func (f *fakeParts) execute(_ context.Context, _ io.Writer, args []string) error {
	name := args[0]
	docs := args[slices.Index(args, "--docs")+1]
	output := filepath.Base(args[slices.Index(args, "--output")+1])
	f.ran = append(f.ran, strings.TrimSuffix(output, ".json"))
	if f.wrong[name] == nil || f.page[name] {
		if err := os.WriteFile(filepath.Join(docs, strings.TrimSuffix(output, ".json")+".md"), []byte("# A page\n"), 0o600); err != nil {
			return err
		}
	}
	return f.wrong[name]
}

func runsIn(folder string, f *fakeParts) *paperRuns {
	return &paperRuns{folder: folder, say: func(string, ...any) {}, execute: f.execute}
}

var allParts = []string{"attribution", "shares-paper", "guests", "volumes", "guest-volumes", "ext4nvj", "jfsnvj", "nvjournal"}

func TestPapersContinueAfterAnInterruption(t *testing.T) {
	folder := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	f := &fakeParts{}
	first := runsIn(folder, f)
	execute := first.execute
	first.execute = func(ctx context.Context, log io.Writer, args []string) error {
		if args[0] == "guests" {
			cancel()
			return ctx.Err()
		}
		return execute(ctx, log, args)
	}
	if err := first.run(ctx, paperParts, false); !errors.Is(err, context.Canceled) || !slices.Equal(f.ran, allParts[:2]) {
		t.Fatalf("ran %v: %v", f.ran, err)
	}
	again := &fakeParts{}
	second := runsIn(folder, again)
	if err := second.run(t.Context(), paperParts, false); err != nil || second.wrong(paperParts) != nil || !slices.Equal(again.ran, allParts[2:]) {
		t.Errorf("ran %v, failed %v: %v", again.ran, second.wrong(paperParts), err)
	}
	none := &fakeParts{}
	if err := runsIn(folder, none).run(t.Context(), paperParts, false); err != nil || none.ran != nil {
		t.Errorf("all had finished, and these ran: %v, %v", none.ran, err)
	}
	fresh := &fakeParts{}
	if err := runsIn(folder, fresh).run(t.Context(), paperParts, true); err != nil || !slices.Equal(fresh.ran, allParts) {
		t.Errorf("fresh ran %v: %v", fresh.ran, err)
	}
}

// A part that fails does not end the others, and runs again the next time. One that
// misses its bounds has figures. Both are errors, whether they run or have finished before.
func TestPapersGoOnAfterAFailure(t *testing.T) {
	folder := t.TempDir()
	f := &fakeParts{
		wrong: map[string]error{"volumes": errors.New("want root"), "guests": errors.New("outside the bounds"), "jfsnvj": errors.New("no space left")},
		page:  map[string]bool{"guests": true, "jfsnvj": true},
	}
	r := runsIn(folder, f)
	if err := r.run(t.Context(), paperParts, false); err != nil || !slices.Equal(f.ran, allParts) {
		t.Fatalf("ran %v: %v", f.ran, err)
	}
	if err := r.wrong(paperParts); err == nil || err.Error() != "guests: outside its bounds: outside the bounds\nvolumes: failed: want root\njfsnvj: failed: no space left" {
		t.Errorf("wrong: %v", err)
	}
	if err := r.wrong(paperParts[:2]); err != nil {
		t.Errorf("wrong of the parts that are not: %v", err)
	}
	results := map[string]string{}
	for _, o := range r.outcomes() {
		results[o.Part] = o.Result
	}
	if results["volumes"] != "failed: want root" || results["guests"] != "outside its bounds: outside the bounds" || results["ext4nvj"] != "finished" || results["jfsnvj"] != "failed: no space left" {
		t.Errorf("outcomes: %v", results)
	}
	again := &fakeParts{}
	second := runsIn(folder, again)
	if err := second.run(t.Context(), paperParts, false); err != nil || !slices.Equal(again.ran, []string{"volumes", "jfsnvj"}) {
		t.Errorf("ran again: %v, %v", again.ran, err)
	}
	if err := second.wrong(paperParts); err == nil || err.Error() != "guests: outside its bounds: outside the bounds" {
		t.Errorf("wrong: %v", err)
	}
}

// Parts of one page may be of several kernels and versions: it names those that each was measured with.
func TestPapersNameTheKernelOfEachPart(t *testing.T) {
	r := runsIn(t.TempDir(), &fakeParts{})
	if err := r.run(t.Context(), paperParts[:2], false); err != nil {
		t.Fatal(err)
	}
	other := r.state["shares-paper"]
	other.Kernel, other.Version = "4.4.0", "v1"
	r.state["shares-paper"] = other
	if err := r.save(); err != nil {
		t.Fatal(err)
	}
	again := runsIn(r.folder, &fakeParts{})
	if err := again.load(); err != nil {
		t.Fatal(err)
	}
	outcomes := again.outcomes()
	if got := outcomes[0].When; !strings.HasSuffix(got, ", Linux "+kernel.Release()) {
		t.Errorf("a part of this kernel: %s", got)
	}
	if got := outcomes[1].When; !strings.HasSuffix(got, ", Linux 4.4.0, version v1") {
		t.Errorf("a part of another kernel: %s", got)
	}
}

// A quick run does not count as a whole one.
func TestAQuickRunOfThePapersDoesNotCount(t *testing.T) {
	folder := t.TempDir()
	quick := runsIn(folder, &fakeParts{})
	quick.quick = true
	if err := quick.run(t.Context(), paperParts[:2], false); err != nil {
		t.Fatal(err)
	}
	f := &fakeParts{}
	if err := runsIn(folder, f).run(t.Context(), paperParts[:2], false); err != nil || len(f.ran) != 2 {
		t.Errorf("ran %v: %v", f.ran, err)
	}
}

func TestPartsOfThePapersAreChosenByName(t *testing.T) {
	for only, want := range map[string][]string{
		"":                {"attribution", "shares-paper", "guests", "volumes", "guest-volumes", "ext4nvj", "jfsnvj", "nvjournal"},
		"paper2":          {"volumes", "guest-volumes"},
		"paper4":          {"ext4nvj", "jfsnvj", "nvjournal"},
		"guests,paper3":   {"guests", "ext4nvj", "nvjournal"},
		"paper5":          nil,
		"volumes,nothing": nil,
	} {
		var names, got []string
		if only != "" {
			names = strings.Split(only, ",")
		}
		parts, err := namedParts(names)
		for _, p := range parts {
			got = append(got, p.name)
		}
		if !slices.Equal(got, want) || (err == nil) != (want != nil) {
			t.Errorf("--only %q: %v, %v; want %v", only, got, err, want)
		}
	}
}

// The announced minutes of guest-volumes are at least those of its phases, which begin with a warm-up of 10 s.
func TestThePapersTakeAtLeastTheirPhases(t *testing.T) {
	o, seconds := guestvolumes.Full, 0
	for _, kernel := range kernels.Names() {
		for _, arrangement := range o.Arrangements {
			if guestvolumes.RunsOn(arrangement, kernel) {
				seconds += o.Rounds * len(o.Loads) * len(o.Dividers) * (10 + o.Seconds)
			}
		}
	}
	at := slices.IndexFunc(paperParts, func(p paperPart) bool { return p.name == "guest-volumes" })
	if minutes := paperParts[at].minutes; 60*minutes < seconds {
		t.Errorf("%d minutes are announced, and the phases alone take %d s", minutes, seconds)
	}
}

// Each part is a benchmark, and takes the flags that it is given.
func TestPartsOfThePapersAreBenchmarks(t *testing.T) {
	for _, p := range paperParts {
		cmd, _, err := newRootCommand().Find(p.args)
		if err != nil {
			t.Errorf("%s: %v", p.name, err)
			continue
		}
		if err := cmd.ParseFlags(append(p.args[1:], "--output", "o", "--docs", "d", "--quick")); err != nil {
			t.Errorf("%s: %v", p.name, err)
		}
	}
}

// What a child reports as its error is found among its progress.
func TestTheErrorOfABenchmarkIsFound(t *testing.T) {
	l := &lastLine{}
	for _, text := range []string{"volumes: fio, S\nday", "book-bench: outside the bounds:\nfio: 3 %", ", want 2 %\n"} {
		if _, err := l.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if want := "daybook-bench: outside the bounds:; fio: 3 %, want 2 %"; l.text != want {
		t.Errorf("%q, want %q", l.text, want)
	}
}

// The command writes the page from the repository's figures alone.
func TestPapersRenderThePage(t *testing.T) {
	html := filepath.Join(t.TempDir(), "papers.html")
	cmd := newRootCommand()
	cmd.SetArgs([]string{"papers", "--render", "--folder", t.TempDir(), "--html", html, "--results", "../../docs/results"})
	cmd.SetErr(&bytes.Buffer{})
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(html)
	if err != nil || !bytes.Contains(page, []byte("not run here; the page of the repository")) {
		t.Errorf("the page does not say where its figures are from: %v", err)
	}
}

// A missed bound of an earlier run is an error of the command, of those parts that it is asked for.
func TestPapersEndWithTheErrorsOfTheirParts(t *testing.T) {
	for only, want := range map[string]string{
		"paper1":         "",
		"volumes":        "volumes: outside its bounds: outside the bounds",
		"volumes,nvjorn": "--only nvjorn names no part: want paper1 to paper4, or a name that --list shows",
	} {
		folder := t.TempDir()
		r := runsIn(folder, &fakeParts{wrong: map[string]error{"volumes": errors.New("outside the bounds")}, page: map[string]bool{"volumes": true}})
		if err := r.run(t.Context(), paperParts[3:4], false); err != nil {
			t.Fatal(err)
		}
		// Its page has no tables.
		page, err := os.ReadFile("../../docs/results/volumes.md")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(r.results(), "volumes.md"), page, 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := newRootCommand()
		cmd.SetArgs([]string{"papers", "--render", "--only", only, "--folder", folder, "--html", filepath.Join(folder, "papers.html"), "--results", "../../docs/results"})
		cmd.SetErr(&bytes.Buffer{})
		if err := cmd.ExecuteContext(t.Context()); (err == nil) != (want == "") || err != nil && err.Error() != want {
			t.Errorf("--only %s: %v; want %q", only, err, want)
		}
	}
}
