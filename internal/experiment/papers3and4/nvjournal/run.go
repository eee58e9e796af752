package nvjournal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/daybook-project/daybook/internal/experiment/report"
	"github.com/daybook-project/daybook/internal/experiment/statistics"
	"github.com/daybook-project/daybook/internal/program"
)

// Options configure the measurement.
type Options struct {
	// Program is nvjournal's benchmark, built.
	Program string
	// Counter is the counter of transfers of cache lines, built.
	Counter string
	Streams []Recording
	Rounds  int
	Quick   bool
	// FenceNanoseconds and LineNanoseconds add latency to the memory of all
	// measurements, and MegabytesPerSecond limits its bandwidth. 0 means unchanged
	// DRAM, as in papers 3 and 4.
	FenceNanoseconds, LineNanoseconds, MegabytesPerSecond int
	// Latencies are the additional waits of a fence in the section about slower
	// memory, ns; nil means those of the program.
	Latencies []int
	// Only is the name of the one section to measure; the others are copied from
	// Before. "" means all sections.
	Only   string
	Before Result
	// counterArguments are further arguments of Counter.
	counterArguments []string
	// Progress receives the messages of the program.
	Progress io.Writer
}

// Recording is a recording of block updates, by package blockstream.
type Recording struct{ Name, Path string }

// Result is the result of the benchmark of nvjournal.
type Result struct {
	Host        report.Host `json:"host"`
	Persistence string      `json:"persistence"`
	RegionBytes uint64      `json:"region_bytes"`
	Rounds      int         `json:"rounds"`
	Quick       bool        `json:"quick,omitempty"`
	// Injected latency and bandwidth; 0 means those of the memory.
	FenceNanoseconds float64 `json:"fence_ns"`
	LineNanoseconds  float64 `json:"line_ns"`
	BytesPerSecond   float64 `json:"bytes_per_second"`

	Streams []Stream `json:"streams"`
	Rows    []Row    `json:"rows"`
	// Ratios are computed from Rows, near over near and apart over apart.
	Ratios     []Ratio      `json:"ratios"`
	Floor      []Update     `json:"floor"`
	Commit     []Commit     `json:"commit"`
	Recovery   []Recovery   `json:"recovery"`
	Rings      []Rings      `json:"rings"`
	Checkpoint []Checkpoint `json:"checkpoint"`
	Order      []Order      `json:"order"`
	Data       []Data       `json:"data"`
	Latency    []Latency    `json:"latency"`
	Machine    []Machine    `json:"machine"`
	// Calibration is the result of Machine in each state.
	Calibration []Calibration `json:"calibration"`
	// Transfers are counts of a simulation, and a model of the time.
	Transfers []Transfer `json:"transfers"`

	// NearestNanoseconds is the shortest transfer of a line from one processor to
	// another. It defines the state NVJNear.
	NearestNanoseconds float64 `json:"nearest_line_transfer_ns"`
	// Later are the sections that were measured again later, alone.
	Later []string `json:"measured_later,omitempty"`
}

// Stream is a recording of block updates.
type Stream struct {
	Stream     string `json:"stream"`
	Operations int    `json:"operations"`
	Updates    int    `json:"updates"`
	Lines      int    `json:"lines"`
	Blocks     int    `json:"blocks"`
}

// Row is one engine with one stream and a number of threads. A nil value was not
// counted, because the engine bypasses the counters.
type Row struct {
	Stream      string  `json:"stream"`
	Engine      string  `json:"engine"`
	Partitions  int     `json:"partitions"`
	Threads     int     `json:"threads"`
	CommitEvery int     `json:"commit_every_operations"`
	Rounds      []Round `json:"rounds"`
	// Rates are the results of the rounds, for each state.
	Rates            []Rate   `json:"rates"`
	BytesPerUpdate   *float64 `json:"bytes_per_update"`
	FlushesPerUpdate *float64 `json:"flushes_per_update"`
	FencesPerUpdate  *float64 `json:"fences_per_update"`
	SyncsPerUpdate   *float64 `json:"syncs_per_update,omitempty"`
}

