package shares

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/experiment/report"
	"github.com/daybook-project/daybook/internal/experiment/scenario"
)

// phase makes one with an interval for each pair of bytes.
func phase(name string, limited int, pairs ...[2]uint64) scenario.Phase {
	p := scenario.Phase{Name: name}
	for n, pair := range pairs {
		device := account.Device{Device: "loop0", DiskBytes: pair[0] + pair[1], Containers: []account.Container{
			{Cgroup: "/x/A", Name: "A", ChargedReadBytes: pair[0]}, {Cgroup: "/x/B", Name: "B", ChargedReadBytes: pair[1] - 1, JournalBytes: 1},
		}}
		if n >= len(pairs)-limited {
			device.Control = &account.Control{Actuator: account.ActuatorLimits, WeightsIgnored: true}
		}
		p.Samples = append(p.Samples, account.Sample{IntervalSeconds: 5, Devices: []account.Device{device}})
	}
	return p
}

var two = Full.scenario(Conditions{Depth: 8, Load: Readers, Containers: 2, Divider: BFQDefault}) // 70:30

func close2(a, b float64) bool { return math.Abs(a-b) < 1e-4 }

func TestFiguresAreOfTheIntervalsAfterTheThird(t *testing.T) {
	p := phase("feedback", 1, [2]uint64{100, 900}, [2]uint64{1, 999}, [2]uint64{500, 500}, [2]uint64{700, 300}, [2]uint64{650, 350}, [2]uint64{700, 300}, [2]uint64{640, 360})
	f, err := figuresOf(two.Scenario, p, warmUpIntervals)
	if err != nil {
		t.Fatal(err)
	}
	if !close2(f.MeanError, 0.7-2690.0/4000) || !close2(f.Within, 0.75) || !close2(f.WorstDeviation, 0.06) || f.BytesPerSecond != 200 {
		t.Errorf("%+v", f)
	}
	if len(f.IntervalShares) != 7 || f.LimitedIntervals != 1 || f.IgnoredIntervals != 1 {
		t.Errorf("%+v", f)
	}
	if _, err := figuresOf(two.Scenario, phase("feedback", 0, [2]uint64{1, 2}), warmUpIntervals); err == nil {
		t.Error("no interval after the third: no error")
	}
}

// good is a run that misses nothing, changed.
func good(s Scenario, repetition int, change func(*Run)) Run {
	run := Run{Kind: Judged, Scenario: s.Name, Repetition: repetition,
		Uncontrolled: PhaseFigures{MeanError: 0.1, BytesPerSecond: 100},
		Controlled:   PhaseFigures{MeanError: 0.002, Within: 1, WorstDeviation: 0.03, BytesPerSecond: 99}}
	if change != nil {
		change(&run)
	}
	return run
}

func TestSummaryHasMedianAndWorstRun(t *testing.T) {
	r := Result{Repetitions: 3, Plan: []Scenario{two}, Runs: []Run{
		good(two, 1, nil),
		good(two, 2, func(run *Run) {
			run.Controlled = PhaseFigures{MeanError: 0.3, Within: 0.5, WorstDeviation: 0.4, BytesPerSecond: 50, LimitedIntervals: 2, IgnoredIntervals: 1}
		}),
		good(two, 3, func(run *Run) { run.Controlled.MeanError = 0.004 }),
		{Kind: Judged, Scenario: two.Name, Repetition: 4, Failed: "no disk"},
		{Kind: FairDisk, Scenario: two.fair().name(), Repetition: 1, Uncontrolled: PhaseFigures{BytesPerSecond: 80}},
	}}
	s, ok := r.summarize(two)
	if !ok || s.Runs != 4 || s.Failed != 1 || s.Missed != 2 || s.Limited != 1 || s.Ignored != 1 || s.Baseline != 100 || s.Fair != 80 {
		t.Fatalf("%+v", s)
	}
	for name, c := range map[string]struct {
		got           Figure
		median, worst float64
	}{
		"mean": {s.MeanError, 0.004, 0.3}, "within": {s.Within, 1, 0.5}, "deviation": {s.Deviation, 0.03, 0.4}, "throughput": {s.Throughput, 0.99, 0.5},
	} {
		if !close2(c.got.Median, c.median) || !close2(c.got.Worst, c.worst) {
			t.Errorf("%s: %+v; want %v, %v", name, c.got, c.median, c.worst)
		}
	}
	// The fair disk is the better one.
	r.Runs[4].Uncontrolled.BytesPerSecond = 200
	if s, _ := r.summarize(two); s.Baseline != 200 || s.Missed != 4 {
		t.Errorf("%+v", s)
	}
	if _, ok := (Result{}).summarize(two); ok {
		t.Error("a scenario without a run has a summary")
	}
}

