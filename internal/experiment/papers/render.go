package papers

import (
	"bytes"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/daybook-project/daybook/internal/atomicfile"
)

// line is an item with its figures.
type line struct {
	Item
	Figure string // Ours with the cells
	Date   string
	Again  bool // measured by "papers", and not only a page of the repository
}

// NotMeasured is the figure of an item without one.
const NotMeasured = "not measured"

// Lines are all items of a paper.
func (r *Results) lines(paper int) ([]line, error) {
	var all []line
	for _, item := range items {
		if item.Paper != paper {
			continue
		}
		l := line{Item: item, Figure: NotMeasured, Date: "–"}
		if item.Ours != "" {
			filled, err := r.fill(item.Ours)
			if err != nil {
				return nil, fmt.Errorf("paper %d, %s: %w", paper, item.Name, err)
			}
			l.Figure = filled
		}
		if first := braces.FindString(item.Ours); first != "" {
			ref, err := parseReference(strings.Trim(first, "{}"))
			if err != nil {
				return nil, err
			}
			p, err := r.page(ref.page)
			if err != nil {
				return nil, err
			}
			if l.Date = p.date(ref.section); l.Date == "" {
				l.Date = measured[ref.page]
			}
			if l.Date == "" {
				return nil, fmt.Errorf("paper %d, %s: %s.md has no date", paper, item.Name, ref.page)
			}
			l.Again = len(r.folders) > 1 && r.from[ref.page] == 0
		}
		all = append(all, l)
	}
	return all, nil
}

// The marks between which docs/papers.md is generated.
const (
	beginMark = "<!-- begin: written by daybook-bench papers --docs docs -->"
	endMark   = "<!-- end -->"
)

// Markdown are the tables for docs/papers.md.
func (r *Results) Markdown() ([]byte, error) {
	var page bytes.Buffer
	for paper := range Papers {
		if paper == 0 {
			continue
		}
		lines, err := r.lines(paper)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&page, "## Paper %d: %s\n\n", paper, Papers[paper])
		fmt.Fprintf(&page, "| | the paper | Daybook's figure | command | measured | difference |\n|---|---|---|---|---|---|\n")
		for _, l := range lines {
			fmt.Fprintf(&page, "| %s | %s | %s | `%s` | %s | %s |\n", l.Name, l.Claim, l.Figure, l.Command, l.Date, l.Difference)
		}
		fmt.Fprintln(&page)
	}
	return page.Bytes(), nil
}

// Replace puts the tables into a page, between its marks.
func (r *Results) Replace(page []byte) ([]byte, error) {
	before, rest, begins := bytes.Cut(page, []byte(beginMark))
	_, after, ends := bytes.Cut(rest, []byte(endMark))
	if !begins || !ends {
		return nil, fmt.Errorf("the page has no lines %q and %q", beginMark, endMark)
	}
	tables, err := r.Markdown()
	if err != nil {
		return nil, err
	}
	return slices.Concat(before, []byte(beginMark+"\n\n"), tables, []byte(endMark), after), nil
}

// Rewrite brings the tables of docs/papers.md up to date with the results pages.
func Rewrite(path, results string) error {
	page, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if page, err = NewResults(os.DirFS(results)).Replace(page); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return atomicfile.ReplaceReadable(path, page)
}

//go:embed papers.html.tmpl
var htmlText string

var htmlTemplate = template.Must(template.New("papers").Parse(htmlText))

// Outcome is what the last run of a part did.
type Outcome struct {
	Part, Papers, When, Result string
}

type htmlItem struct {
	line
	Claim, Figure, Difference template.HTML
	Chart                     template.HTML
	Pictures                  []template.URL
}

type htmlPaper struct {
	Number int
	Title  string
	Items  []htmlItem
}

