package causes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/daybook-project/daybook/internal/disksim"
	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/experiment/report"
)

// Result is what the benchmark measured.
type Result struct {
	Outcomes   []Outcome        `json:"outcomes"`
	Operations map[string]Round `json:"operations"`
	Host       report.Host      `json:"host"`
}

// UnmarshalJSON reads the outcome of a case, which is found by its name.
func (o *Outcome) UnmarshalJSON(text []byte) error {
	type plain Outcome
	if err := json.Unmarshal(text, (*plain)(o)); err != nil {
		return err
	}
	for _, c := range append(Cases(), Limits()...) {
		if c.Name == o.Name {
			o.Case = c
			return nil
		}
	}
	return fmt.Errorf("there is no case %q", o.Name)
}

// Bench measures all cases and all operations.
func Bench(ctx context.Context, l fixture.Lab, o Options) (Result, error) {
	result := Result{Operations: make(map[string]Round), Host: report.ThisHost()}
	for _, c := range append(Cases(), Limits()...) {
		outcome, err := Run(ctx, l, c, o.Rounds)
		if err != nil {
			return result, err
		}
		result.Outcomes = append(result.Outcomes, outcome)
	}
	rounds, err := RunOperations(ctx, l, operationsDisk, 10*o.Rounds+1)
	for operation, round := range rounds {
		result.Operations[operation.String()] = round
	}
	return result, err
}

// operationsDisk is the disk on which single operations are measured.
var operationsDisk = fixture.Options{
	SizeBytes: 1 << 30, JournalBytes: 64 << 20, Scheduler: "mq-deadline",
	Parameters: disksim.Parameters{FlushSeconds: 0.005},
}

// Check returns an error for each bound that does not hold, or nil.
func (r Result) Check() error {
	var errs []error
	for _, o := range r.Outcomes {
		errs = append(errs, o.problems()...)
	}
	for name, round := range r.Operations {
		if round.BlamedCalls != uint64(round.Calls) {
			errs = append(errs, fmt.Errorf("%s: %d calls, blame has %d", name, round.Calls, round.BlamedCalls))
		}
	}
	return errors.Join(errs...)
}

// Report returns the result as a report.
func (r Result) Report() (report.Report, error) {
	found := report.Table{
		Title:   "Injected causes",
		Columns: []string{"cause", "rounds", "blamed on it, median", "least and most", "sum of the phases, against the caller's time"},
	}
	for _, o := range r.Outcomes {
		share, difference := o.share(), o.difference()
		sum := fmt.Sprintf("%+.2f %% (%+.2f to %+.2f)", 100*difference.Median, 100*difference.Low, 100*difference.High)
		if o.Case.Waiter == Mkdir {
			sum = "only calls that waited are blamed"
		}
		found.Rows = append(found.Rows, []string{
			o.Name, fmt.Sprint(len(o.Rounds)), fmt.Sprintf("%.1f %%", 100*share.Median),
			fmt.Sprintf("%.1f to %.1f %%", 100*share.Low, 100*share.High), sum,
		})
	}
	found.Note = fmt.Sprintf("Wanted: at least %.0f %% in the median, and sums within %.0f %% in the median (in brackets the least and the greatest). "+
		"The caller's time includes its wait for a processor after the sync, on a busy machine. The last row is held to no bound: "+
		"blame calls it the waiter's own data, because it sees no queue of the disk.", 100*ShareBound, 100*SumBound)
	others := report.Table{Title: "All causes, mean of the rounds", Columns: []string{"injected", "cause", "culprit", "seconds of a round"},
		Note: "Culprit none: the time is no container's: the disk's flush, or no phase is known."}
	for _, o := range r.Outcomes {
		for _, part := range meanParts(o.Rounds) {
			others.Rows = append(others.Rows, []string{o.Name, part.Cause, part.Culprit, fmt.Sprintf("%.4f", part.Seconds)})
		}
	}
	calls := report.Table{
		Title:   "Kinds of calls, against the times of the caller",
		Columns: []string{"call", "calls", "seconds", "by blame", "difference", "median", "by blame"},
		Note: "A write to a file with O_SYNC copies its data before its sync begins, which is not in blame's time. " +
			"A median by blame is exact to a bucket of the histogram, 12.5 %.",
	}
	for _, op := range operations {
		round := r.Operations[op.operation.String()]
		calls.Rows = append(calls.Rows, []string{
			op.do, fmt.Sprint(round.Calls), fmt.Sprintf("%.3f", round.MeasuredSeconds), fmt.Sprintf("%.3f", round.BlamedSeconds),
			fmt.Sprintf("%+.2f %%", 100*(round.BlamedSeconds/round.MeasuredSeconds-1)),
			fmt.Sprintf("%.2f ms", 1e3*round.MeasuredMedian), fmt.Sprintf("%.2f ms", 1e3*round.BlamedMedian),
		})
	}
	var cases []string
	for _, o := range r.Outcomes {
		cases = append(cases, o.Name+": "+o.Case.What)
	}
	return report.Report{
		Title: "Does blame find the cause of a wait?",
		Lead: []string{
			"A container calls fsync (or mkdir, for the full journal) on an ext4 on a simulated disk, and measures each call itself. " +
				"In each case one cause is injected. The share is the part of the time that `daybook blame` divides to this cause and its culprit.",
			"The cases. " + strings.Join(cases, ". ") + ".",
		},
		Tables: []report.Table{found, others, calls},
		Host:   r.Host,
	}, nil
}

// meanParts are the parts of a round, the mean over the rounds, without those
// below a thousandth.
func meanParts(rounds []Round) []Part {
	sums := make(map[Part]float64)
	var total float64
	for _, r := range rounds {
		for _, p := range r.Parts {
			sums[Part{Cause: p.Cause, Culprit: p.Culprit}] += p.Seconds
			total += p.Seconds
		}
	}
	var parts []Part
	for part, seconds := range sums {
		if seconds < total/1000 {
			continue
		}
		part.Seconds = seconds / float64(len(rounds))
		parts = append(parts, part)
	}
	slices.SortFunc(parts, func(a, b Part) int {
		switch {
		case a.Seconds > b.Seconds:
			return -1
		case a.Seconds < b.Seconds:
			return 1
		}
		return strings.Compare(a.Cause+a.Culprit, b.Cause+b.Culprit)
	})
	return parts
}
