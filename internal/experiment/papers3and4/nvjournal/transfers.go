package nvjournal

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/daybook-project/daybook/internal/experiment/report"
	"github.com/daybook-project/daybook/internal/figure"
	"github.com/daybook-project/daybook/internal/program"
)

// transfersSection is the section of the transfer counter.
const transfersSection = "transfers"

// Transfer is one engine with one stream on a number of simulated processors: how many
// cache lines move between them. The counter runs the engine's own code, compiled so that
// it reports each access to memory, on a MESI model with infinite caches. So the counts do
// not depend on the machine. The rates are a model.
type Transfer struct {
	Stream     string `json:"stream"`
	Engine     string `json:"engine"`
	Partitions int    `json:"partitions"`
	Processors int    `json:"processors"`
	Operations int    `json:"operations"`
	Updates    int    `json:"updates"`
	Commits    int    `json:"commits"`
	// AccessNanoseconds is the time of one access in the model. One simulated processor
	// then has the measured rate of one thread.
	AccessNanoseconds float64       `json:"access_ns"`
	Near              Moves         `json:"near"`
	Apart             Moves         `json:"apart"`
	Parts             []MovingLines `json:"parts"`
	// Callers is set if the counter had callers with open handles (--handle-ns).
	Callers *Callers `json:"callers,omitempty"`
}

// Moves are the counts and the modelled rate, with a time for each transfer.
type Moves struct {
	LineNanoseconds        float64 `json:"line_ns"`
	PerUpdate              float64 `json:"transfers_per_update"`
	PerOperation           float64 `json:"transfers_per_operation"`
	UpgradesPerUpdate      float64 `json:"upgrades_per_update"`
	FencesPerUpdate        float64 `json:"fences_per_update"`
	LinesPerUpdate         float64 `json:"lines_per_update"`
	LockHoldPerOperationNs float64 `json:"lock_hold_ns_per_operation"`
	UpdatesPerSecond       float64 `json:"updates_per_second"`
	// Error is the modelled rate over the measured one, minus 1, for as many threads as
	// the machine has processors; nil: there was no such round.
	Error *float64 `json:"model_error,omitempty"`
}

// Callers are handles of a file system, which stay open while others commit: a model
// (nvjournal/bench/transfers/callers.c).
type Callers struct {
	OperationsPerSecond      float64 `json:"operations_per_second"`
	TransactionsPerOperation float64 `json:"transactions_per_operation"`
	MergedPerOperation       float64 `json:"merged_per_operation"`
	StartWaitsPerOperation   float64 `json:"start_waits_per_operation"`
}

// MovingLines are the transfers of one part of the journal.
type MovingLines struct {
	Part      string  `json:"part"`
	PerUpdate float64 `json:"per_update"`
}

// Name returns the engine with its partitions, as text.
func (t Transfer) Name() string { return engineName(t.Engine, t.Partitions) }

// in returns the counts of a state.
func (t *Transfer) in(state State) *Moves {
	if state == NVJNear {
		return &t.Near
	}
	return &t.Apart
}

// count runs the counter. It calibrates its model with the measured rates of one thread
// and the measured times of a transfer.
func (o Options) count(ctx context.Context, n Result) ([]Transfer, error) {
	var arguments []string
	for _, s := range o.Streams {
		arguments = append(arguments, "--stream", s.Name+"="+s.Path)
	}
	if o.Quick {
		arguments = append(arguments, "--operations", "100", "--processors", "1,16")
	}
	arguments = append(append(arguments, o.counterArguments...), n.modelled()...)
	out, err := program.Output(ctx, program.Command{Path: o.Counter, Args: arguments, Errors: o.Progress})
	if err != nil {
		return nil, fmt.Errorf("cannot count the transfers of cache lines: %w", err)
	}
	var counted struct {
		Transfers []Transfer `json:"transfers"`
	}
	if err := json.Unmarshal([]byte(out), &counted); err != nil {
		return nil, fmt.Errorf("cannot read the output of %s: %w", o.Counter, err)
	}
	return counted.Transfers, nil
}

