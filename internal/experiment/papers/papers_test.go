package papers

import (
	"bytes"
	"fmt"
	"go/parser"
	"go/token"
	"html"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
)

// tree is the root of the repository.
const tree = "../../.."

func repository(t *testing.T) *Results {
	t.Helper()
	return NewResults(os.DirFS(filepath.Join(tree, "docs", "results")))
}

// The page is what the table generates from the results pages.
func TestThePageOfThePapersIsUpToDate(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(tree, "docs", "papers.md"))
	if err != nil {
		t.Fatal(err)
	}
	want, err := repository(t).Replace(page)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(page, want) {
		t.Error("docs/papers.md is not up to date; daybook-bench papers --docs docs writes it again")
	}
}

// Each table and figure of the papers is there once, in the order of the paper.
func TestNoFigureOfThePapersIsMissing(t *testing.T) {
	figures := map[int]map[string]int{
		1: {"Figure": 6, "Table": 2}, 2: {"Figure": 10, "Table": 2}, 3: {"Figure": 5, "Table": 1}, 4: {"Figure": 5},
	}
	for paper, kinds := range figures {
		for kind, count := range kinds {
			next := 1
			for _, item := range items {
				var n int
				if _, err := fmt.Sscanf(item.Name, kind+" %d", &n); err != nil || item.Paper != paper {
					continue
				}
				if n != next && n != next-1 || n == next-1 && !strings.Contains(item.Name, "(b)") {
					t.Errorf("paper %d: %s comes after %s %d", paper, item.Name, kind, next-1)
				}
				next = n + 1
			}
			if next != count+1 {
				t.Errorf("paper %d: the last is %s %d, want %d", paper, kind, next-1, count)
			}
		}
	}
	for _, item := range items {
		if item.Claim == "" || item.Command == "" || !strings.HasSuffix(item.Difference, ".") {
			t.Errorf("paper %d, %s: want a claim, a command, and a sentence about differences", item.Paper, item.Name)
		}
	}
}

// commandExists says what is wrong with a command of an item.
func commandExists(makefile string, uses map[string]bool, command string) error {
	words := strings.Fields(command)
	switch words[0] {
	case "make":
		target := words[1]
		bench, isBench := strings.CutPrefix(target, "bench-")
		names := regexp.MustCompile(`(?m)^BENCHES := (.*)$`).FindStringSubmatch(makefile)
		if isBench && strings.Contains(" "+names[1]+" ", " "+bench+" ") && uses["daybook-bench "+bench] {
			return nil
		}
		if regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(target) + `:`).MatchString(makefile) {
			return nil
		}
		return fmt.Errorf("the Makefile has no target %s", target)
	case "daybook", "daybook-bench":
		for _, word := range words[1:] {
			if !strings.HasPrefix(word, "-") && !uses[words[0]+" "+word] {
				return fmt.Errorf("%s has no command %s", words[0], word)
			}
		}
		return nil
	}
	return fmt.Errorf("%s is no program of the repository", words[0])
}

