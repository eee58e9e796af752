package report

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/daybook-project/daybook/internal/figure"
)

// Report is the result of an experiment as tables and a picture.
type Report struct {
	Title string
	// Lead are paragraphs about the measurement and its method.
	Lead   []string
	Tables []Table
	// Picture is optional.
	Picture figure.SVG
	Host    Host
}

// Table is one table; each row has a cell for each column. All columns
// except the first are right-aligned.
type Table struct {
	Title string
	// Note is a paragraph below the table.
	Note    string
	Columns []string
	Rows    [][]string
}

// Add adds the tables that have rows.
func (r *Report) Add(tables ...Table) {
	for _, t := range tables {
		if len(t.Rows) > 0 {
			r.Tables = append(r.Tables, t)
		}
	}
}

// WriteText prints the tables.
func (r Report) WriteText(w io.Writer) error {
	for n, t := range r.Tables {
		if n > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintln(w, t.Title)
		table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
		// tabwriter right-aligns all cells, so pad the first ones.
		first := len([]rune(t.Columns[0]))
		for _, row := range t.Rows {
			first = max(first, len([]rune(row[0])))
		}
		for _, row := range append([][]string{t.Columns}, t.Rows...) {
			name := row[0] + strings.Repeat(" ", first-len([]rune(row[0])))
			fmt.Fprintf(table, "%s\t%s\t\n", name, strings.Join(row[1:], "\t"))
		}
		if err := table.Flush(); err != nil {
			return err
		}
		if t.Note != "" {
			fmt.Fprintln(w, t.Note)
		}
	}
	return nil
}

// Markdown returns the report as a page: command is the command that repeats it,
// picture is the file name of Picture, in the directory of the page.
func (r Report) Markdown(command, picture string) []byte {
	var page bytes.Buffer
	fmt.Fprintf(&page, "# %s\n", r.Title)
	for _, paragraph := range r.Lead {
		fmt.Fprintf(&page, "\n%s\n", paragraph)
	}
	if r.Picture != nil {
		fmt.Fprintf(&page, "\n![%s](%s)\n", r.Title, picture)
	}
	for _, t := range r.Tables {
		fmt.Fprintf(&page, "\n## %s\n\n", t.Title)
		rule := "|---|" + strings.Repeat("---:|", len(t.Columns)-1)
		writeMarkdownRow(&page, t.Columns)
		fmt.Fprintln(&page, rule)
		for _, row := range t.Rows {
			writeMarkdownRow(&page, row)
		}
		if t.Note != "" {
			fmt.Fprintf(&page, "\n%s\n", t.Note)
		}
	}
	fmt.Fprintf(&page, "\n## How it was made\n\n```\n%s\n```\n\nKernel %s, %s, %d CPUs.", command, r.Host.Kernel, r.Host.Architecture, r.Host.CPUs)
	if r.Host.Measured != "" {
		fmt.Fprintf(&page, " Measured on %s.", r.Host.Measured)
	}
	page.WriteString("\n")
	return page.Bytes()
}

func writeMarkdownRow(page *bytes.Buffer, cells []string) {
	page.WriteString("|")
	for _, cell := range cells {
		page.WriteString(" " + strings.ReplaceAll(cell, "|", `\|`) + " |")
	}
	page.WriteString("\n")
}