// Name returns the engine with its partitions, as text.
func (r Row) Name() string { return engineName(r.Engine, r.Partitions) }

func engineName(engine string, partitions int) string {
	switch engine {
	case "nvjournal":
		return "nvjournal, P = " + strconv.Itoa(partitions)
	case byDefault:
		return "nvjournal, as formatted by default, P = " + strconv.Itoa(partitions)
	case byProcessor:
		return "nvjournal, by processor, P = " + strconv.Itoa(partitions)
	}
	return engine
}

// byProcessor is nvjournal with records in the ring of the processor that writes them, which
// is the default of nvj format, and 16 rings on any machine, which is not. It is the form in
// all ratios to other engines.
const byProcessor = "nvjournal-cpu"

// byDefault is the same with as many rings as nvj format makes on the machine.
const byDefault = "nvjournal-default"

// isOurs says whether an engine is nvjournal, as it is used.
func isOurs(engine string) bool { return engine == "nvjournal" || engine == byProcessor }

// Commit is nvj_commit of one thread, in microseconds: spreads over rounds of a
// round's median, mean and 99th percentile.
type Commit struct {
	Partitions int               `json:"partitions"`
	Median     statistics.Spread `json:"median_us"`
	Mean       statistics.Spread `json:"mean_us"`
	P99        statistics.Spread `json:"p99_us"`
}

// Recovery is a recovery.
type Recovery struct {
	Partitions    int               `json:"partitions"`
	How           string            `json:"how"`
	SecondsPerGiB statistics.Spread `json:"seconds_per_gib"`
	JournalBytes  uint64            `json:"journal_bytes"`
	Records       uint64            `json:"records"`
	Blocks        uint64            `json:"blocks"`
}

// Checkpoint is a checkpoint to a disk model.
type Checkpoint struct {
	Channels           int               `json:"channels"`
	Threads            int               `json:"threads"`
	WritesUnderWay     int               `json:"writes_under_way"`
	WriteSeconds       float64           `json:"write_seconds"`
	MebibytesPerSecond statistics.Spread `json:"mib_per_second"`
}

// Data is one small synchronous write of file data.
type Data struct {
	How    string            `json:"how"`
	Bytes  int               `json:"bytes"`
	Median statistics.Spread `json:"median_us"`
}

// fits refuses to measure a section again beside earlier ones that were measured in another
// way. Transfers are counted, and not measured: on any machine they are the same.
func (o Options) fits() error {
	before := o.Before
	if o.Only == "" || before.Rounds == 0 {
		return nil
	}
	if before.Quick != o.Quick {
		return errors.New("either the earlier figures or these are quick: measure all sections, or write to another file (--output)")
	}
	if o.Only == transfersSection {
		return nil
	}
	if before.Rounds != o.Rounds {
		return fmt.Errorf("the earlier figures are of %d rounds, and these would be of %d: measure all sections, or write to another file (--output)", before.Rounds, o.Rounds)
	}
	if before.FenceNanoseconds != float64(o.FenceNanoseconds) || before.LineNanoseconds != float64(o.LineNanoseconds) || before.BytesPerSecond != 1e6*float64(o.MegabytesPerSecond) {
		return fmt.Errorf("the earlier figures are of other memory (%g ns for each fence, %g ns for each line, %s): measure all sections, or write to another file (--output)",
			before.FenceNanoseconds, before.LineNanoseconds, bandwidth(before.BytesPerSecond))
	}
	return report.SameHost(before.Host, report.ThisHost())
}

