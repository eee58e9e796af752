package nvjournal

import (
	"fmt"
	"math"
	"slices"

	"github.com/daybook-project/daybook/internal/figure"
)

// curves returns the picture.
func (n Result) curves() figure.Curves {
	c := figure.Curves{
		Title: "nvjournal: the same updates through each journal",
		Note:  fmt.Sprintf("%d CPUs, Linux %s; DRAM, %s; medians of rounds in the same state, %d or more in all", n.Host.CPUs, n.Host.Kernel, n.Persistence, n.Rounds),
	}
	for _, s := range n.Streams {
		for _, state := range states {
			c.Panels = append(c.Panels, n.ratePanel(s.Stream, state))
		}
	}
	if len(n.Streams) > 0 {
		p := figure.CurvePanel{Title: "Bytes of an update: " + n.Streams[0].Stream + ", one thread", XName: "bytes"}
		for _, r := range n.Rows {
			if r.Stream == n.Streams[0].Stream && r.Threads == 1 && r.BytesPerUpdate != nil {
				p.Bars = append(p.Bars, figure.CurveBar{Name: r.Name(), Value: *r.BytesPerUpdate, Text: fmt.Sprintf("%.0f B", *r.BytesPerUpdate)})
			}
		}
		c.Panels = append(c.Panels, p)
	}
	c.Panels = append(c.Panels, n.latencyPanels()...)
	c.Panels = append(c.Panels, n.modelPanels()...)
	for k := range c.Panels {
		p := &c.Panels[k]
		p.Lines = slices.DeleteFunc(p.Lines, func(line figure.Curve) bool { return inTablesOnly(line.Name) })
		p.Bars = slices.DeleteFunc(p.Bars, func(bar figure.CurveBar) bool { return inTablesOnly(bar.Name) })
	}
	return c
}

// inTablesOnly says whether an engine is left out of the picture, which has room for eight.
func inTablesOnly(name string) bool {
	return name == "one-lock" || name == "libpmemlog" || name == "nvjournal-commit-worker" || name == engineName(byProcessor, 64)
}

func (n Result) ratePanel(stream string, state State) figure.CurvePanel {
	p := figure.CurvePanel{Title: "Updates a second, " + string(state) + ": " + stream, XName: "threads", YName: "millions/s"}
	for _, threads := range n.threads() {
		p.X = append(p.X, float64(threads))
	}
	for _, name := range n.engines(stream) {
		line := figure.Curve{Name: name}
		for _, r := range n.Rows {
			if r.Stream == stream && r.Name() == name {
				line.Y = append(line.Y, medianIn(r.Rates, state.with(r.Threads))/1e6)
			}
		}
		p.Lines = append(p.Lines, line)
	}
	return p
}

// missing is a point that a curve does not have.
var missing = math.NaN()
