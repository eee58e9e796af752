package shares

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/experiment/report"
	"github.com/daybook-project/daybook/internal/figure"
)

// maxListed is the maximum number of misses on the page; the others are in the
// result.
const maxListed = 40

// Report returns the result as a page.
func (r Result) Report() (report.Report, error) {
	var summaries []Summary
	judged, missed := 0, 0
	for _, s := range r.Plan {
		if sum, ok := r.summarize(s); ok {
			summaries = append(summaries, sum)
			judged, missed = judged+sum.Runs, missed+sum.Missed
		}
	}
	page := report.Report{
		Title: "Shares of a disk in many runs", Host: r.Host,
		Lead: slices.Concat([]string{r.verdict(judged, missed), goalsText}, r.conditions()),
	}
	page.Tables = append(page.Tables, r.missedTable())
	page.Tables = append(page.Tables, errorsTable(summaries), throughputTable(summaries), hostTable(summaries))
	if table, ok := r.aloneTable(); ok {
		page.Tables = append(page.Tables, table)
	}
	var err error
	page.Picture, err = r.picture(summaries)
	return page, err
}

// verdict is the first sentence.
func (r Result) verdict(judged, missed int) string {
	text := fmt.Sprintf("No run of %d missed a goal.", judged)
	if missed > 0 {
		text = fmt.Sprintf("**%d of %d runs missed a goal** ([list](#missed-goals)).", missed, judged)
	}
	if all := len(Full.plan()); len(r.Plan) < all {
		text += fmt.Sprintf(" Only %d of %d scenarios were measured.", len(r.Plan), all)
	}
	if left := len(r.jobs()); left > 0 {
		text += fmt.Sprintf(" The measurement is not complete: %d runs are missing or failed.", left)
	}
	return text + r.repeated()
}

// repeated names the runs that failed before those that took their place.
func (r Result) repeated() string {
	if len(r.Repeated) == 0 {
		return ""
	}
	var runs []string
	for _, run := range r.Repeated {
		runs = append(runs, fmt.Sprintf("%s (%s, run %d): %s", run.Scenario, run.Kind, run.Repetition, run.Failed))
	}
	return " **Runs that failed and were repeated:** " + strings.Join(runs, "; ") + "."
}

// goalsText explains the goals.
var goalsText = strings.TrimSpace(fmt.Sprintf(`
Containers share a simulated disk by weights, and `+"`daybook control`"+` corrects what they get. The goals are for each
run, not for the mean of the runs. Mean of a minute: each container's share is at most %.0f point off its target.
Intervals: in %.0f %% of the intervals of 5 s all containers are within %.0f points of their targets, and in none is one
more than %.0f points off. The first three intervals do not count: the law finds its weights there. A minute has 12
intervals, so that a run with a single one outside misses the goal. Throughput: at least %.2f of the uncontrolled or the
fair disk's, whichever is greater.`,
	100*goalMeanError, 100*goalWithin, 100*near, 100*goalDeviation, goalThroughput))

// conditions describes the conditions of all runs.
func (r Result) conditions() []string {
	s := r.Settings
	paragraphs := []string{
		fmt.Sprintf("Each run has a disk, a scheduler, an ext4 and cgroups of its own. fio works on one file for each container "+
			"(direct I/O, libaio, requests of 128 KiB). A run has an uncontrolled phase of %.0f s and a controlled one of %.0f s, which begin with the same settings, "+
			"while the loads go on. The uncontrolled phase comes first in odd runs and last in even ones. Shares count charged I/O, journal, in-place metadata and uncharged data.",
			s.UncontrolledSeconds, s.ControlledSeconds),
		fmt.Sprintf("“Storm”: the third container, or the second of two, also makes %d rounds of changes a second: mkdir, create, rename, symlink, unlink, setxattr. "+
			"“With fsync”: each writer calls fsync after %d writes. “Mixed”: a reader, a writer, and one that does both. "+
			"Weights are 700:300, 500:300:200 or 400:300:200:100. The disk: %s.", changesPerSecond, fsyncEvery, base.on(s).DiskText()),
		fmt.Sprintf("“BFQ default”: BFQ's own tunables at the start of each phase, but low_latency=0; with BFQ's low_latency=1 weights are not kept, and control sets it to 0. “BFQ recommended”: %s. "+
			"Control's tunables and actuator are `auto`: it uses weights, sets the recommended tunables if a share is missed, and uses limits if weights do not hold the shares with these. On mq-deadline and none there are no weights: limits hold the shares.",
			fixture.Settings(nil)),
		"“Fair disk”: the throughput of the same load on BFQ with the recommended tunables, uncontrolled (median of 3 runs or more). BFQ divides such a disk by weights, " +
			"so that a scheduler that wastes the disk on seeks is not its own measure. The load is the same, storm included: without it the disk would have other work. " +
			"“Uncontrolled” is the median of all runs of the scenario.",
	}
	if s.Lanes > 1 {
		paragraphs = append(paragraphs, fmt.Sprintf("%d runs were in progress at a time, each on its own disk; [below](#one-run-at-a-time-and-%d) is the effect of that.", s.Lanes, s.Lanes))
	}
	return append(paragraphs, r.when())
}

// on describes a scenario.
func (c Conditions) on(s Settings) Scenario { return s.scenario(c) }

// when lists the days and programs of the measurement.
func (r Result) when() string {
	var days, versions []string
	for _, run := range r.Runs {
		for _, seen := range []struct {
			list *[]string
			text string
		}{{&days, run.Began.Format("2006-01-02")}, {&versions, run.Version}} {
			if seen.text != "" && !slices.Contains(*seen.list, seen.text) {
				*seen.list = append(*seen.list, seen.text)
			}
		}
	}
	text := "Measured on " + strings.Join(days, ", ")
	if len(versions) > 0 {
		text += " with " + strings.Join(versions, ", ")
	}
	return text + "."
}

