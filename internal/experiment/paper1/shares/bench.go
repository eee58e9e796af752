package shares

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/daybook-project/daybook/internal/control/law"
	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/experiment/report"
	"github.com/daybook-project/daybook/internal/experiment/scenario"
)

// Options configure bench-shares --paper.
type Options struct {
	Seconds  float64
	Interval time.Duration
	// Scenarios is the number of scenarios to run; 0 means all.
	Scenarios int
	// Only, if not empty, is the name of the one scenario to run; the others
	// are taken over from Before, a result of the same benchmark.
	Only   string
	Before Result
}

// Full is the benchmark, Quick a short run that tests it.
var (
	Full  = Options{Seconds: 60, Interval: 5 * time.Second}
	Quick = Options{Seconds: 20, Interval: 5 * time.Second, Scenarios: 1}
)

// Bounds of a controlled phase.
const (
	maxMeanError  = 0.02 // of each container's mean share, absolute
	minWithin     = 0.9  // of the intervals after the third within five points
	minThroughput = 0.95 // of the uncontrolled phase's
)

// Result is the result of bench-shares --paper.
type Result struct {
	Host      report.Host `json:"host"`
	Scenarios []Outcome   `json:"scenarios"`
}

// Outcome is one scenario under each law.
type Outcome struct {
	scenario.Summary
	// Bounded means that Check applies the bounds. The scenario with BFQ's
	// own slices is for comparison only.
	Bounded bool `json:"bounded"`
	// Measured is the time of its end.
	Measured time.Time `json:"measured"`
	drawing  Drawing
}

// laws in the order of their runs. They follow each other within each scenario,
// so that changes on the host affect all of them.
var laws = []string{scenario.Uncontrolled, law.PaperLaw, law.FeedbackLaw}

// Bench runs every scenario uncontrolled and under both laws.
func Bench(ctx context.Context, l fixture.Lab, o Options) (Result, error) {
	result := Result{Host: report.ThisHost()}
	scenarios := append(Scenarios(o.Seconds, o.Interval), DefaultSlices(o.Seconds, o.Interval))
	if o.Scenarios > 0 {
		scenarios = scenarios[:o.Scenarios]
	}
	if o.Only != "" && !slices.ContainsFunc(scenarios, func(s scenario.Scenario) bool { return s.Name == o.Only }) {
		return result, fmt.Errorf("no scenario %q: choose one of %s", o.Only, names(scenarios))
	}
	if o.Only != "" && len(o.Before.Scenarios) > 0 {
		if err := report.SameHost(o.Before.Host, result.Host); err != nil {
			return result, err
		}
	}
	for _, s := range scenarios {
		if o.Only != "" && s.Name != o.Only {
			n := slices.IndexFunc(o.Before.Scenarios, func(kept Outcome) bool { return kept.Scenario == s.Name })
			if n >= 0 {
				result.Scenarios = append(result.Scenarios, o.Before.Scenarios[n])
			}
			continue
		}
		var phases []scenario.Phase
		for _, law := range laws {
			l.Say(s.Name + ", " + law)
			phase, err := s.Run(ctx, l, law)
			if err != nil {
				return result, fmt.Errorf("scenario %s, %s: %w", s.Name, law, err)
			}
			phases = append(phases, phase)
		}
		drawing, err := Draw(s, phases, "make bench-shares BENCHFLAGS=--paper")
		if err != nil {
			return result, err
		}
		result.Scenarios = append(result.Scenarios, Outcome{Summary: s.Summarize(phases), Bounded: s.Tunables == nil, Measured: time.Now().UTC().Truncate(time.Second), drawing: drawing})
	}
	return result, nil
}

func names(scenarios []scenario.Scenario) string {
	var list []string
	for _, s := range scenarios {
		list = append(list, s.Name)
	}
	return strings.Join(list, ", ")
}

// Figures returns a picture for each measured scenario, by file name.
func (r Result) Figures() map[string][]byte {
	figures := make(map[string][]byte)
	for _, s := range r.Scenarios {
		if s.drawing.SVG != nil {
			figures[figureName(s.Scenario)] = s.drawing.SVG
		}
	}
	return figures
}

