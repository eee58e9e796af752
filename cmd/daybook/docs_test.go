package main

import (
	"bufio"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// sourceTree is the root of the repository, relative to the directory in which
// the tests run.
const sourceTree = "../.."

// page is a Markdown file, parsed for its links, anchors and code.
type page struct {
	path    string // relative to the repository
	lines   []pageLine
	links   []string
	anchors map[string]bool
}

type pageLine struct {
	number int // from 1
	text   string
	code   bool // in a fenced block
	shell  bool // in a block without a language: commands
}

var (
	headingPattern = regexp.MustCompile(`^#{1,6} +(.*?) *#*$`)
	linkPattern    = regexp.MustCompile(`\]\(([^()\s]+(?:\([^()\s]*\))?)\)`)
	codePattern    = regexp.MustCompile("`[^`]*`")
	shownPattern   = regexp.MustCompile(`!?\[([^\]]*)\]\([^)]*\)`)
)

func readPage(t *testing.T, path string) page {
	t.Helper()
	file, err := os.Open(filepath.Join(sourceTree, path))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	p := page{path: path, anchors: map[string]bool{}}
	var prose strings.Builder
	fence, shell := false, false
	scanner := bufio.NewScanner(file)
	scanner.Buffer(nil, 1<<20)
	for n := 1; scanner.Scan(); n++ {
		text := scanner.Text()
		language, isFence := strings.CutPrefix(strings.TrimSpace(text), "```")
		p.lines = append(p.lines, pageLine{n, text, fence || isFence, fence && shell})
		if isFence {
			fence, shell = !fence, language == ""
			continue
		}
		if fence {
			continue
		}
		if heading := headingPattern.FindStringSubmatch(text); heading != nil {
			p.addAnchor(anchor(heading[1]))
		}
		prose.WriteString(text + "\n")
	}
	if err := scanner.Err(); err != nil {
		t.Fatal(err)
	}
	if fence {
		t.Errorf("%s: a code block is not closed", path)
	}
	for _, link := range linkPattern.FindAllStringSubmatch(codePattern.ReplaceAllString(prose.String(), ""), -1) {
		p.links = append(p.links, link[1])
	}
	return p
}

// addAnchor adds the anchor of a heading; the second of two equal ones gets the
// suffix -1.
func (p *page) addAnchor(name string) {
	for suffix, tried := 1, name; ; suffix++ {
		if !p.anchors[tried] {
			p.anchors[tried] = true
			return
		}
		tried = name + "-" + string(rune('0'+suffix))
	}
}

// anchor is the name that GitHub gives to a heading: lower case, hyphens for
// spaces, without punctuation and markup.
func anchor(heading string) string {
	heading = shownPattern.ReplaceAllString(heading, "$1")
	var name strings.Builder
	for _, r := range strings.ToLower(heading) {
		switch {
		case r == ' ':
			name.WriteByte('-')
		case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
			name.WriteRune(r)
		}
	}
	return name.String()
}

// pages lists the Markdown files of the repository that are written for
// readers.
func pages(t *testing.T) []string {
	t.Helper()
	var found []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md", "nvjournal/*.md"} {
		matches, err := filepath.Glob(filepath.Join(sourceTree, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range matches {
			path, err := filepath.Rel(sourceTree, match)
			if err != nil {
				t.Fatal(err)
			}
			found = append(found, path)
		}
	}
	if len(found) < 20 {
		t.Fatalf("only %d pages were found: %q", len(found), found)
	}
	return found
}

// brokenLinks returns the relative links of a page whose target does not exist.
func brokenLinks(t *testing.T, p page) (broken []string) {
	t.Helper()
	for _, link := range p.links {
		if strings.Contains(link, "://") || strings.HasPrefix(link, "mailto:") {
			continue
		}
		path, fragment, _ := strings.Cut(link, "#")
		target := p.path
		if path != "" {
			target = filepath.Join(filepath.Dir(p.path), path)
		}
		if _, err := os.Stat(filepath.Join(sourceTree, target)); err != nil {
			broken = append(broken, link+": there is no "+target)
			continue
		}
		if fragment == "" {
			continue
		}
		if !strings.HasSuffix(target, ".md") {
			broken = append(broken, link+": "+target+" has no headings")
		} else if !readPage(t, target).anchors[fragment] {
			broken = append(broken, link+": "+target+" has no such heading")
		}
	}
	return broken
}

func TestLinksInTheDocumentationHaveTargets(t *testing.T) {
	links := 0
	for _, path := range pages(t) {
		p := readPage(t, path)
		links += len(p.links)
		for _, broken := range brokenLinks(t, p) {
			t.Errorf("%s: %s", path, broken)
		}
	}
	if links < 100 {
		t.Errorf("only %d links were found", links)
	}
}

func TestBrokenLinksAreFound(t *testing.T) {
	p := readPage(t, "README.md")
	p.links = []string{"docs/README.md", "docs/nowhere.md", "docs/README.md#nowhere", "#nowhere", "https://example.org/nowhere", "LICENSE#nowhere"}
	broken := brokenLinks(t, p)
	if len(broken) != 4 {
		t.Errorf("of %q these are broken: %q; want all but the first and the address", p.links, broken)
	}
	for heading, want := range map[string]string{
		"The scheduler of the disk":                     "the-scheduler-of-the-disk",
		"Options of `docker volume create -o`":          "options-of-docker-volume-create--o",
		"The paper's law (`--law paper`)":               "the-papers-law---law-paper",
		"How-to: [reach](there.md) a goal":              "how-to-reach-a-goal",
		"JSON, recordings":                              "json-recordings",
		"[0.1.0] - 2026-11-23":                          "010---2026-11-23",
		"Daybook's law (`--law feedback`, the default)": "daybooks-law---law-feedback-the-default",
	} {
		if got := anchor(heading); got != want {
			t.Errorf("the anchor of %q is %q, want %q", heading, got, want)
		}
	}
}

func TestEachPageIsListedInTheIndex(t *testing.T) {
	index := readPage(t, "docs/README.md")
	for _, path := range pages(t) {
		relative, err := filepath.Rel("docs", path)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(path, "docs/") || path == index.path ||
			strings.HasPrefix(path, "docs/results/") && path != "docs/results/README.md" {
			continue
		}
		if n := len(slices.DeleteFunc(slices.Clone(index.links), func(link string) bool { return link != relative })); n != 1 {
			t.Errorf("%s is listed %d times in docs/README.md, under tutorial, how-to, reference or explanation; want once", path, n)
		}
	}
}

// The layout must name each folder of Go code.
func TestTheLayoutNamesEachFolder(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(sourceTree, "CONTRIBUTING.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, layout, _ := strings.Cut(string(text), "## Layout")
	layout, _, _ = strings.Cut(layout, "\n## ")
	folders := 0
	for _, pattern := range []string{"cmd/*", "internal/*", "internal/experiment/*", "internal/experiment/*/*", "volume/*", "volume/internal/*"} {
		found, err := filepath.Glob(filepath.Join(sourceTree, pattern, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		var last string
		for _, file := range found {
			name := filepath.Base(filepath.Dir(file))
			if name == last || filepath.Base(filepath.Dir(filepath.Dir(file))) == "fixture" {
				continue
			}
			last = name
			folders++
			if !regexp.MustCompile(`(^|[\s/])` + regexp.QuoteMeta(name) + `/`).MatchString(layout) {
				t.Errorf("the layout in CONTRIBUTING.md lacks %s", filepath.Dir(file))
			}
		}
	}
	if folders < 30 {
		t.Errorf("only %d folders were found", folders)
	}
}

var (
	testPattern       = regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	namedTestPattern  = regexp.MustCompile("`(Test[A-Z]\\w+)`")
	namedPathPattern  = regexp.MustCompile("`((?:cmd|internal|volume|vm|nvjournal|scripts|deploy|docs)/[\\w./-]+)`")
	wordsThatAreNames = []string{"TestGuest", "internal/experiment/PAPER/NAME"} // the beginning of names; a name to choose
)

// A page that names a test or a file must name one that exists.
func TestTestsAndFilesThatPagesNameExist(t *testing.T) {
	tests := map[string]bool{}
	err := filepath.WalkDir(sourceTree, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, found := range testPattern.FindAllSubmatch(text, -1) {
			tests[string(found[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for _, path := range pages(t) {
		text, err := os.ReadFile(filepath.Join(sourceTree, path))
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range namedTestPattern.FindAllStringSubmatch(string(text), -1) {
			if named++; !tests[found[1]] && !slices.Contains(wordsThatAreNames, found[1]) {
				t.Errorf("%s names the test %s, which does not exist", path, found[1])
			}
		}
		for _, found := range namedPathPattern.FindAllStringSubmatch(string(text), -1) {
			if _, err := os.Stat(filepath.Join(sourceTree, found[1])); err != nil && !slices.Contains(wordsThatAreNames, found[1]) &&
				!strings.Contains(found[1], "/build") {
				t.Errorf("%s names %s, which does not exist", path, found[1])
			}
		}
	}
	if named < 30 {
		t.Errorf("only %d names of tests were found", named)
	}
}

// maxReadmeLines is the length that a reader skims before deciding.
const maxReadmeLines = 120

// maxProseCells limits lines of prose: about 100, plus a word that does not
// break.
const maxProseCells = 105

func TestProseIsWrapped(t *testing.T) {
	if n := len(readPage(t, "README.md").lines); n > maxReadmeLines {
		t.Errorf("README.md has %d lines, want at most %d: move the rest to docs", n, maxReadmeLines)
	}
	for _, path := range pages(t) {
		if strings.HasPrefix(path, "docs/results/") && path != "docs/results/README.md" {
			continue // written by the benchmarks
		}
		for _, line := range readPage(t, path).lines {
			text := strings.TrimSpace(line.text)
			if line.code || strings.HasPrefix(text, "|") || strings.HasPrefix(line.text, "    ") && !strings.ContainsAny(text[:1], "-*0123456789") {
				continue
			}
			if utf8.RuneCountInString(line.text) > maxProseCells && strings.Contains(text, " ") {
				t.Errorf("%s:%d: %d characters, want at most %d: %s", path, line.number, utf8.RuneCountInString(line.text), maxProseCells, line.text)
			}
		}
	}
}

// The commands in the pages must stay valid: each line of a code block that
// calls daybook is parsed.
func TestCommandsInTheDocumentationParse(t *testing.T) {
	parsed := 0
	for _, path := range pages(t) {
		for _, line := range readPage(t, path).lines {
			if !line.shell {
				continue
			}
			text, _, _ := strings.Cut(line.text, " #")
			for substitution := regexp.MustCompile(`\$\([^()]*\)`); substitution.MatchString(text); {
				text = substitution.ReplaceAllString(text, "WORD")
			}
			for _, command := range regexp.MustCompile(`&&|\||;`).Split(text, -1) {
				command = strings.TrimPrefix(strings.TrimSpace(command), "sudo ")
				command, _, _ = strings.Cut(command, " >")
				command, isDaybook := strings.CutPrefix(command, "daybook ")
				if !isDaybook {
					continue
				}
				parsed++
				if err := parses(strings.Fields(strings.TrimSuffix(command, "&"))); err != nil {
					t.Errorf("%s:%d: %q: %v", path, line.number, line.text, err)
				}
			}
		}
	}
	if parsed < 30 {
		t.Errorf("only %d commands were found", parsed)
	}
}