func TestEachGoalIsCheckedAndTheWorstComesFirst(t *testing.T) {
	changes := []struct {
		miss   string
		change func(*Run)
	}{
		{"failed: broken", func(run *Run) { run.Failed = "broken" }},
		{"mean of a minute 10.1 points off", func(run *Run) { run.Controlled.MeanError = 0.101 }},
		{"50 % of the intervals within 5 points", func(run *Run) { run.Controlled.Within = 0.5 - 1e-3 }},
		{"throughput 0.800", func(run *Run) { run.Controlled.BytesPerSecond = 80 }},
		{"an interval 11.0 points off", func(run *Run) { run.Controlled.WorstDeviation = 0.11 }},
	}
	r := Result{Repetitions: 1, Plan: []Scenario{two}}
	if err := r.Check(); err == nil || !strings.Contains(err.Error(), "missing") {
		t.Errorf("no run at all: %v", err)
	}
	for n := range changes {
		// The least first: the order is not that of the runs.
		r.Runs = append(r.Runs, good(two, n+1, changes[len(changes)-1-n].change))
	}
	r.Runs = append(r.Runs, good(two, len(changes)+1, nil), Run{Kind: FairDisk, Scenario: two.fair().name(), Repetition: 1, Uncontrolled: PhaseFigures{BytesPerSecond: 1}})
	misses := r.Misses()
	if len(misses) != len(changes) {
		t.Fatalf("%d misses: %v", len(misses), misses)
	}
	for n, c := range changes {
		if !strings.Contains(misses[n].String(), c.miss) {
			t.Errorf("miss %d is %q; want %q", n, misses[n], c.miss)
		}
	}
	if err := r.Check(); err == nil || strings.Contains(err.Error(), "missing") || len(strings.Split(err.Error(), "\n")) != len(changes) {
		t.Errorf("%v", err)
	}
	// Each exactly at its bound.
	at := good(two, 1, func(run *Run) {
		run.Controlled = PhaseFigures{MeanError: 0.01, Within: 0.95, WorstDeviation: 0.1, BytesPerSecond: 95}
	})
	if misses := at.misses(100); len(misses) > 0 {
		t.Errorf("at the bounds: %v", misses)
	}
}

func TestMissingRunsAreMadeInTurnAndThoseThatAreThereAreNot(t *testing.T) {
	r := Result{Repetitions: 5, Settings: Settings{Lanes: 2}, Plan: Full.plan()}
	all := r.jobs()
	for n := range aloneRepetitions {
		if all[n].kind != Alone || all[n].repetition != n+1 {
			t.Errorf("%+v; want a run alone", all[n])
		}
	}
	fairs := 0
	for n, j := range all[aloneRepetitions:] {
		if before := all[aloneRepetitions+n-1]; n > 0 && j.repetition < before.repetition {
			t.Errorf("repetition %d comes after %d", j.repetition, before.repetition)
		}
		if j.kind == FairDisk {
			fairs++
			if j.controlledFirst() || len(j.parts(Full.Settings)) != 1 {
				t.Errorf("%+v", j)
			}
			continue
		}
		parts := j.parts(Full.Settings)
		if controlled := parts[0].Law != scenario.Uncontrolled; controlled != (j.repetition%2 == 0) || len(parts) != 2 {
			t.Errorf("repetition %d: %+v", j.repetition, parts)
		}
	}
	if want := 5 * len(r.Plan); len(all)-aloneRepetitions-fairs != want || fairs == 0 || fairs%fairRepetitions != 0 {
		t.Errorf("%d runs, %d fair ones; want %d", len(all), fairs, want)
	}
	for _, j := range all[:7] {
		r.Runs = append(r.Runs, Run{Kind: j.kind, Scenario: j.scenario.Name, Repetition: j.repetition})
	}
	if left := r.jobs(); len(left) != len(all)-7 || left[0].scenario.Name != all[7].scenario.Name {
		t.Errorf("%d left of %d", len(left), len(all))
	}
}

func TestFailedRunsAreMissingAndMissTheirGoals(t *testing.T) {
	r := Result{Repetitions: 1, Settings: Settings{Lanes: 2}, Plan: []Scenario{two}}
	wanted := r.jobs()
	for _, j := range wanted {
		run := good(j.scenario, j.repetition, nil)
		run.Kind = j.kind
		r.Runs = append(r.Runs, run)
	}
	if err := r.Check(); err != nil {
		t.Fatal(err)
	}
	for n, j := range wanted {
		r.Runs[n].Failed = "no disk"
		if left := r.jobs(); len(left) != 1 || left[0].kind != j.kind {
			t.Errorf("%s failed: %+v are left", j.kind, left)
		}
		err := r.Check()
		if err == nil || !strings.Contains(err.Error(), "1 runs are missing or failed") {
			t.Errorf("%s failed: %v", j.kind, err)
		}
		if fair := err != nil && strings.Contains(err.Error(), "the fair disk was not measured"); fair != (j.kind == FairDisk) {
			t.Errorf("%s failed: %v", j.kind, err)
		}
		page, reportErr := r.Report()
		if reportErr != nil {
			t.Fatal(reportErr)
		}
		verdict := "No run of 1 missed a goal."
		if j.kind == Judged {
			verdict = "**1 of 1 runs missed a goal**"
		}
		if !strings.HasPrefix(page.Lead[0], verdict) || len(page.Tables[1].Rows) != 1 || strings.Contains(string(page.Markdown("x", "x.svg")), "NaN") {
			t.Errorf("%s failed: %q, %+v", j.kind, page.Lead[0], page.Tables[1])
		}
		r.Runs[n].Failed = ""
	}
}