func figureName(scenario string) string {
	return "shares-" + strings.NewReplacer(":", "-", " ", "-").Replace(scenario) + ".svg"
}

// Report returns the result as a report.
func (r Result) Report() (report.Report, error) {
	page := report.Report{
		Title: "Shares of a disk in the scenarios of paper 1",
		Lead: []string{
			"Containers read files of their own from a simulated disk, and some make directories besides. " +
				"Each scenario is run uncontrolled, then under the law of paper 1 and under Daybook's own, on a new disk each time, " +
				"with the same scheduler settings (" + fixture.Settings(nil) + "; “default slices”: low_latency=0 only). “fsync”: the makers of metadata sync once a second, as the paper's had to; else nobody ever syncs.",
			"Shares count charged I/O, journal, in-place metadata and uncharged data. “Within 5 points” is the part of the 5 s intervals after the third " +
				"in which the share was within five points of its target. Throughput is the disk's, relative to the uncontrolled phase.",
		},
		Host: r.Host,
	}
	for _, s := range r.Scenarios {
		page.Lead = append(page.Lead, fmt.Sprintf("![%s](%s)", s.Scenario, figureName(s.Scenario)))
		table := report.Table{
			Title:   s.Scenario,
			Note:    s.measured(),
			Columns: []string{"container", "target", "share", "off by", "within 5 points", "charged MB", "journal MB", "metadata MB", "directories/s"},
		}
		base := s.Phases[0]
		for _, phase := range s.Phases {
			name := phase.Name
			if phase.Law != "" {
				name = phase.Law + " law"
			}
			table.Rows = append(table.Rows, []string{
				fmt.Sprintf("**%s**, throughput %.3f", name, phase.Throughput()/base.Throughput()), "", "", "", "", "", "", "", "",
			})
			for _, c := range phase.Containers {
				table.Rows = append(table.Rows, []string{
					c.Name, fmt.Sprintf("%.1f %%", 100*c.TargetShare), fmt.Sprintf("%.2f %%", 100*c.Share),
					fmt.Sprintf("%+.2f", 100*(c.Share-c.TargetShare)), fmt.Sprintf("%.0f %%", 100*c.WithinFivePoints),
					report.Megabytes(c.ChargedBytes), report.Megabytes(c.JournalBytes), report.Megabytes(c.MetadataBytes),
					fmt.Sprintf("%.0f", float64(c.Directories)/phase.Seconds),
				})
			}
		}
		page.Tables = append(page.Tables, table)
	}
	return page, nil
}

// measured returns the time as text: the scenarios of a page may be of several runs.
func (s Outcome) measured() string {
	if s.Measured.IsZero() {
		return ""
	}
	return "Measured " + s.Measured.Format("2006-01-02 15:04 UTC") + "."
}

// Check returns an error for each phase of the feedback law outside the bounds.
func (r Result) Check() error {
	var errs []error
	for _, s := range r.Scenarios {
		for _, phase := range s.Phases {
			if phase.Law != law.FeedbackLaw || !s.Bounded {
				continue
			}
			for _, c := range phase.Containers {
				if off := c.Share - c.TargetShare; math.Abs(off) > maxMeanError {
					errs = append(errs, fmt.Errorf("%s: %s is off its target by %+.2f points of %.0f allowed", s.Scenario, c.Name, 100*off, 100*maxMeanError))
				}
				if c.WithinFivePoints < minWithin {
					errs = append(errs, fmt.Errorf("%s: %s is within five points in %.0f %% of the intervals, not %.0f %%", s.Scenario, c.Name, 100*c.WithinFivePoints, 100*minWithin))
				}
			}
			if ratio := phase.Throughput() / s.Phases[0].Throughput(); ratio < minThroughput {
				errs = append(errs, fmt.Errorf("%s: throughput is %.3f of the uncontrolled", s.Scenario, ratio))
			}
		}
	}
	return errors.Join(errs...)
}
