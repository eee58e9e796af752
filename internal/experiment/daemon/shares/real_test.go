package shares

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/disksim"
	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/experiment/fixture/fixturetest"
	"github.com/daybook-project/daybook/internal/needs"
)

// A run on BFQ and one by limits, beside each other, and what they leave. How good the
// shares are is no matter of a test that takes seconds.
func TestRealRunsInTwoLanesHaveFiguresAndLeaveNothing(t *testing.T) {
	needs.Tool(t, "fio")
	lab := fixturetest.New(t)
	o := Quick
	o.Lanes, o.Recordings = 2, t.TempDir()
	o.Say = func(line string) { t.Log(line) }
	problems := []string{"not measured"}
	// On a busy host a container may do nothing in a short interval.
	for tries := 0; len(problems) > 0 && tries < 5; tries++ {
		if tries > 0 {
			t.Logf("again, with twice the time, after:\n%s", strings.Join(problems, "\n"))
			for _, seconds := range []*float64{&o.UncontrolledSeconds, &o.ControlledSeconds, &o.IntervalSeconds, &o.WarmUpSeconds} {
				*seconds *= 2
			}
		}
		problems = runInTwoLanes(t, lab, o)
	}
	for _, problem := range problems {
		t.Error(problem)
	}
	disks, err := disksim.List("")
	if err != nil {
		t.Fatal(err)
	}
	groups, err := filepath.Glob(lab.Tree.Root() + "/daybook-experiment-*")
	if err != nil {
		t.Fatal(err)
	}
	for _, disk := range disks {
		if !strings.HasPrefix(disk.Name, "experiment-") {
			continue // not a fixture's
		}
		groups = append(groups, disk.Name)
	}
	for _, name := range groups {
		owner := name[strings.LastIndex(name, "-")+1:]
		if _, err := os.Stat("/proc/" + owner); err != nil || owner == strconv.Itoa(os.Getpid()) {
			t.Errorf("%s was left", name)
		}
	}
}

// runInTwoLanes makes the runs and lists what is wrong with their figures.
func runInTwoLanes(t *testing.T, lab fixture.Lab, o Options) (problems []string) {
	t.Helper()
	fair := Conditions{Depth: 32, Load: Syncers, Containers: 3, Storm: true, Divider: BFQRecommended}
	limits := fair
	limits.Divider = MQDeadline
	result := Result{Settings: o.Settings, Repetitions: 1, Plan: []Scenario{o.scenario(fair), o.scenario(limits)}}
	var saved int
	o.Save = func(r Result) error {
		saved = len(r.Runs)
		return nil
	}
	result, err := measure(t.Context(), lab, o, result, []job{{Judged, result.Plan[0], 1}, {Judged, result.Plan[1], 1}})
	if err != nil {
		t.Fatal(err)
	}
	if saved != 2 || len(result.Runs) != 2 {
		t.Fatalf("%d runs, %d saved; want 2", len(result.Runs), saved)
	}
	for _, run := range result.Runs {
		fail := func(format string, values ...any) {
			problems = append(problems, run.Scenario+": "+fmt.Sprintf(format, values...))
		}
		if run.Failed != "" {
			fail("%s", run.Failed)
			continue
		}
		for name, f := range map[string]PhaseFigures{"uncontrolled": run.Uncontrolled, "controlled": run.Controlled} {
			if f.BytesPerSecond <= 0 || len(f.Shares) != 3 || f.Busy <= 0 || f.WorstDeviation < f.MeanError/2 {
				fail("%s: %+v", name, f)
			}
		}
		if n := len(run.Controlled.IntervalShares); n != int(o.ControlledSeconds/o.IntervalSeconds) || run.CPUSeconds <= 0 {
			fail("%d intervals, %.1f s of processor time", n, run.CPUSeconds)
		}
		if limited := run.Controlled.LimitedIntervals; run.Scenario == limits.name() && limited == 0 || run.Uncontrolled.LimitedIntervals > 0 {
			fail("limits in %d intervals", limited)
		}
		if run.Recording != "" {
			checkRecording(t, run, fail)
		}
	}
	return problems
}

// checkRecording reads what `daybook replay` would.
func checkRecording(t *testing.T, run Run, fail func(string, ...any)) {
	t.Helper()
	reader, err := account.OpenSeries(run.Recording)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	samples := 0
	for ; ; samples++ {
		sample, err := reader.Next(t.Context())
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if sample.Container("A").Bytes() == 0 {
			fail("%s: A did nothing in %v", run.Recording, sample)
		}
	}
	if samples != len(run.Controlled.IntervalShares) {
		fail("%s has %d samples; want %d", run.Recording, samples, len(run.Controlled.IntervalShares))
	}
}
