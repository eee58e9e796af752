package shares

import (
	"strings"
	"testing"
)

func TestPageLeadsWithMissesAndSaysWhatIsMissing(t *testing.T) {
	settings := Full.Settings
	settings.Lanes = 4
	alone := settings.scenario(aloneConditions())
	r := Result{Settings: settings, Repetitions: 2, Plan: []Scenario{two, alone}, Runs: []Run{
		good(two, 1, func(run *Run) { run.Controlled.MeanError, run.Recording = 0.2, "runs/bad.json" }), good(two, 2, nil), good(alone, 1, nil),
		{Kind: Alone, Scenario: alone.Name, Repetition: 1, Controlled: PhaseFigures{MeanError: 0.003, BytesPerSecond: 9e6}, Uncontrolled: PhaseFigures{BytesPerSecond: 8e6}},
	}}
	page, err := r.Report()
	if err != nil {
		t.Fatal(err)
	}
	if lead := page.Lead[0]; !strings.HasPrefix(lead, "**1 of 3 runs missed a goal**") || !strings.Contains(lead, "Only 2 of 14 scenarios") || !strings.Contains(lead, "runs are missing") {
		t.Error(lead)
	}
	if page.Tables[0].Title != "Missed goals" || len(page.Tables[0].Rows) != 1 {
		t.Errorf("%+v", page.Tables[0])
	}
	text := string(page.Markdown("make bench-shares", "shares.svg"))
	for _, want := range []string{"mean of a minute 20.0 points off", "| bad.json |", "## One run at a time, and 4", "0.3, 0.3", "![", two.Name} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not on the page", want)
		}
	}
	r.Plan, r.Repetitions = Full.plan(), 1
	r.Runs = nil
	for _, j := range r.jobs() {
		run := good(j.scenario, j.repetition, nil)
		run.Kind = j.kind
		r.Runs = append(r.Runs, run)
	}
	if page, err = r.Report(); err != nil || page.Lead[0] != "No run of 14 missed a goal." {
		t.Errorf("%q, %v", page.Lead[0], err)
	}
}