func TestOnlyWhatWasMadeAlikeIsContinued(t *testing.T) {
	o := Full
	o.Lanes = 2
	before, err := Begin(o)
	if err != nil {
		t.Fatal(err)
	}
	before.Runs = []Run{good(before.Plan[0], 1, nil), good(before.Plan[1], 1, nil), good(before.Plan[2], 1, func(run *Run) { run.Failed = "no disk" })}
	o.Before = &before
	got, err := Begin(o)
	if err != nil || len(got.Runs) != 2 || got.Repetitions != Full.Repetitions {
		t.Fatalf("%+v, %v", got.Runs, err)
	}
	// The run that failed and is repeated stays on the page, also when the result is continued again.
	got.Runs = append(got.Runs, good(got.Plan[2], 1, nil))
	o.Before = &got
	if got, err = Begin(o); err != nil || len(got.Runs) != 3 {
		t.Fatalf("%+v, %v", got.Runs, err)
	}
	want := "**Runs that failed and were repeated:** " + before.Plan[2].Name + " (judged, run 1): no disk."
	if page, err := got.Report(); err != nil || !strings.Contains(page.Lead[0], want) {
		t.Errorf("%v, %v; want %q", page.Lead, err, want)
	}
	o.Before = &before
	yesterday := before
	yesterday.Host.Measured = "2026-11-21"
	later := o
	later.Before = &yesterday
	if got, err := Begin(later); err != nil || got.Host.Measured != report.ThisHost().Measured {
		t.Errorf("on another day: %+v, %v", got.Host, err)
	}
	more := o
	more.Repetitions = 25
	if got, err := Begin(more); err != nil || got.Repetitions != 25 {
		t.Errorf("more repetitions: %d, %v", got.Repetitions, err)
	}
	for name, change := range map[string]func(*Options, *Result){
		"longer phases":          func(o *Options, _ *Result) { o.ControlledSeconds++ },
		"more lanes":             func(o *Options, _ *Result) { o.Lanes++ },
		"another host":           func(_ *Options, r *Result) { r.Host.Kernel += "x" },
		"another storm":          func(_ *Options, r *Result) { r.Plan[0].Actors[2].ChangesPerSecond++ },
		"another disk":           func(_ *Options, r *Result) { r.Plan[3].Parameters.FullStrokeSeekSeconds *= 2 },
		"no scenarios":           func(_ *Options, r *Result) { r.Plan = nil },
		"scenarios that are not": func(_ *Options, r *Result) { r.Plan[0].Name = "paper" },
		"a wrong name":           func(o *Options, _ *Result) { o.Only = []string{"paper"} },
	} {
		changed, result := o, before
		result.Plan = o.plan()
		result.Host = report.ThisHost()
		changed.Before = &result
		change(&changed, &result)
		if _, err := Begin(changed); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	part := before
	part.Plan = before.Plan[:1]
	further := o
	further.Before, further.Only = &part, []string{before.Plan[3].Name}
	if got, err := Begin(further); err != nil || len(got.Plan) != 2 || got.Plan[1].Name != before.Plan[3].Name {
		t.Errorf("one more scenario: %d, %v", len(got.Plan), err)
	}
	// Only one anew: its runs are gone, the others are not.
	anew := o
	anew.Only, anew.Anew = []string{before.Plan[1].Name}, true
	got, err = Begin(anew)
	if err != nil || len(got.Runs) != 1 || got.Runs[0].Scenario != before.Plan[0].Name || len(before.Runs) != 3 {
		t.Errorf("%+v, %v", got.Runs, err)
	}
}

func TestRecordingsHaveNamesForFiles(t *testing.T) {
	if got := fileName("3 readers, depth 8, storm, BFQ default"); got != "3-readers-depth-8-storm-bfq-default" {
		t.Error(got)
	}
}

func TestTimeLeftIsThatOfTheLanes(t *testing.T) {
	m := measuring{Options: Options{Settings: Settings{Lanes: 4}}, left: 8, ended: 2, took: 4 * time.Minute}
	if line := m.line(good(two, 1, nil)); !strings.Contains(line, "8 runs left, about 4m0s") {
		t.Error(line)
	}
}
