package figure

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"strings"

	"github.com/daybook-project/daybook/internal/safetext"
)

// Report is a page about one experiment.
type Report struct {
	Title string
	// Lead is a paragraph below the title that says what the experiment shows.
	Lead   string
	Shares Shares
	// Figures follow the figures of the shares.
	Figures []Figure
	// Made lists how to repeat the experiment: command, kernel, disk,
	// scheduler.
	Made []Fact
}

// Figure is a further picture of a report.
type Figure struct {
	Title string
	// Text is a paragraph between title and picture.
	Text string
	SVG  SVG
}

// Fact is a name and a value, such as "kernel" and "6.18".
type Fact struct{ Name, Value string }

//go:embed report.html.tmpl
var reportText string

var reportTemplate = template.Must(template.New("report").Parse(reportText))

// HTML makes a self-contained page: it loads no script, font or picture, and
// its content security policy forbids it. Every name in it is escaped. It fails
// where [Shares.SVG] fails.
func (r Report) HTML() ([]byte, error) {
	type picture struct {
		Title, Text string
		SVG         template.HTML
	}
	page := struct {
		Title, Lead, Device string
		Tables              []table
		Pictures            []picture
		Made                []Fact
	}{
		Title:  safetext.Line(firstOf(r.Title, "Disk shares by container")),
		Lead:   safetext.Line(r.Lead),
		Device: safetext.Line(r.Shares.Device),
	}
	if err := r.Shares.check(); err != nil {
		return nil, fmt.Errorf("cannot write the report on %q: %w", r.Shares.Device, err)
	}
	e := r.Shares.reduce()
	panels := []Panel{Throughput, Frequency, Composition}
	if e.hasWeights() {
		panels = append(panels, Weights)
	}
	page.Pictures = append(page.Pictures, picture{SVG: template.HTML(drawGrid(e, panels))})
	for _, f := range r.Figures {
		page.Pictures = append(page.Pictures, picture{safetext.Line(f.Title), safetext.Line(f.Text), template.HTML(f.SVG)})
	}
	for _, d := range e.phases {
		page.Tables = append(page.Tables, e.table(d))
	}
	for _, fact := range r.Made {
		// A value may be a list; its lines are kept.
		lines := strings.Split(strings.TrimRight(fact.Value, "\n"), "\n")
		for i := range lines {
			lines[i] = safetext.Line(lines[i])
		}
		page.Made = append(page.Made, Fact{safetext.Line(fact.Name), strings.Join(lines, "\n")})
	}
	var out bytes.Buffer
	if err := reportTemplate.Execute(&out, page); err != nil {
		return nil, fmt.Errorf("cannot write the report on %q: %w", r.Shares.Device, err)
	}
	return out.Bytes(), nil
}

// table is the account of one phase.
type table struct {
	Phase string
	// Facts is a line about the whole phase.
	Facts string
	Rows  []tableRow
	// Sums are the lines below the containers.
	Sums []tableRow
	// Disk lists the amounts to which the containers, root and the unaccounted
	// bytes add up.
	Disk []amount
}

type tableRow struct {
	Name, Target, Share, Off string
	// Amounts are total, charged, journal, metadata, uncharged, returned.
	Amounts []amount
}

// amount is a number of bytes, exact and rounded in MB.
type amount struct {
	Name, Exact, Text string
}

func amountOf(bytes uint64) amount {
	return amount{Exact: fmt.Sprint(bytes), Text: grouped(number(float64(bytes)/1e6, 2))}
}

// grouped puts thin spaces between the thousands of a number.
func grouped(text string) string {
	whole, rest, _ := strings.Cut(text, ".")
	for i := len(whole) - 3; i > 0 && whole[i-1] >= '0' && whole[i-1] <= '9'; i -= 3 {
		whole = whole[:i] + "\u2009" + whole[i:]
	}
	if rest == "" {
		return whole
	}
	return whole + "." + rest
}

func rowOf(name string, u usage) tableRow {
	row := tableRow{Name: name}
	for _, bytes := range []uint64{u.bytes(), u.charged, u.journal, u.metadata, u.uncharged, u.returned} {
		row.Amounts = append(row.Amounts, amountOf(bytes))
	}
	return row
}

func (e experiment) table(d phaseData) table {
	t := table{Phase: d.name}
	facts := []string{
		fmt.Sprintf("%d intervals", len(d.end)),
		number(d.length(), 1) + " s",
		fmt.Sprintf("%d transactions", d.transactions),
		fmt.Sprintf("%d lost events", d.lost),
	}
	if missing := len(d.end) - d.presentNumber; missing > 0 {
		facts = append(facts, fmt.Sprintf("%d intervals without the disk", missing))
	}
	if len(d.estimators) > 0 {
		facts = append(facts, "journal attributed by "+safetext.Line(strings.Join(d.estimators, ", ")))
	}
	if near, intervals, ok := d.held(); ok {
		facts = append(facts, fmt.Sprintf("%d of %d intervals with every share within %g points of its target",
			near, intervals, 100*nearTarget))
	}
	t.Facts = strings.Join(facts, " · ")
	for i, track := range d.tracks {
		row := rowOf(e.names[i], track.sum)
		row.Target, row.Share, row.Off = "–", "–", "–"
		if track.target > 0 {
			row.Target = percent(track.target, 1)
		}
		if d.bytes() > 0 {
			row.Share = percent(track.share, 1)
			if track.target > 0 {
				row.Off = signedPoints(track.share - track.target)
			}
		}
		t.Rows = append(t.Rows, row)
	}
	t.Sums = []tableRow{rowOf("these containers", d.sum()), rowOf("root and other cgroups", d.others)}
	t.Disk = []amount{named("the disk itself", amountOf(d.disk))}
	if d.elsewhere > 0 {
		t.Disk = append(t.Disk, named("journal on another device", amountOf(d.elsewhere)))
	}
	t.Disk = append(t.Disk, named("unaccounted",
		amount{Exact: fmt.Sprint(d.unaccounted), Text: grouped(number(float64(d.unaccounted)/1e6, 2))}))
	return t
}

func named(name string, a amount) amount {
	a.Name = name
	return a
}

// signedPoints is a difference of shares in points, always with its sign.
func signedPoints(difference float64) string {
	text := number(100*difference, 1)
	if difference > 0 && text != "0.0" {
		return "+" + text
	}
	return text
}
