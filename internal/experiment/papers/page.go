package papers

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strconv"
	"strings"
)

// page is a results page: its tables by section.
type page struct {
	text     string
	sections []section
}

type section struct {
	title   string
	text    string
	columns []string
	rows    [][]string
}

// parsePage reads a page that report.Markdown wrote.
func parsePage(text string) page {
	p := page{text: text}
	for n, part := range strings.Split("\n"+text, "\n## ") {
		if n == 0 {
			continue
		}
		title, body, _ := strings.Cut(part, "\n")
		s := section{title: title, text: body}
		for line := range strings.Lines(body) {
			line = strings.TrimSpace(line)
			if !strings.HasPrefix(line, "|") {
				if s.columns != nil {
					break // the first table is enough
				}
				continue
			}
			cells := strings.Split(strings.Trim(line, "|"), "|")
			for n := range cells {
				cells[n] = strings.TrimSpace(strings.ReplaceAll(cells[n], "**", ""))
			}
			switch {
			case s.columns == nil:
				s.columns = cells
			case !strings.HasPrefix(line, "|--"):
				s.rows = append(s.rows, cells)
			}
		}
		p.sections = append(p.sections, s)
	}
	return p
}

// reference names a cell: page|section|row|column, and perhaps |/NUMBER, by which the
// cell is divided. A row may be a path, such as "uncontrolled > A": the first row
// after the row before. A name with a comma may be given by what is before the comma.
type reference struct {
	page, section, row, column string
	divisor                    float64
}

func parseReference(text string) (reference, error) {
	parts := strings.Split(text, "|")
	if len(parts) != 4 && len(parts) != 5 {
		return reference{}, fmt.Errorf("%q is no reference to a cell", text)
	}
	r := reference{page: parts[0], section: parts[1], row: parts[2], column: parts[3], divisor: 1}
	if len(parts) == 5 {
		divisor, err := strconv.ParseFloat(strings.TrimPrefix(parts[4], "/"), 64)
		if err != nil || divisor == 0 {
			return reference{}, fmt.Errorf("%q: want /NUMBER at the end", text)
		}
		r.divisor = divisor
	}
	return r, nil
}

// section finds a section by its title, in which * stands for any text.
func (p page) section(title string) (section, bool) {
	for _, s := range p.sections {
		if fits, _ := path.Match(title, s.title); fits || s.title == title {
			return s, true
		}
	}
	return section{}, false
}

// cell is the text of a cell, without what is in parentheses.
func (p page) cell(r reference) (string, error) {
	s, known := p.section(r.section)
	if !known {
		return "", fmt.Errorf("%s.md has no section %q", r.page, r.section)
	}
	column := -1
	for n, name := range s.columns {
		if name == r.column {
			column = n
		}
	}
	if column < 0 {
		return "", fmt.Errorf("%s.md, %s: no column %q", r.page, r.section, r.column)
	}
	row := -1
	for _, name := range strings.Split(r.row, " > ") {
		next := row + 1
		for next < len(s.rows) && s.rows[next][0] != name && !strings.HasPrefix(s.rows[next][0], name+",") {
			next++
		}
		if row = next; row == len(s.rows) {
			return "", fmt.Errorf("%s.md, %s: no row %q", r.page, r.section, r.row)
		}
	}
	if column >= len(s.rows[row]) {
		return "", fmt.Errorf("%s.md, %s, %s: the row has no column %q", r.page, r.section, r.row, r.column)
	}
	text, _, _ := strings.Cut(s.rows[row][column], " (")
	if r.divisor == 1 {
		return text, nil
	}
	value, err := numberIn(text)
	if err != nil {
		return "", fmt.Errorf("%s.md, %s, %s, %s: %w", r.page, r.section, r.row, r.column, err)
	}
	return strconv.FormatFloat(value/r.divisor, 'f', 1, 64), nil
}

var leadingNumber = regexp.MustCompile(`^[-+]?[0-9]+(\.[0-9]+)?`)

// numberIn is the number at the start of a cell.
func numberIn(text string) (float64, error) {
	digits := leadingNumber.FindString(strings.TrimSpace(text))
	if digits == "" {
		return 0, fmt.Errorf("%q is no number", text)
	}
	return strconv.ParseFloat(digits, 64)
}

var measuredOn = regexp.MustCompile(`[mM]easured (?:on )?(\d{4}-\d{2}-\d{2})`)

// pagePart matches a part of a page that is measured by itself, with a date of its own.
var pagePart = regexp.MustCompile(`(?s)<!-- \w+ figures -->.*?<!-- end of \w+ figures -->`)

// date is the day on which a section was measured: as the section says, or its part of the
// page, or the page. "": none does.
func (p page) date(title string) string {
	rest := pagePart.ReplaceAllString(p.text, "")
	places := []string{rest}
	if s, known := p.section(title); known {
		places = []string{s.text, rest}
		for _, part := range pagePart.FindAllString(p.text, -1) {
			if strings.Contains(part, strings.TrimSpace(s.text)) {
				places = []string{s.text, part}
			}
		}
	}
	for _, text := range places {
		if found := measuredOn.FindStringSubmatch(text); found != nil {
			return found[1]
		}
	}
	return ""
}

// Results are the results pages: the first of the folders that has a page counts.
type Results struct {
	folders []fs.FS
	pages   map[string]page
	from    map[string]int
}

func NewResults(folders ...fs.FS) *Results {
	return &Results{folders: folders, pages: map[string]page{}, from: map[string]int{}}
}

func (r *Results) page(name string) (page, error) {
	if p, known := r.pages[name]; known {
		return p, nil
	}
	var err error
	for n, folder := range r.folders {
		var text []byte
		if text, err = fs.ReadFile(folder, name+".md"); err == nil {
			r.pages[name], r.from[name] = parsePage(string(text)), n
			return r.pages[name], nil
		}
	}
	return page{}, err
}

// file is a file beside the pages, such as a picture.
func (r *Results) file(name string) (text []byte, err error) {
	for _, folder := range r.folders {
		if text, err = fs.ReadFile(folder, name); err == nil {
			break
		}
	}
	return text, err
}

// Cell is the text of the cell that a reference names.
func (r *Results) cell(text string) (string, error) {
	ref, err := parseReference(text)
	if err != nil {
		return "", err
	}
	p, err := r.page(ref.page)
	if err != nil {
		return "", err
	}
	return p.cell(ref)
}

var braces = regexp.MustCompile(`\{[^{}]*\}`)

// fill replaces each {reference} in a text by its cell.
func (r *Results) fill(text string) (string, error) {
	var failed error
	filled := braces.ReplaceAllStringFunc(text, func(ref string) string {
		cell, err := r.cell(strings.Trim(ref, "{}"))
		if err != nil && failed == nil {
			failed = err
		}
		return cell
	})
	return filled, failed
}
