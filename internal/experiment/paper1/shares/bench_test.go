package shares

import (
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/experiment/report"
)

// The page names one host.
func TestScenariosOfAnotherHostAreNotKept(t *testing.T) {
	o := Full
	o.Only, o.Before = "70:30", Result{Host: report.ThisHost(), Scenarios: []Outcome{{}}}
	o.Before.Host.Kernel = "x"
	if _, err := Bench(t.Context(), fixture.Lab{}, o); err == nil || !strings.Contains(err.Error(), "another host (kernel x,") {
		t.Errorf("%v", err)
	}
}
