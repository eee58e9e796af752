package verdict

import (
	"errors"
	"fmt"
	"slices"

	"github.com/daybook-project/daybook/internal/experiment/report"
)

// Verdict is one target.
type Verdict struct {
	Target string
	// Condition is under which it was measured, where a target is held to its bound
	// under several; "": there is one.
	Condition string
	Wanted    string
	// Measured is the result as text. Value and Bound are numbers, which show
	// the distance to the bound.
	Measured     string
	Value, Bound float64
	Met          bool
	// None means no verdict, because no comparable measurements exist.
	None bool
}

func (v Verdict) Name() string {
	if v.Condition == "" {
		return v.Target
	}
	return v.Target + ", " + v.Condition
}

func (v Verdict) text() string {
	switch {
	case v.None:
		return "no verdict"
	case v.Met:
		return "yes"
	}
	return "no"
}

// Table returns a table of the targets, the missed ones first, with a note on the
// reasons.
func Table(verdicts []Verdict, note string) report.Table {
	t := report.Table{Title: "Targets", Columns: []string{"target", "wanted", "measured", "met"}, Note: note}
	for _, met := range []string{"no", "no verdict", "yes"} {
		for _, v := range verdicts {
			if v.text() == met {
				t.Rows = append(t.Rows, []string{v.Name(), v.Wanted, v.Measured, met})
			}
		}
	}
	return t
}

// Check returns an error for each target that is missed or has no verdict under
// any condition, or nil.
func Check(verdicts []Verdict) error {
	var errs []error
	for _, v := range verdicts {
		judged := func(other Verdict) bool { return other.Target == v.Target && !other.None }
		switch {
		case v.Met:
		case !v.None:
			errs = append(errs, fmt.Errorf("%s: %s, want %s", v.Name(), v.Measured, v.Wanted))
		case !slices.ContainsFunc(verdicts, judged):
			errs = append(errs, fmt.Errorf("%s: no verdict (%s), want %s", v.Name(), v.Measured, v.Wanted))
		}
	}
	return errors.Join(errs...)
}
