package experiment

import (
	"errors"
	"fmt"
)

// Verdict is one target.
type Verdict struct {
	Target string
	Wanted string
	// Measured is what it came to; Value and Bound the same as numbers, for
	// who wants to see how far it is.
	Measured     string
	Value, Bound float64
	Met          bool
}

// verdictTable shows them, with a note on the reasons.
func verdictTable(verdicts []Verdict, note string) ReportTable {
	t := ReportTable{Title: "Targets", Columns: []string{"target", "wanted", "measured", "met"}, Note: note}
	for _, v := range verdicts {
		met := "no"
		if v.Met {
			met = "yes"
		}
		t.Rows = append(t.Rows, []string{v.Target, v.Wanted, v.Measured, met})
	}
	return t
}

// checkVerdicts says which targets are missed; nil: none.
func checkVerdicts(verdicts []Verdict) error {
	var errs []error
	for _, v := range verdicts {
		if !v.Met {
			errs = append(errs, fmt.Errorf("%s: %s, want %s", v.Target, v.Measured, v.Wanted))
		}
	}
	return errors.Join(errs...)
}
