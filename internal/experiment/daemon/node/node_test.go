package node

import (
	"path/filepath"
	"strings"
	"testing"
)

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

func TestFiguresOfAnotherPartAreKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bench", "k8s.json")
	if err := Update(path, func(r *Result) { r.Cost = &Cost{Pods: 200} }); err != nil {
		t.Fatal(err)
	}
	var last Result
	if err := Update(path, func(r *Result) { r.Deletions = &Deletions{Count: 500}; last = *r }); err != nil || last.Cost == nil || last.Cost.Pods != 200 {
		t.Errorf("%+v, %v", last, err)
	}
}
