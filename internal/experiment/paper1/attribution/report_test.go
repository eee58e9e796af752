package attribution

import (
	"bytes"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/experiment/report"
)

func example() Result {
	return Result{
		Alone: []AloneRow{{Operation: "mkdir", Calls: 1000, TruthBytes: 4096 << 10, HandlesBytes: 4096 << 10, SyscallsBytes: 5 << 20, SyscallsError: 0.25}},
		Shared: []SharedRun{{InTurns: true, TruthBytes: 2 << 20, HandlesBytes: 2 << 20, Parts: []Part{
			{Name: "A", Mix: "mkdir", TruthBytes: 1 << 20, HandlesBytes: 1 << 20, Forced: 3},
			{Name: "B", Mix: "untar", TruthBytes: 1 << 20, HandlesBytes: 1 << 20},
		}}},
		Whole: WholeDisk{DiskBytes: 1 << 20, Charged: []ChargedCompare{{Name: "A", Mix: "direct read", ReadBytes: 100, KernelReadBytes: 100, Counter: "file"}}},
		Host:  report.Host{Kernel: "6.18", Architecture: "amd64", CPUs: 2},
	}
}

func TestReportIsATextAndAPage(t *testing.T) {
	r, err := example().Report()
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	page := string(r.Markdown("make bench-attribution", "attribution.svg"))
	for _, want := range []string{"mkdir", "4096.0", "+25.00 %", "2 containers in turns", "B: untar"} {
		if !strings.Contains(text.String(), want) || !strings.Contains(page, want) {
			t.Errorf("%q is missing in\n%s\nor in\n%s", want, text.String(), page)
		}
	}
	for _, want := range []string{"make bench-attribution", "(attribution.svg)", "Kernel 6.18, amd64, 2 CPUs"} {
		if !strings.Contains(page, want) {
			t.Errorf("%q is missing in\n%s", want, page)
		}
	}
	for _, table := range r.Tables {
		for _, row := range table.Rows {
			if len(row) != len(table.Columns) {
				t.Errorf("%s: %d cells in %q, %d columns", table.Title, len(row), row, len(table.Columns))
			}
		}
	}
}

func TestEachBoundOfTheAttributionIsChecked(t *testing.T) {
	if err := example().Check(); err != nil {
		t.Fatalf("a result within the bounds: %v", err)
	}
	for name, spoil := range map[string]func(*Result){
		"alone":       func(a *Result) { a.Alone[0].HandlesError = -0.011 },
		"sum":         func(a *Result) { a.Shared[0].HandlesError = 0.011 },
		"others":      func(a *Result) { a.Shared[0].OthersShare = 0.021 },
		"in turns":    func(a *Result) { a.Shared[0].Parts[1].HandlesError = 0.021 },
		"charged":     func(a *Result) { a.Whole.Charged[0].ReadBytes = 102 },
		"unaccounted": func(a *Result) { a.Whole.UnaccountedBytes = -20_000 },
	} {
		a := example()
		spoil(&a)
		if a.Check() == nil {
			t.Errorf("%s: no bound was exceeded", name)
		}
	}
}
