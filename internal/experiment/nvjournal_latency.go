package experiment

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/daybook-project/daybook/internal/figure"
)

// NVJLatency is one engine with one stream on memory that is slower than DRAM.
type NVJLatency struct {
	// FenceNanoseconds is what each fence waited besides; BytesPerSecond the
	// bandwidth of all threads together, 0: the memory's own.
	FenceNanoseconds float64 `json:"fence_ns"`
	BytesPerSecond   float64 `json:"bytes_per_second"`
	Stream           string  `json:"stream"`
	Engine           string  `json:"engine"`
	Partitions       int     `json:"partitions"`
	Threads          int     `json:"threads"`
	UpdatesPerSecond Spread  `json:"updates_per_second"`
}

func (l NVJLatency) memory() string {
	return fmt.Sprintf("%g ns, %s", l.FenceNanoseconds, bandwidth(l.BytesPerSecond))
}

func (l NVJLatency) sameRow(other NVJLatency) bool {
	return l.FenceNanoseconds == other.FenceNanoseconds && l.BytesPerSecond == other.BytesPerSecond && l.Stream == other.Stream && l.Threads == other.Threads
}

// latencyTables is the table of rates on slower memory, an engine in each column;
// none if none was measured.
func (n NVJournal) latencyTables() (tables []ReportTable) {
	if len(n.Latency) == 0 {
		return nil
	}
	t := ReportTable{
		Title:   "On slower memory: updates a second, thousands",
		Columns: []string{"stream, fence waits, bandwidth", "threads"},
		Note: "DRAM that is made slower by busy waiting: each fence takes so much longer, as for the last line on its way to memory; or all threads together have so many bytes a second, which the fence waits for. " +
			"2.3 GB/s is what one Optane DIMM writes (arXiv 1903.05714). Papers 3 and 4 took DRAM as it is for their memory, which is the first row. " +
			"Two threads of nvjournal wait in their fences side by side; with one lock, one after the other. Records of whole blocks wait for a fence no longer than records of lines do, but for the bandwidth. In parentheses: over one lock.",
	}
	names := n.latencyEngines()
	t.Columns = append(t.Columns, names...)
	for k, l := range n.Latency {
		if k > 0 && slices.ContainsFunc(n.Latency[:k], l.sameRow) {
			continue
		}
		row := []string{l.Stream + ", " + l.memory(), strconv.Itoa(l.Threads)}
		lock := n.latency(l, "one-lock")
		for _, name := range names {
			cell := ""
			if this := n.latency(l, name); this > 0 {
				cell = fmt.Sprintf("%.0f", this/1e3)
				if lock > 0 && strings.HasPrefix(name, "nvjournal, ") {
					cell += fmt.Sprintf(" (%.2f×)", this/lock)
				}
			}
			row = append(row, cell)
		}
		t.Rows = append(t.Rows, row)
	}
	return []ReportTable{t}
}

func (n NVJournal) latencyEngines() (names []string) {
	for _, l := range n.Latency {
		if name := engineName(l.Engine, l.Partitions); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// latency is the rate of an engine where all else is as in like; 0: not measured.
func (n NVJournal) latency(like NVJLatency, engine string) float64 {
	for _, l := range n.Latency {
		if l.sameRow(like) && engineName(l.Engine, l.Partitions) == engine {
			return l.UpdatesPerSecond.Median
		}
	}
	return 0
}

// latencyPanels draw the rates of two threads over the fence's wait.
func (n NVJournal) latencyPanels() (panels []figure.CurvePanel) {
	for _, s := range n.Streams {
		p := figure.CurvePanel{Title: "Slower memory, two threads: " + s.Stream, XName: "ns that a fence waits", YName: "millions/s"}
		var rows []NVJLatency
		for _, l := range n.Latency {
			if l.Stream == s.Stream && l.Threads == 2 && l.BytesPerSecond == 0 && !slices.ContainsFunc(rows, l.sameRow) {
				rows = append(rows, l)
				p.X = append(p.X, l.FenceNanoseconds)
			}
		}
		for _, name := range n.latencyEngines() {
			line := figure.Curve{Name: name}
			for _, row := range rows {
				line.Y = append(line.Y, n.latency(row, name)/1e6)
			}
			p.Lines = append(p.Lines, line)
		}
		if len(p.X) > 1 {
			panels = append(panels, p)
		}
	}
	return panels
}