// commandNames are the commands of the programs, from the first word of each Use.
func commandNames(t *testing.T) map[string]bool {
	t.Helper()
	uses := map[string]bool{}
	for _, program := range []string{"daybook", "daybook-bench"} {
		files, err := filepath.Glob(filepath.Join(tree, "cmd", program, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s has no files: %v", program, err)
		}
		for _, path := range files {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := parser.ParseFile(token.NewFileSet(), path, text, parser.PackageClauseOnly); err != nil {
				t.Fatal(err)
			}
			for _, m := range regexp.MustCompile(`Use:\s+"([a-z0-9-]+)`).FindAllStringSubmatch(string(text), -1) {
				uses[program+" "+m[1]] = true
			}
		}
	}
	return uses
}

func TestTheCommandOfEachFigureExists(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(tree, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	uses := commandNames(t)
	for _, item := range items {
		if err := commandExists(string(makefile), uses, item.Command); err != nil {
			t.Errorf("paper %d, %s: %v", item.Paper, item.Name, err)
		}
	}
	for _, command := range []string{"make bench-nothing", "make nothing", "daybook nothing", "daybook volume nothing", "perf stat"} {
		if commandExists(string(makefile), uses, command) == nil {
			t.Errorf("%s is taken for a command", command)
		}
	}
}

const samplePage = "# A page\n\nMeasured on 2026-11-01.\n\n## Shares of 6.1.0-9\n\n| container | share | rate |\n|---|---:|---:|\n" +
	"| **first**, throughput 1.0 |  |  |\n| A | 40.0 % | 4320 (1 to 9) |\n| **second**, throughput 1.1 |  |  |\n| A | 50.0 % | – |\n\nMeasured 2026-11-02 10:00 UTC.\n\n" +
	"| another | table |\n|---|---|\n| A | 60.0 % |\n\n## Other\n\n| a |\n|---|\n| b |\n"

func TestCellsAreFoundByName(t *testing.T) {
	r := NewResults(fstest.MapFS{"page.md": {Data: []byte(samplePage)}})
	for ref, want := range map[string]string{
		"page|Shares of 6.1.*|first > A|share":    "40.0 %",
		"page|Shares of 6.1.*|second > A|share":   "50.0 %",
		"page|Shares of 6.1.0-9|A|rate":           "4320",
		"page|Shares of 6.1.0-9|A|rate|/10":       "432.0",
		"page|Shares of 6.1.0-9|second > A|rate":  "–",
		"page|Shares of 6.1.0-9|first > B|share":  "error: no row",
		"page|Shares of 6.1.0-9|A|table":          "error: no column",
		"page|None|A|share":                       "error: no section",
		"none|Other|b|a":                          "error: none.md",
		"page|Shares of 6.1.0-9|A|share|/0":       "error: want /NUMBER",
		"page|Shares|A":                           "error: no reference",
		"page|Shares of 6.1.*|second > A|rate|/2": "error: no number",
	} {
		got, err := r.cell(ref)
		if err != nil {
			got = "error: " + err.Error()
		}
		if said, isError := strings.CutPrefix(want, "error: "); isError && (err == nil || !strings.Contains(got, said)) || !isError && got != want {
			t.Errorf("%s: %s, want %s", ref, got, want)
		}
	}
	p, err := r.page("page")
	if err != nil || p.date("Shares of 6.1.*") != "2026-11-02" || p.date("Other") != "2026-11-01" {
		t.Errorf("dates %s and %s: %v", p.date("Shares of 6.1.*"), p.date("Other"), err)
	}
}

// A part with its own date does not date the rest of the page, nor the reverse.
func TestAPartOfAPageHasItsOwnDate(t *testing.T) {
	part := "# A page\n\n<!-- native figures -->\n\n## First\n\n| a |\n\n## How\n\nMeasured on 2026-11-03.\n\n<!-- end of native figures -->\n\n"
	for rest, want := range map[string]string{"## Second\n\n| b |\n": "", "## Second\n\n| b |\n\n## Its how\n\nMeasured on 2026-11-04.\n": "2026-11-04"} {
		p := parsePage(part + rest)
		if p.date("First") != "2026-11-03" || p.date("How") != "2026-11-03" || p.date("Second") != want {
			t.Errorf("dates %q, %q and %q, want 2026-11-03 twice and %q", p.date("First"), p.date("How"), p.date("Second"), want)
		}
	}
}

// A page that was measured again counts before that of the repository.
func TestNewFiguresCountFirst(t *testing.T) {
	r := NewResults(fstest.MapFS{"page.md": {Data: []byte(strings.ReplaceAll(samplePage, "40.0", "41.0"))}}, fstest.MapFS{"page.md": {Data: []byte(samplePage)}})
	if got, err := r.fill("A {page|Shares of 6.1.*|first > A|share}"); got != "A 41.0 %" {
		t.Errorf("%s: %v", got, err)
	}
}

// The page needs no other file and no network, and has all items.
func TestThePageIsSelfContained(t *testing.T) {
	page, err := repository(t).HTML("this machine", "v0", []Outcome{{"volumes", "2", "today", "outside its bounds"}})
	if err != nil {
		t.Fatal(err)
	}
	text := html.UnescapeString(string(page))
	for _, item := range items {
		if n := strings.Count(text, "<td>"+item.Name+"</td>"); n == 0 {
			t.Errorf("no row for paper %d, %s", item.Paper, item.Name)
		}
	}
	for _, m := range regexp.MustCompile(`(?:src|href)="([^"]{0,40})`).FindAllStringSubmatch(text, -1) {
		if !strings.HasPrefix(m[1], "data:image/svg") {
			t.Errorf("the page refers to %s", m[1])
		}
	}
	for _, want := range []string{"outside its bounds", "<svg", "data:image/svg+xml;base64,", "4442.4, paper", "4320.0, Daybook"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page has no %q", want)
		}
	}
	if strings.Contains(text, "{") && strings.Contains(text, "|uncontrolled") {
		t.Error("a reference was not replaced")
	}
}

// Without its marks a page is not touched.
func TestAPageWithoutMarksIsRefused(t *testing.T) {
	if _, err := repository(t).Replace([]byte("# A page\n")); err == nil {
		t.Error("a page without marks was written")
	}
}