// HTML is a page of its own: tables, charts and the pictures of the results.
func (r *Results) HTML(host, version string, outcomes []Outcome) ([]byte, error) {
	var papers []htmlPaper
	for number := range Papers {
		if number == 0 {
			continue
		}
		lines, err := r.lines(number)
		if err != nil {
			return nil, err
		}
		paper := htmlPaper{Number: number, Title: Papers[number]}
		shown := map[string]bool{}
		for _, l := range lines {
			item := htmlItem{line: l, Claim: inHTML(l.Claim), Figure: inHTML(l.Figure), Difference: inHTML(l.Difference)}
			if item.Chart, err = r.chart(l.Item); err != nil {
				return nil, err
			}
			for _, name := range l.Item.Pictures {
				picture, err := r.file(name)
				if err != nil {
					return nil, err
				}
				if !shown[name] {
					item.Pictures = append(item.Pictures, template.URL("data:image/svg+xml;base64,"+base64.StdEncoding.EncodeToString(picture)))
				}
				shown[name] = true
			}
			paper.Items = append(paper.Items, item)
		}
		papers = append(papers, paper)
	}
	var page bytes.Buffer
	err := htmlTemplate.Execute(&page, map[string]any{"Papers": papers, "Host": host, "Version": version, "Outcomes": outcomes})
	return page.Bytes(), err
}

var (
	codeMark = regexp.MustCompile("`([^`]*)`")
	linkMark = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

// inHTML is a cell of Markdown; links become text.
func inHTML(text string) template.HTML {
	text = template.HTMLEscapeString(linkMark.ReplaceAllString(text, "$1"))
	return template.HTML(codeMark.ReplaceAllString(text, "<code>$1</code>"))
}

const (
	chartWidth  = 720
	labelWidth  = 210
	barHeight   = 11
	groupHeight = 32
)

// chart compares the paper's values with ours, as bars. A value that is no number has
// no bar.
func (r *Results) chart(item Item) (template.HTML, error) {
	type pair struct {
		label       string
		paper, ours float64
		text        string
	}
	var pairs []pair
	most := 0.0
	for _, bar := range item.Bars {
		text, err := r.cell(bar.Ours)
		if err != nil {
			return "", fmt.Errorf("paper %d, %s: %w", item.Paper, item.Name, err)
		}
		p := pair{label: bar.Label, paper: bar.Paper, text: text}
		if value, err := numberIn(text); err == nil && value > 0 {
			p.ours = value
		}
		most = max(most, p.paper, p.ours)
		pairs = append(pairs, p)
	}
	if len(pairs) == 0 {
		return "", nil
	}
	var svg bytes.Buffer
	height := len(pairs)*groupHeight + 24
	fmt.Fprintf(&svg, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img" aria-label="%s: the paper and Daybook">`,
		chartWidth, height, chartWidth, height, template.HTMLEscapeString(item.Name))
	fmt.Fprintf(&svg, `<text x="0" y="14" font-weight="bold">%s</text>`, template.HTMLEscapeString(item.Unit))
	scale := float64(chartWidth-labelWidth-110) / most
	for n, p := range pairs {
		top := 24 + n*groupHeight
		fmt.Fprintf(&svg, `<text x="0" y="%d">%s</text>`, top+barHeight+4, template.HTMLEscapeString(p.label))
		for row, b := range []struct {
			value       float64
			color, text string
		}{{p.paper, "#0072B2", fmt.Sprintf("%g, paper", p.paper)}, {p.ours, "#D55E00", p.text + ", Daybook"}} {
			y, width := top+row*(barHeight+1), b.value*scale
			fmt.Fprintf(&svg, `<rect x="%d" y="%d" width="%.1f" height="%d" fill="%s"/>`, labelWidth, y, width, barHeight, b.color)
			fmt.Fprintf(&svg, `<text x="%.1f" y="%d" font-size="10">%s</text>`, labelWidth+width+4, y+barHeight-2, template.HTMLEscapeString(b.text))
		}
	}
	svg.WriteString("</svg>")
	return template.HTML(svg.String()), nil
}
