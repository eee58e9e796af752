package node

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// day is when a measurement began.
var day = time.Date(2026, 11, 27, 9, 0, 0, 0, time.UTC)

func TestEachMissedGoalIsReported(t *testing.T) {
	good := Result{
		Target:    0.7,
		Phases:    []Phase{{Load: Database, Setting: Controlled, Share: 0.1}, {Load: Writers, Setting: Observed, Share: 0.5}, {Load: Writers, Setting: Controlled, Share: 0.703}},
		Cost:      &Cost{Pods: 200, Processor: 0.008, PeakBytes: 60 << 20},
		Deletions: &Deletions{Count: 500, LongestSeconds: 4},
	}
	if err := good.Check(); err != nil {
		t.Error(err)
	}
	page, err := good.Report()
	if err != nil || len(page.Tables) != 2 || strings.Contains(string(page.Markdown("x", "")), "**no**") {
		t.Errorf("%+v, %v", page, err)
	}
	busy := good
	busy.Busy = true
	if page, err := busy.Report(); err != nil || !strings.Contains(string(page.Markdown("x", "")), "host was busy") {
		t.Errorf("a busy host is not on the page: %v", err)
	}
	for want, spoil := range map[string]func(*Result){
		"-0.600 points off":     func(r *Result) { r.Phases = []Phase{{Load: Writers, Setting: Controlled, Share: 0.694}} },
		"1.20 % of a processor": func(r *Result) { r.Cost = &Cost{Pods: 200, Processor: 0.012} },
		"101 MiB":               func(r *Result) { r.Cost = &Cost{Pods: 200, PeakBytes: 101 << 20} },
		"for 61.0 s":            func(r *Result) { r.Deletions = &Deletions{Count: 500, LongestSeconds: 61} },
	} {
		bad := good
		spoil(&bad)
		if err := bad.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
		if page, err := bad.Report(); err != nil || !strings.Contains(string(page.Markdown("x", "")), "**no**") {
			t.Errorf("%s: the page has no missed goal: %v", want, err)
		}
	}
	if _, err := (Result{}).Report(); err == nil {
		t.Error("a page of nothing")
	}
}

// A share that is measured in windows is reported with all of them, and with its standard error.
func TestThePageHasEachWindowOfAPhase(t *testing.T) {
	p := Phase{Load: Writers, Setting: Controlled, Seconds: 180, Share: 0.7, Windows: []Window{{60, 0.697, 0.6969}, {60, 0.7, 0.7}, {60, 0.703, 0.7031}}}
	if off, ok := p.standardError(); !ok || math.Abs(off-0.003/math.Sqrt(3)) > 1e-9 {
		t.Errorf("%v, %v", off, ok)
	}
	page, err := Result{Target: 0.7, Phases: []Phase{p}}.Report()
	if err != nil {
		t.Fatal(err)
	}
	text := string(page.Markdown("x", ""))
	for _, want := range []string{"+0.000 points, in 180 s (standard error 0.173; windows of 60 s: -0.300 to +0.300)", "| 1 | 60 | 69.70 | -0.30 | 69.69 |", "| 3 | 60 | 70.30 | +0.30 | 70.31 |"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q:\n%s", want, text)
		}
	}
	p.Windows = nil
	if page, err := (Result{Target: 0.7, Phases: []Phase{p}}).Report(); err != nil || strings.Contains(string(page.Markdown("x", "")), "standard error") {
		t.Errorf("a phase of one window has a standard error: %v", err)
	}
}

// A database takes a small share of the bytes whatever control does: what it gets done says whether
// control helps or harms it.
func TestControlThatMakesTheDatabaseSlowerMissesAGoal(t *testing.T) {
	around := func(rate float64) (each []float64) {
		for n := range 60 {
			each = append(each, rate+float64(n/10%2)) // two rates, of 10 s each
		}
		return each
	}
	result := func(observed, placed, controlled float64) Result {
		return Result{Target: 0.7, Phases: []Phase{{Load: Database, Setting: Observed, Measurement: day, Transactions: around(observed)},
			{Load: Database, Setting: Placed, Measurement: day, Transactions: around(placed)}, {Load: Database, Setting: Controlled, Measurement: day, Transactions: around(controlled)}}}
	}
	for _, test := range []struct {
		observed, placed, controlled float64
		missed                       string
	}{
		{22, 40, 44, ""}, {22, 40, 39.9, ""}, {44, 40, 41.9, "2.1 transactions per second less than observed"},
		{22, 44, 40, "4.0 transactions per second less than placed"}, {80, 80, 8, "72.0 transactions per second less than placed"},
	} {
		r := result(test.observed, test.placed, test.controlled)
		err := r.Check()
		if (err == nil) != (test.missed == "") || err != nil && !strings.Contains(err.Error(), test.missed) {
			t.Errorf("%+v: %v", test, err)
		}
		page, err := r.Report()
		if text := string(page.Markdown("x", "")); err != nil || strings.Contains(text, "**no**") != (test.missed != "") {
			t.Errorf("%+v: %v\n%s", test, err, text)
		}
	}
}

