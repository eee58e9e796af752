package overhead

import (
	"context"
	"errors"
	"fmt"

	"github.com/daybook-project/daybook/internal/experiment/statistics"
)

// Bound is the greatest accepted ratio of the cost of a call with the programs
// attached to that with them detached.
const Bound = 1.01

// The units of a Row.
const (
	Nanoseconds  = "nanoseconds"
	Instructions = "instructions"
)

// Row is the cost of one operation. Detached, Attached, Programs and Later are in Unit,
// for each call.
type Row struct {
	// Kernel is uname -r of the guest; "": measured on the host.
	Kernel    string `json:"kernel,omitempty"`
	Operation string `json:"operation"`
	Unit      string `json:"unit"`
	Calls     int    `json:"calls_per_window"`
	Pairs     int    `json:"pairs"`
	// Detached and Attached are medians over the windows.
	Detached float64 `json:"per_call_detached"`
	Attached float64 `json:"per_call_attached"`
	// Ratio is the median over the pairs of attached divided by detached. Low to
	// High is its 95 % range by bootstrap.
	Ratio float64 `json:"ratio"`
	Low   float64 `json:"ratio_low"`
	High  float64 `json:"ratio_high"`
	// Empty is the cost with programs that do nothing on the same tracepoints, and
	// EmptyRatio its ratio: no program can cost less. 0: not measured.
	Empty      float64 `json:"per_call_empty,omitempty"`
	EmptyRatio float64 `json:"ratio_empty,omitempty"`
	// Verdict compares Low and High with Bound.
	Verdict Verdict `json:"verdict"`
	// Events are the runs of BPF programs during the calls, Programs their cost, in
	// all processes.
	Events   float64 `json:"bpf_runs_per_call"`
	Programs float64 `json:"bpf_cost_per_call"`
	// Later is the programs' cost when jbd2 writes out the changes of the calls.
	Later float64 `json:"bpf_cost_later_per_call"`
}

// Verdict is whether a ratio is within Bound.
type Verdict string

// The verdicts.
const (
	Met          Verdict = "met"           // the whole range is
	Missed       Verdict = "missed"        // no part of the range is
	NotConfirmed Verdict = "not confirmed" // the range includes the bound: too noisy
)

// judge sets the verdict.
func (r *Row) judge() {
	switch {
	case r.High <= Bound:
		r.Verdict = Met
	case r.Low > Bound:
		r.Verdict = Missed
	default:
		r.Verdict = NotConfirmed
	}
}

// compare runs pairs of windows of each load, one with the programs attached and one
// with them detached. Which is first alternates. At the end the programs are attached.
func (w *windows) compare(ctx context.Context, pairs int, unit string) ([]Row, error) {
	rows := make([]Row, 0, len(w.loads))
	for _, load := range w.loads {
		w.lab.Say(fmt.Sprintf("%s: %d pairs of windows", load.name, pairs))
		if _, err := w.perCall(ctx, load); err != nil { // warms up the caches
			return nil, err
		}
		var attached, detached, ratios, empty, emptyRatios []float64
		for pair := range pairs {
			with, without, called, err := w.pair(ctx, load, pair%2 == 1)
			if err != nil {
				return nil, err
			}
			attached, detached, ratios = append(attached, with), append(detached, without), append(ratios, with/without)
			if w.empty != nil {
				empty, emptyRatios = append(empty, called), append(emptyRatios, called/without)
			}
		}
		row := Row{
			Operation: load.name, Unit: unit, Calls: w.calls(load), Pairs: pairs,
			Detached: statistics.Median(detached), Attached: statistics.Median(attached), Ratio: statistics.Median(ratios),
		}
		row.Low, row.High = statistics.Bootstrap(ratios)
		if w.empty != nil {
			row.Empty, row.EmptyRatio = statistics.Median(empty), statistics.Median(emptyRatios)
		}
		row.judge()
		rows = append(rows, row)
	}
	return rows, nil
}

// pair returns the cost of a call with the programs attached and detached, and with
// empty ones in their place.
func (w *windows) pair(ctx context.Context, load load, attachedFirst bool) (with, without, called float64, err error) {
	if attachedFirst {
		if with, err = w.perCall(ctx, load); err != nil {
			return 0, 0, 0, err
		}
	}
	resume, err := w.probe.Pause()
	if err != nil {
		return 0, 0, 0, err
	}
	without, err = w.perCall(ctx, load)
	if err == nil && w.empty != nil {
		called, err = w.withEmpty(ctx, load)
	}
	if err := errors.Join(err, resume()); err != nil {
		return 0, 0, 0, err
	}
	if !attachedFirst {
		with, err = w.perCall(ctx, load)
	}
	return with, without, called, err
}

func (w *windows) withEmpty(ctx context.Context, load load) (called float64, err error) {
	detach, err := w.empty.Attach()
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, detach()) }()
	return w.perCall(ctx, load)
}
