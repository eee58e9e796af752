package figure

import (
	"fmt"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg/draw"

	"github.com/daybook-project/daybook/internal/safetext"
)

// Overhead is the cost of the daemon for the programs on the host.
type Overhead struct {
	// Title may be empty for the default title.
	Title string
	// Note is a line below the title with the conditions of the measurement.
	Note string
	// Range names the range from Low to High, such as "95 % range".
	Range string
	// Limit is the least acceptable ratio, such as 0.99; 0 marks none.
	Limit float64
	// Rows are at most 200, in the order of display.
	Rows []OverheadRow
}

// OverheadRow is one workload: its rate with the daemon divided by its rate
// without, 1 for no cost, with the expected range of the true ratio. A ratio
// outside 0 to 1000 counts as not measured, and so does a range that exceeds
// 1000 or does not satisfy Low <= High.
type OverheadRow struct {
	Workload         string
	Ratio, Low, High float64
}

const greatestRatio = 1000

// SVG draws workloads from top to bottom and ratios from left to right.
func (o Overhead) SVG() (SVG, error) {
	if err := tooMany("the overhead", len(o.Rows)); err != nil {
		return nil, err
	}
	if !(o.Limit >= 0 && o.Limit <= 1) {
		return nil, fmt.Errorf("cannot draw the overhead: the limit is %g; want 0 to 1", o.Limit)
	}
	rangeName := phaseInk.fit(safetext.Line(firstOf(o.Range, "range")), widestCell)
	chart := rowChart{
		title:   safetext.Line(firstOf(o.Title, "Rate with the daemon over rate without it")),
		note:    safetext.Line(o.Note),
		columns: []string{"ratio", rangeName},
		xLabel:  "ratio (1: no cost)",
		center:  1,
		scale:   plot.LinearScale{},
		legend: []item{
			{mark: glyphMark(handlesColor, draw.CircleGlyph{}), room: 18, text: "ratio, with its " + rangeName},
		},
	}
	low, high := 1.0, 1.0
	if o.Limit > 0 {
		low = o.Limit
		chart.good = [2]float64{o.Limit, 1e9}
		chart.legend = append(chart.legend, item{
			mark: lineMark(targetLine(soft)), room: markRoom, text: "target: at least " + number(o.Limit, 3),
		})
	}
	for _, r := range o.Rows {
		row := chartRow{name: safetext.Line(r.Workload), cells: []string{"–", "–"}}
		if r.Ratio >= 0 && r.Ratio <= greatestRatio {
			m := mark{at: r.Ratio, low: r.Ratio, high: r.Ratio, color: handlesColor, shape: draw.CircleGlyph{}}
			row.cells[0] = number(r.Ratio, 3)
			if r.Low >= -greatestRatio && r.Low <= r.High && r.High <= greatestRatio {
				m.low, m.high = r.Low, r.High
				row.cells[1] = number(r.Low, 3) + " to " + number(r.High, 3)
			}
			low, high = min(low, m.low, m.at), max(high, m.high, m.at)
			row.marks = []mark{m}
		}
		chart.rows = append(chart.rows, row)
	}
	room := max(0.005, 0.06*(high-low))
	low, high = low-room, high+room
	chart.x = span{low, high, ticks(low, high, niceStep(high-low, 8))}
	return chart.draw(), nil
}