// modelled are the measured times that the counter's model has, as its arguments.
func (n Result) modelled() (arguments []string) {
	for _, c := range n.Calibration {
		arguments = append(arguments, "--"+string(c.State)+"-ns", strconv.FormatFloat(c.LineTransfer.Median, 'f', 1, 64))
	}
	for _, r := range n.Rows {
		if rate := rateIn(r.Rates, Alone); rate != nil && r.Threads == 1 {
			arguments = append(arguments, "--one-thread", fmt.Sprintf("%s:%s:%d=%.1f", r.Stream, r.Engine, r.Partitions, 1e9/rate.UpdatesPerSecond.Median))
		}
	}
	return arguments
}

// checkModel compares the model with the measured rates. Threads that share a processor
// are not in the model.
func (n *Result) checkModel() {
	for k := range n.Transfers {
		t := &n.Transfers[k]
		for _, state := range states {
			moves := t.in(state)
			moves.Error = nil
			row := n.row(t.Stream, t.Engine, t.Partitions, t.Processors)
			if row == nil || t.Processors > n.Host.CPUs {
				continue
			}
			if rate := rateIn(row.Rates, state.with(t.Processors)); rate != nil && rate.UpdatesPerSecond.Median > 0 {
				off := moves.UpdatesPerSecond/rate.UpdatesPerSecond.Median - 1
				moves.Error = &off
			}
		}
	}
}

// transfer returns a row, or nil if it was not counted.
func (n Result) transfer(stream, name string, processors int) *Transfer {
	for k, t := range n.Transfers {
		if t.Stream == stream && t.Name() == name && t.Processors == processors {
			return &n.Transfers[k]
		}
	}
	return nil
}

func (n Result) simulated() (processors []int, names []string) {
	for _, t := range n.Transfers {
		if !slices.Contains(processors, t.Processors) {
			processors = append(processors, t.Processors)
		}
		if !slices.Contains(names, t.Name()) {
			names = append(names, t.Name())
		}
	}
	return processors, names
}

// transferTables are the counts, which lines move, and the model.
func (n Result) transferTables() (tables []report.Table) {
	if len(n.Transfers) == 0 {
		return nil
	}
	tables = append(tables, n.movesTable(), n.partsTable())
	for _, state := range states {
		tables = append(tables, n.modelTable(state))
	}
	return tables
}

func (n Result) movesTable() report.Table {
	t := report.Table{
		Title:   "Cache lines that move between processors, for each update",
		Columns: []string{"stream, engine"},
		Note: "Counted, not measured: the code of the engines runs on simulated processors, from 1 to 64, one thread and its own blocks on each, and reports each access to memory. The caches are a MESI model with infinite size. A transfer is an access that needs another processor's cache: the line comes from there, or copies there must go. " +
			"The order of the accesses is that of the model below, with processors apart. A commit is included: of each operation in varmail, of each hundredth in create. The lock of one-lock is a queue, which moves one line for each owner. PMDK's libraries are not counted: they are not compiled here. " +
			"In parentheses the nanoseconds for which one operation holds the lock, in the model.",
	}
	processors, names := n.simulated()
	for _, p := range processors {
		t.Columns = append(t.Columns, strconv.Itoa(p))
	}
	for _, s := range n.Streams {
		for _, name := range names {
			row := []string{s.Stream + ", " + name}
			for _, p := range processors {
				cell := "–"
				if c := n.transfer(s.Stream, name, p); c != nil {
					cell = fmt.Sprintf("%.2f", c.Apart.PerUpdate)
					if c.Apart.LockHoldPerOperationNs > 0 {
						cell += fmt.Sprintf(" (%.0f)", c.Apart.LockHoldPerOperationNs)
					}
				}
				row = append(row, cell)
			}
			t.Rows = append(t.Rows, row)
		}
	}
	return t
}

// partsProcessors is the number of processors for which the moving lines have names.
const partsProcessors = 16

