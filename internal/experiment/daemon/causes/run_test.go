package causes

import (
	"testing"

	"github.com/daybook-project/daybook/internal/experiment/fixture/fixturetest"
)

func TestInjectedCausesAreFound(t *testing.T) {
	lab := fixturetest.New(t)
	for _, c := range Cases() {
		t.Run(c.Name, func(t *testing.T) {
			outcome, err := Run(t.Context(), lab, c, 3)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range outcome.Rounds {
				t.Logf("%d calls, measured %.4f s; blame: %d calls, %.4f s; %.1f %% right; %+v",
					r.Calls, r.MeasuredSeconds, r.BlamedCalls, r.BlamedSeconds, 100*r.Share(c.Cause, c.Culprit), r.Parts)
			}
		})
	}
}