func (r Result) missedTable() report.Table {
	misses := r.Misses()
	table := report.Table{Title: "Missed goals", Columns: []string{"scenario", "run", "missed", "recording"}}
	for _, m := range misses[:min(len(misses), maxListed)] {
		table.Rows = append(table.Rows, []string{m.Run.Scenario, fmt.Sprint(m.Run.Repetition), m.What, recordingName(m.Run)})
	}
	switch {
	case len(misses) == 0:
		table.Note = "None."
	case len(misses) > maxListed:
		table.Note = fmt.Sprintf("The worst come first. %d more are not listed.", len(misses)-maxListed)
	default:
		table.Note = "The worst come first. `daybook replay` shows a recording, which is in `shares-runs` beside the figures."
	}
	return table
}

// recordingName has no directory, because that differs between machines.
func recordingName(run Run) string {
	if run.Recording == "" {
		return ""
	}
	return filepath.Base(run.Recording)
}

func errorsTable(summaries []Summary) report.Table {
	table := report.Table{
		Title:   "Shares: median and worst run",
		Columns: []string{"scenario", "runs", "that miss", "mean of a minute off by, points", "intervals within 5 points", "worst interval off by, points", "uncontrolled mean off by, points"},
		Note:    "Each cell has the median run and the worst one. A run that failed has no figures, and counts as one that misses.",
	}
	for _, s := range summaries {
		table.Rows = append(table.Rows, []string{
			s.Scenario.Name, fmt.Sprint(s.Runs), fmt.Sprint(s.Missed), s.MeanError.text("%.1f", 100), s.Within.text("%.0f %%", 100),
			s.Deviation.text("%.1f", 100), s.UncontrolledError.text("%.1f", 100),
		})
	}
	return table
}

func throughputTable(summaries []Summary) report.Table {
	table := report.Table{
		Title:   "Throughput: median and worst run",
		Columns: []string{"scenario", "controlled, of the better", "uncontrolled MB/s", "fair disk MB/s"},
	}
	for _, s := range summaries {
		fair := "not measured"
		if s.Fair > 0 {
			fair = fmt.Sprintf("%.1f", s.Fair/1e6)
		}
		table.Rows = append(table.Rows, []string{s.Scenario.Name, s.Throughput.text("%.2f", 1), megabytes(s.Uncontrolled), fair})
	}
	return table
}

func hostTable(summaries []Summary) report.Table {
	table := report.Table{
		Title:   "Processors and actuators: median and worst run",
		Columns: []string{"scenario", "processors busy", "stolen by the host", "a run's processor time, s", "runs with limits", "runs in which control says that weights do not hold the shares"},
		Note:    "A run on a busy machine says little about the law, but stays in the figures.",
	}
	for _, s := range summaries {
		table.Rows = append(table.Rows, []string{
			s.Scenario.Name, s.Busy.text("%.0f %%", 100), s.Stolen.text("%.1f %%", 100), s.CPUSeconds.text("%.0f", 1), fmt.Sprint(s.Limited), fmt.Sprint(s.Ignored),
		})
	}
	return table
}

// aloneTable compares runs alone with those in lanes.
func (r Result) aloneTable() (report.Table, bool) {
	table := report.Table{
		Title:   fmt.Sprintf("One run at a time, and %d", r.Settings.Lanes),
		Columns: []string{"", "runs", "mean of a minute off by, points", "worst interval off by, points", "controlled MB/s", "uncontrolled MB/s", "processors busy"},
		Note:    "Scenario: " + aloneConditions().name() + ". Each cell has the median run and the worst one.",
	}
	scenario := r.Settings.scenario(aloneConditions())
	for _, row := range []struct {
		kind Kind
		name string
	}{{Alone, "one at a time"}, {Judged, fmt.Sprintf("%d at a time", r.Settings.Lanes)}} {
		s := r.summarizeRuns(scenario, r.runsOf(row.kind, scenario.Name))
		if s.Runs == 0 {
			return table, false
		}
		table.Rows = append(table.Rows, []string{
			row.name, fmt.Sprint(s.Runs), s.MeanError.text("%.1f", 100), s.Deviation.text("%.1f", 100),
			s.Controlled.text("%.1f", 1e-6), megabytes(s.Uncontrolled), s.Busy.text("%.0f %%", 100),
		})
	}
	return table, true
}

// noFigure is in the tables for scenarios whose runs all failed.
const noFigure = "–"

// megabytes converts bytes.
func megabytes(bytes float64) string {
	if math.IsNaN(bytes) {
		return noFigure
	}
	return fmt.Sprintf("%.1f", bytes/1e6)
}

// text returns "median, worst".
func (f Figure) text(format string, unit float64) string {
	if math.IsNaN(f.Median) {
		return noFigure
	}
	return fmt.Sprintf(format+", "+format, unit*f.Median, unit*f.Worst)
}

// picture has a dot for each run.
func (r Result) picture(summaries []Summary) (figure.SVG, error) {
	if len(summaries) == 0 {
		return nil, nil
	}
	runs := figure.Runs{Title: "How far shares were off their targets under control, in each run", MeanLimit: goalMeanError, WorstLimit: goalDeviation}
	for _, s := range summaries {
		row := figure.RunsRow{Scenario: s.Scenario.Name}
		for _, run := range r.runsOf(Judged, s.Scenario.Name) {
			row.Mean = append(row.Mean, run.Controlled.MeanError)
			row.Worst = append(row.Worst, run.Controlled.WorstDeviation)
		}
		runs.Rows = append(runs.Rows, row)
	}
	return runs.SVG()
}