func (n Result) partsTable() report.Table {
	t := report.Table{
		Title:   fmt.Sprintf("Which lines move, for each update, %d processors", partsProcessors),
		Columns: []string{"line"},
		Note:    "The lines of nvjournal that move at least once in a hundred updates.",
	}
	cells := make(map[string][]string)
	var parts []string
	var columns []*Transfer
	_, names := n.simulated()
	for _, s := range n.Streams {
		for _, name := range names {
			if c := n.transfer(s.Stream, name, partsProcessors); c != nil && isOurs(c.Engine) {
				columns = append(columns, c)
				t.Columns = append(t.Columns, s.Stream+", "+name)
			}
		}
	}
	for k, c := range columns {
		for _, p := range c.Parts {
			if p.PerUpdate < 0.01 {
				continue
			}
			if cells[p.Part] == nil {
				cells[p.Part] = slices.Repeat([]string{"–"}, len(columns))
				parts = append(parts, p.Part)
			}
			cells[p.Part][k] = fmt.Sprintf("%.2f", p.PerUpdate)
		}
	}
	for _, part := range parts {
		t.Rows = append(t.Rows, append([]string{part}, cells[part]...))
	}
	return t
}

func (n Result) modelTable(state State) report.Table {
	t := report.Table{
		Title:   "A model: updates a second on more processors, thousands, " + condition(state),
		Columns: []string{"stream, engine"},
		Note: fmt.Sprintf("This machine has %d processors; other rates are computed, not measured. Each simulated processor has a clock. An access takes the time with which one processor has the measured rate of one thread. A transfer takes the measured time of a line from one processor to the other, and transfers of one line wait for each other. "+
			"Stores wait in a store buffer; atomic instructions and fences wait for them. Each thread has a processor of its own. The model leaves out the memory's bandwidth, sockets, the kernel's work for a thread that sleeps (it takes 1.5 µs here), and locks of callers. The last column is the error of the model where there are measured rounds.", n.Host.CPUs),
	}
	processors, names := n.simulated()
	for _, p := range processors {
		t.Columns = append(t.Columns, strconv.Itoa(p))
	}
	t.Columns = append(t.Columns, "error of the model")
	for _, s := range n.Streams {
		for _, name := range names {
			row, errors := []string{s.Stream + ", " + name}, "–"
			for _, p := range processors {
				c := n.transfer(s.Stream, name, p)
				if c == nil {
					row = append(row, "–")
					continue
				}
				row = append(row, fmt.Sprintf("%.0f", c.in(state).UpdatesPerSecond/1e3))
				if off := c.in(state).Error; off != nil && p > 1 {
					errors = fmt.Sprintf("%+.0f %% at %d", 100**off, p)
				}
			}
			t.Rows = append(t.Rows, append(row, errors))
		}
	}
	return t
}

// modelPanels draw the model, with the measured rates as dots.
func (n Result) modelPanels() (panels []figure.CurvePanel) {
	processors, names := n.simulated()
	if len(processors) == 0 {
		return nil
	}
	for _, s := range n.Streams {
		for _, state := range states {
			p := figure.CurvePanel{Title: "A model, " + string(state) + ": " + s.Stream + " (dots: measured)", XName: "processors", YName: "millions/s"}
			for _, count := range processors {
				p.X = append(p.X, float64(count))
			}
			for _, name := range names {
				line, dots := figure.Curve{Name: name}, figure.Curve{Name: name, Points: true}
				for _, count := range processors {
					rate, measured := missing, missing
					if c := n.transfer(s.Stream, name, count); c != nil {
						moves := c.in(state)
						rate = moves.UpdatesPerSecond / 1e6
						if moves.Error != nil {
							measured = rate / (1 + *moves.Error)
						}
					}
					line.Y, dots.Y = append(line.Y, rate), append(dots.Y, measured)
				}
				p.Lines = append(p.Lines, line, dots)
			}
			panels = append(panels, p)
		}
	}
	return panels
}