// Without the transactions of 20 s in both settings nothing is known of the database: that is no met goal.
func TestTooFewTransactionsMissAGoal(t *testing.T) {
	long := make([]float64, 20)
	for n := range long {
		long[n] = 40
	}
	for name, test := range map[string]struct {
		observed, controlled []float64
		known                bool
	}{
		"20 s of both":    {long, long, true},
		"none controlled": {long, nil, false},
		"none observed":   {nil, long, false},
		"19 s controlled": {long, long[1:], false},
		"none of either":  {nil, nil, false},
	} {
		r := Result{Target: 0.7, Phases: []Phase{{Load: Database, Setting: Observed, Measurement: day, Transactions: test.observed}, {Load: Database, Setting: Controlled, Measurement: day, Transactions: test.controlled}}}
		if err := r.Check(); (err == nil) != test.known || err != nil && err.Error() != "MariaDB under control cannot be compared with observed: want its transactions in at least 20 s of each" {
			t.Errorf("%s: %v", name, err)
		}
		page, err := r.Report()
		if text := string(page.Markdown("x", "")); err != nil || strings.Contains(text, "| want its transactions in at least 20 s of each | no verdict |") == test.known {
			t.Errorf("%s: %v\n%s", name, err, text)
		}
	}
}

// Phases of two runs have no verdict, nor has a load whose variation hides what control costs.
func TestWhatCannotBeComparedHasNoVerdict(t *testing.T) {
	steady, erratic := make([]float64, 60), make([]float64, 60)
	for n := range steady {
		steady[n], erratic[n] = 90, float64(20+n/10*25)
	}
	phases := func(controlled []float64, at time.Time) Result {
		return Result{Target: 0.7, Phases: []Phase{{Load: Database, Setting: Placed, Measurement: day, Transactions: steady}, {Load: Database, Setting: Controlled, Measurement: at, Transactions: controlled}}}
	}
	if err := phases(steady, day).Check(); err != nil {
		t.Errorf("as many in one run: %v", err)
	}
	for want, r := range map[string]Result{
		"not measured in one run": phases(steady, day.AddDate(0, 0, 3)),
		"chance explains more than 5 % of 90.0 transactions per second": phases(erratic, day),
	} {
		if err := r.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
		page, err := r.Report()
		if text := string(page.Markdown("x", "")); err != nil || !strings.Contains(text, "| "+want+" | no verdict |") {
			t.Errorf("%v; want %q in\n%s", err, want, text)
		}
	}
	// Figures of an earlier form of the file do not have the time.
	old := phases(steady, time.Time{})
	old.Phases[0].Measurement, old.Host.Measured = time.Time{}, "2026-11-20"
	if err := old.Check(); err == nil || !strings.Contains(err.Error(), "not measured in one run") {
		t.Errorf("when it was measured is not known: %v", err)
	}
	if page, err := old.Report(); err != nil || page.Host.Measured != "2026-11-20" {
		t.Errorf("measured on %q, %v", page.Host.Measured, err)
	}
	page, err := phases(steady, day.AddDate(0, 0, 3)).Report()
	if text := string(page.Markdown("x", "")); err != nil || !strings.Contains(text, "Measured on 2026-11-27 and, in part, on 2026-11-30.") {
		t.Errorf("%v; want both days in\n%s", err, text)
	}
}

func TestFiguresOfAnotherPartAreKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bench", "k8s.json")
	if err := Update(path, func(r *Result) { r.Cost = &Cost{Pods: 200} }); err != nil {
		t.Fatal(err)
	}
	var last Result
	if err := Update(path, func(r *Result) { r.Deletions = &Deletions{Count: 500}; last = *r }); err != nil || last.Cost == nil || last.Cost.Pods != 200 {
		t.Errorf("%+v, %v", last, err)
	}
	// The page names one host.
	if err := Update(path, func(r *Result) { r.Host.Kernel = "x" }); err != nil {
		t.Fatal(err)
	}
	if err := Update(path, func(r *Result) { r.Cost = &Cost{Pods: 300}; last = *r }); err != nil || last.Deletions != nil || last.Host.Kernel == "x" {
		t.Errorf("%+v, %v; want no figures of another host", last, err)
	}
	if old, err := os.ReadFile(path + ".old"); err != nil || !strings.Contains(string(old), `"count": 500`) {
		t.Errorf("%s, %v; want the figures of the other host", old, err)
	}
}