// Run runs the program and adds the model.
func Run(ctx context.Context, o Options) (Result, error) {
	if err := o.fits(); err != nil {
		return Result{}, err
	}
	arguments := []string{
		"--rounds", strconv.Itoa(o.Rounds), "--fence-ns", strconv.Itoa(o.FenceNanoseconds),
		"--line-ns", strconv.Itoa(o.LineNanoseconds), "--bandwidth", strconv.Itoa(o.MegabytesPerSecond),
	}
	for _, s := range o.Streams {
		arguments = append(arguments, "--stream", s.Name+"="+s.Path)
	}
	if o.Only != "" {
		arguments = append(arguments, "--only", o.Only)
	}
	if o.Quick {
		arguments = append(arguments, "--quick")
	}
	if o.Latencies != nil {
		var list []string
		for _, ns := range o.Latencies {
			list = append(list, strconv.Itoa(ns))
		}
		arguments = append(arguments, "--latency", strings.Join(list, ","))
	}
	out := "{}"
	if o.Only != transfersSection {
		var err error
		out, err = program.Output(ctx, program.Command{Path: o.Program, Args: arguments, Errors: o.Progress})
		if err != nil {
			return Result{}, fmt.Errorf("cannot measure nvjournal: %w", err)
		}
	}
	result, err := o.read([]byte(out))
	if err != nil {
		return result, fmt.Errorf("cannot read the output of %s: %w", o.Program, err)
	}
	for k := range result.Order {
		if o.Only != "" && o.Only != "order" {
			break // computed in an earlier run
		}
		if err := result.Order[k].compute(); err != nil {
			return result, fmt.Errorf("cannot compute the time of a checkpoint's order: %w", err)
		}
	}
	result.Host, result.Quick = report.ThisHost(), o.Quick
	if o.Only == transfersSection && o.Before.Rounds > 0 {
		result.Host = o.Before.Host // counted here, whatever this machine is
	}
	result.evaluate()
	// What was measured now may change the times that the model has of a machine.
	renewed := len(o.Before.Transfers) > 0 && !slices.Equal(result.modelled(), o.Before.modelled())
	if o.Only == "" || o.Only == transfersSection || renewed {
		if result.Transfers, err = o.count(ctx, result); err != nil {
			return result, err
		}
		result.checkModel()
	}
	return result, nil
}

// read parses the output of the program. If it has one section only, the others come from
// Before.
func (o Options) read(printed []byte) (result Result, err error) {
	if o.Only == "" {
		return result, json.Unmarshal(printed, &result)
	}
	// Replace whole sections by their keys. Decoding into the old result would keep
	// old elements that the new section does not have.
	all := make(map[string]json.RawMessage)
	before, err := json.Marshal(o.Before)
	if err != nil {
		return result, err
	}
	for _, text := range [][]byte{before, printed} {
		if err := json.Unmarshal(text, &all); err != nil {
			return result, err
		}
	}
	text, err := json.Marshal(all)
	if err != nil {
		return result, err
	}
	if err := json.Unmarshal(text, &result); err != nil {
		return result, err
	}
	// The state of all rounds depends on the shortest transfer of all runs.
	if near := o.Before.NearestNanoseconds; near > 0 {
		result.NearestNanoseconds = min(near, result.NearestNanoseconds)
	}
	if o.Before.has(o.Only) && !slices.Contains(result.Later, o.Only) {
		result.Later = append(result.Later, o.Only)
	}
	return result, nil
}

// has reports whether a section was measured.
func (n Result) has(section string) bool {
	return map[string]int{
		"streams": len(n.Rows), "updates": len(n.Floor), "commit": len(n.Commit), "recovery": len(n.Recovery),
		"rings": len(n.Rings), "checkpoint": len(n.Checkpoint), "order": len(n.Order), "data": len(n.Data),
		"machine": len(n.Machine), "latency": len(n.Latency), transfersSection: len(n.Transfers),
	}[section] > 0
}

// row returns a row, or nil if it was not measured.
func (n Result) row(stream, engine string, partitions, threads int) *Row {
	for k, r := range n.Rows {
		if r.Stream == stream && r.Engine == engine && r.Partitions == partitions && r.Threads == threads {
			return &n.Rows[k]
		}
	}
	return nil
}
