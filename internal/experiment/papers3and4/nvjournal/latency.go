package nvjournal

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/daybook-project/daybook/internal/experiment/report"
	"github.com/daybook-project/daybook/internal/experiment/statistics"
	"github.com/daybook-project/daybook/internal/figure"
)

// Latency is one engine with one stream on memory that is slower than DRAM.
type Latency struct {
	// FenceNanoseconds is the additional wait of each fence. BytesPerSecond is the
	// bandwidth of all threads together; 0 means that of the memory.
	FenceNanoseconds float64 `json:"fence_ns"`
	BytesPerSecond   float64 `json:"bytes_per_second"`
	Stream           string  `json:"stream"`
	Engine           string  `json:"engine"`
	Partitions       int     `json:"partitions"`
	Threads          int     `json:"threads"`
	Rounds           []Round `json:"rounds"`
	// Rates are the results of the rounds, as in [Row].
	Rates []Rate `json:"rates"`
}

func (l Latency) memory() string {
	return fmt.Sprintf("%g ns, %s", l.FenceNanoseconds, bandwidth(l.BytesPerSecond))
}

func (l Latency) sameRow(other Latency) bool {
	return l.FenceNanoseconds == other.FenceNanoseconds && l.BytesPerSecond == other.BytesPerSecond && l.Stream == other.Stream && l.Threads == other.Threads
}

// latencyTables is the table of rates on slower memory, an engine in each column;
// none if none was measured.
func (n Result) latencyTables() (tables []report.Table) {
	if len(n.Latency) == 0 {
		return nil
	}
	t := report.Table{
		Title:   "On slower memory: updates a second, thousands",
		Columns: []string{"stream, fence waits, bandwidth", "threads", "processors"},
		Note: "DRAM made slower by busy waiting. Either each fence takes longer by this time, as if it waited for the last line on its way to memory; or all threads together have this bandwidth, and the fence waits for it. " +
			"2.3 GB/s is the write bandwidth of one Optane DIMM (arXiv 1903.05714). The first row is unchanged DRAM, the memory of papers 3 and 4. " +
			"Two threads of nvjournal wait in their fences at the same time; with one lock they wait one after the other. Records of whole blocks wait for a fence as long as records of lines; only the bandwidth makes a difference. " +
			"In parentheses: the ratio to one lock with one fence, the median over pairs of rounds in the same state. –: no round.",
	}
	names := n.latencyEngines()
	t.Columns = append(t.Columns, names...)
	for k, l := range n.Latency {
		if slices.ContainsFunc(n.Latency[:k], l.sameRow) {
			continue
		}
		for _, state := range statesOf(l.Threads) {
			row, some := []string{l.Stream + ", " + l.memory(), strconv.Itoa(l.Threads), string(state)}, false
			for _, name := range names {
				cell := n.latencyCell(l, name, state)
				some = some || cell != "–"
				row = append(row, cell)
			}
			if some {
				t.Rows = append(t.Rows, row)
			}
		}
	}
	return []report.Table{t}
}

func (n Result) latencyCell(like Latency, name string, state State) string {
	ours, lock := n.latency(like, name), n.latency(like, bestOneLock)
	if ours == nil || rateIn(ours.Rates, state) == nil {
		return "–"
	}
	cell := fmt.Sprintf("%.0f", rateIn(ours.Rates, state).UpdatesPerSecond.Median/1e3)
	if lock == nil || !strings.HasPrefix(name, "nvjournal, ") {
		return cell
	}
	if ratios := pairRatios(ours.Rounds, lock.Rounds, state); len(ratios) > 0 {
		cell += fmt.Sprintf(" (%.2f×)", statistics.Median(ratios))
	}
	return cell
}

func (n Result) latencyEngines() (names []string) {
	for _, l := range n.Latency {
		if name := engineName(l.Engine, l.Partitions); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// latency returns the result of an engine under the conditions of like, or nil if it was
// not measured.
func (n Result) latency(like Latency, engine string) *Latency {
	for k, l := range n.Latency {
		if l.sameRow(like) && engineName(l.Engine, l.Partitions) == engine {
			return &n.Latency[k]
		}
	}
	return nil
}

// latencyPanels draw the rates of two threads over the fence's wait, near and apart.
func (n Result) latencyPanels() (panels []figure.CurvePanel) {
	for _, s := range n.Streams {
		for _, state := range states {
			if p := n.latencyPanel(s.Stream, state); len(p.X) > 1 {
				panels = append(panels, p)
			}
		}
	}
	return panels
}

func (n Result) latencyPanel(stream string, state State) figure.CurvePanel {
	p := figure.CurvePanel{Title: "Slower memory, two threads, " + string(state) + ": " + stream, XName: "wait of a fence, ns", YName: "millions/s"}
	var rows []Latency
	for _, l := range n.Latency {
		if l.Stream == stream && l.Threads == 2 && l.BytesPerSecond == 0 && rateIn(l.Rates, state) != nil && !slices.ContainsFunc(rows, l.sameRow) {
			rows = append(rows, l)
			p.X = append(p.X, l.FenceNanoseconds)
		}
	}
	for _, name := range n.latencyEngines() {
		line := figure.Curve{Name: name}
		for _, row := range rows {
			rate := math.NaN()
			if l := n.latency(row, name); l != nil {
				rate = medianIn(l.Rates, state) / 1e6
			}
			line.Y = append(line.Y, rate)
		}
		p.Lines = append(p.Lines, line)
	}
	return p
}
