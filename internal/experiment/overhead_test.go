package experiment

import (
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/needs"
	"github.com/daybook-project/daybook/internal/workload"
)

// buildDaybook compiles the daemon that is measured.
func buildDaybook(t *testing.T) string {
	t.Helper()
	tool := needs.Tool(t, "go")
	program := filepath.Join(t.TempDir(), "daybook")
	if output, err := exec.Command(tool, "build", "-o", program, "github.com/daybook-project/daybook/cmd/daybook").CombinedOutput(); err != nil {
		t.Fatalf("cannot build daybook: %v: %s", err, output)
	}
	return program
}

// What the rates are is no matter of a test; that each operation caused the
// events that it must cause is.
func TestOverheadSeesEveryOperationAndItsEvents(t *testing.T) {
	lab := testLab(t)
	o, err := lab.RunOverhead(t.Context(), OverheadOptions{Program: buildDaybook(t), Pairs: 2, Scale: 50})
	if err != nil {
		t.Fatal(err)
	}
	events := make(map[[2]string]float64)
	for _, p := range o.Programs {
		events[[2]string{p.Operation, p.Program}] = p.Events
	}
	for _, row := range o.Rows {
		t.Logf("%+v", row)
		if row.SecondsWith <= 0 || row.SecondsWithout <= 0 || row.Low > row.Ratio || row.Ratio > row.High {
			t.Errorf("%s: %+v", row.Operation, row)
		}
		if events[[2]string{row.Operation, "handle_stats"}] < 1 {
			t.Errorf("%s stops %g handles a call; want at least one", row.Operation, events[[2]string{row.Operation, "handle_stats"}])
		}
	}
	if len(o.Rows) != len(overheadLoads) {
		t.Errorf("%d rows", len(o.Rows))
	}
	// Not exactly 1: programs are counted on the whole host.
	if commits := events[[2]string{workload.AppendFsync, "run_stats"}]; commits < 0.9 {
		t.Errorf("%g commits an fsync; want about one", commits)
	}
	if _, err := o.Report(); err != nil {
		t.Error(err)
	}
}

func TestScaleSeesEveryCgroupActive(t *testing.T) {
	lab := testLab(t)
	s, err := lab.RunScale(t.Context(), ScaleOptions{Program: buildDaybook(t), Cgroups: 100, Interval: 3 * time.Second, Intervals: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", s)
	if s.Active != 100 {
		t.Errorf("%d of 100 cgroups did I/O", s.Active)
	}
	if s.CPUSeconds <= 0 || s.MapBytes == 0 {
		t.Errorf("not measured: %+v", s)
	}
	if err := s.checkMemory(); err != nil {
		t.Error(err)
	}
}

func TestMedianAndItsRange(t *testing.T) {
	if got := median([]float64{3, 1, 2}); got != 2 {
		t.Errorf("median of three is %g", got)
	}
	if got := median([]float64{4, 1, 2, 3}); got != 2.5 {
		t.Errorf("median of four is %g", got)
	}
	if low, high := bootstrap([]float64{1, 1, 1}); low != 1 || high != 1 {
		t.Errorf("equal values have the range %g to %g", low, high)
	}
	var values []float64
	for i := range 101 {
		values = append(values, float64(i))
	}
	low, high := bootstrap(values)
	// The median of 101 even values has a standard error of about 5.
	if low < 30 || low > 47 || high < 53 || high > 70 {
		t.Errorf("0 to 100 have the range %g to %g; want about 40 to 60", low, high)
	}
	if again, _ := bootstrap(values); again != low {
		t.Error("the same values have another range")
	}
}

func TestOverheadIsOnlyBlamedForCertain(t *testing.T) {
	noisy := Overhead{Rows: []OverheadRow{{Operation: "mkdir", Bounded: true, Ratio: 0.95, Low: 0.8, High: 1.01}}}
	if err := noisy.Check(); err != nil {
		t.Errorf("a range that holds the bound: %v", err)
	}
	slow := Overhead{Rows: []OverheadRow{{Operation: "mkdir", Bounded: true, Ratio: 0.95, Low: 0.94, High: 0.96}}}
	if slow.Check() == nil {
		t.Error("5 % slower for certain is good enough")
	}
}
