package guestshares

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/daybook-project/daybook/internal/control/law"
	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/experiment/report"
	"github.com/daybook-project/daybook/internal/experiment/scenario"
)

// Options configure bench-guests.
type Options struct {
	// Boot boots a kernel of these names with a disk of DiskBytes and
	// DiskBytesPerSecond, which is /dev/daybook/disk0 there.
	Boot    func(ctx context.Context, kernel string) (Guest, error)
	Kernels []string
	// Dividers are of BFQ, IOCost, IOCostProposed and IOCostAuto; nil: BFQ, IOCost and IOCostAuto.
	Dividers []string
	Seconds  float64
	Interval time.Duration
	// CountInstructions: the guest's clocks count instructions, and its disk is in
	// memory. Then the result does not depend on what else the host does.
	CountInstructions bool
	// Scenarios is the number of scenarios from scenariosOf; 0 means all.
	Scenarios int
	// Repetitions is how often each scenario runs; 0 means once.
	Repetitions int
}

// Guest is a booted kernel.
type Guest = fixture.Guest[Case, scenario.Phase]

// Case is one phase of a scenario.
type Case struct {
	Scenario scenario.Scenario `json:"scenario"`
	// Law is scenario.Uncontrolled or a law's name.
	Law string `json:"law"`
}

// RunInGuest runs a Case, given as JSON, on this machine, which is a guest. It writes the
// phase as JSON to output, and messages to say.
func RunInGuest(ctx context.Context, text string, output, say io.Writer) error {
	return fixture.RunInGuest(ctx, text, output, say, func(ctx context.Context, l fixture.Lab, c Case) (scenario.Phase, error) {
		return c.Scenario.Run(ctx, c.Scenario.Describing(l), c.Law)
	})
}

// Full is the benchmark, Quick a short run that tests it.
var (
	Full  = Options{Seconds: 60, Interval: 5 * time.Second}
	Quick = Options{Seconds: 20, Interval: 5 * time.Second, Scenarios: 1}
)

// maxError is the maximum absolute deviation of each container's mean share from
// its target under control.
const maxError = 0.03

// The bounds where instructions are counted: of the mean, of each interval after the
// third, and of the throughput over that of the uncontrolled phase.
const (
	maxCountedError, maxCountedInterval = 0.015, 0.03
	minThroughput                       = 0.97
)

// Result is the result of bench-guests.
type Result struct {
	Host report.Host `json:"host"`
	Runs []Run       `json:"runs"`
}

// Run is one scenario in one guest, uncontrolled and controlled.
type Run struct {
	// Kernel is uname -r of the guest.
	Kernel  string `json:"kernel"`
	Divider string `json:"divider"`
	// Settings are the settings of the divider, as text.
	Settings string `json:"settings"`
	// Bounded means that Check applies the bound. Other runs are for
	// comparison.
	Bounded bool `json:"bounded"`
	// Counted: see Options.CountInstructions.
	Counted bool `json:"counted"`
	// Repetition is the number of the run of this scenario, from 1.
	Repetition int `json:"repetition"`
	scenario.Summary
	phases   []scenario.Phase
	scenario scenario.Scenario
}

// laws in the order of the phases of a Run.
var laws = []string{scenario.Uncontrolled, law.FeedbackLaw}

// order is that in which a run's laws are run. Every other run begins with control, so that what
// the guest does in its first minute does not always affect the same phase.
func (run *Run) order() []string {
	order := slices.Clone(laws)
	if run.Repetition%2 == 0 {
		slices.Reverse(order)
	}
	return order
}

// The guest's disk. An emulated processor is about ten times slower than a real
// one, so the disk and the rate of new directories are scaled down by the same
// factor, and the disk remains the bottleneck.
const (
	DiskBytes          = 4 << 30
	DiskBytesPerSecond = 16 << 20
	// MemoryDiskBytes is the size of the disk where instructions are counted.
	MemoryDiskBytes = 2 << 30
)

// scenariosOf are 50:50 and 70:30: A reads, B reads and makes directories.
func scenariosOf(divider string, o Options) []scenario.Scenario {
	newScenario := func(name string, a, b uint64, mkdirPerSecond float64) scenario.Scenario {
		return scenario.Scenario{
			Name:   name,
			Actors: []scenario.Actor{{Name: "A", Weight: a}, {Name: "B", Weight: b, MkdirPerSecond: mkdirPerSecond, MkdirThreads: scenario.MkdirThreads}},
			Disk: &fixture.GivenDisk{
				Node: "/dev/daybook/disk0", Divider: divider, BytesPerSecond: DiskBytesPerSecond,
				ReadFileBytes: 16 << 20, ReadBytes: 128 << 10, JournalBytes: 512 << 20,
			},
			Seconds: o.Seconds, Interval: o.Interval,
		}
	}
	scenarios := []scenario.Scenario{
		newScenario("50:50", 500, 500, 400),
		// As in Scenarios: B's hidden I/O must fit into its target share.
		newScenario("70:30", 700, 300, 200),
	}
	if o.CountInstructions {
		for n := range scenarios {
			disk := scenarios[n].Disk
			disk.Node, disk.MemoryBytes, disk.ReadBytes = fixture.MemoryDisk, MemoryDiskBytes, 16<<10
		}
	}
	switch {
	case divider == fixture.IOCostAuto:
		// For comparison: an effect of weights shows only if they differ, and
		// shows soon.
		scenarios = scenarios[1:]
		scenarios[0].Seconds = o.Seconds / 2
	case o.Scenarios > 0:
		scenarios = scenarios[:o.Scenarios]
	}
	return scenarios
}

// Bench runs the scenarios in a guest of each kernel, with each divider. Guests that count
// instructions run at the same time.
func Bench(ctx context.Context, l fixture.Lab, o Options) (Result, error) {
	result := Result{Host: report.ThisHost()}
	if o.Dividers == nil {
		o.Dividers = []string{fixture.BFQ, fixture.IOCost, fixture.IOCostAuto}
	}
	if len(o.Kernels) == 0 || len(o.Dividers) == 0 {
		return result, errors.New("nothing to measure: want at least one kernel and divider")
	}
	atOnce := 1
	if o.CountInstructions {
		atOnce = len(o.Kernels) // the host's load does not matter
	}
	runs, errs := make([][]Run, len(o.Kernels)), make([]error, len(o.Kernels))
	free := make(chan struct{}, atOnce)
	var guests sync.WaitGroup
	for n, kernel := range o.Kernels {
		free <- struct{}{}
		guests.Go(func() {
			defer func() { <-free }()
			errs[n] = fixture.InGuest(ctx, l, kernel, o.Boot, func(g Guest) (err error) {
				runs[n], err = benchKernel(ctx, l, g, kernel, o)
				return err
			})
			if errs[n] != nil {
				errs[n] = fmt.Errorf("kernel %s: %w", kernel, errs[n])
			}
		})
	}
	guests.Wait()
	result.Runs = slices.Concat(runs...)
	return result, errors.Join(errs...)
}

// benchKernel runs the scenarios in a guest.
func benchKernel(ctx context.Context, l fixture.Lab, g Guest, kernel string, o Options) (runs []Run, err error) {
	for _, divider := range o.Dividers {
		for _, scenario := range scenariosOf(divider, o) {
			for n := range max(1, o.Repetitions) {
				run := Run{Kernel: g.Kernel(), Divider: divider, Settings: scenario.DividerText(), Bounded: divider != fixture.IOCostAuto, Counted: o.CountInstructions, Repetition: n + 1, scenario: scenario}
				if err := run.measure(ctx, l, g, kernel); err != nil {
					return runs, err
				}
				runs = append(runs, run)
			}
		}
	}
	return runs, nil
}

// measure runs the phases of a run in a guest.
func (run *Run) measure(ctx context.Context, l fixture.Lab, g Guest, kernel string) error {
	run.phases = make([]scenario.Phase, len(laws))
	for _, law := range run.order() {
		what := fmt.Sprintf("%s, %s, %s, run %d, %s", kernel, run.Divider, run.scenario.Name, run.Repetition, law)
		l.Say(what)
		phase, err := g.Run(ctx, Case{Scenario: run.scenario, Law: law}, func(line string) { l.Say(what + ": " + line) })
		if err != nil {
			return fmt.Errorf("%s, scenario %s, %s: %w", run.Divider, run.scenario.Name, law, err)
		}
		run.phases[slices.Index(laws, law)] = phase
	}
	run.Summary = run.scenario.Summarize(run.phases)
	return nil
}

// Check returns an error for each controlled phase outside the bound, and if there is none with a bound.
func (r Result) Check() error {
	var errs []error
	bounded := 0
	for _, run := range r.Runs {
		for _, phase := range run.Phases {
			if phase.Law != law.FeedbackLaw || !run.Bounded {
				continue
			}
			bounded++
			if run.Counted {
				errs = append(errs, run.checkCounted(phase)...)
				continue
			}
			for _, c := range phase.Containers {
				if off := c.Share - c.TargetShare; !(math.Abs(off) <= maxError) {
					errs = append(errs, fmt.Errorf("%s, %s, %s: %s is off its target by %+.2f points of %.0f allowed",
						run.Kernel, run.Divider, run.Scenario, c.Name, 100*off, 100*maxError))
				}
			}
		}
	}
	if bounded == 0 {
		errs = append(errs, fmt.Errorf("nothing was measured that has a bound: measure under %s or %s", fixture.BFQ, fixture.IOCost))
	}
	return errors.Join(errs...)
}

func (run Run) checkCounted(phase scenario.PhaseSummary) (errs []error) {
	refuse := func(format string, values ...any) {
		errs = append(errs, fmt.Errorf("%s, %s, %s, run %d: %s", run.Kernel, run.Divider, run.Scenario, run.Repetition, fmt.Sprintf(format, values...)))
	}
	for _, c := range phase.Containers {
		if off := c.Share - c.TargetShare; !(math.Abs(off) <= maxCountedError) {
			refuse("%s is off its target by %+.2f points of %.1f allowed", c.Name, 100*off, 100*maxCountedError)
		}
		if !(c.WorstInterval <= maxCountedInterval) {
			refuse("an interval of %s is %.2f points off, of %.0f allowed", c.Name, 100*c.WorstInterval, 100*maxCountedInterval)
		}
	}
	if part := phase.Throughput() / run.Phases[0].Throughput(); !(part >= minThroughput) {
		refuse("the throughput is %.3f of the uncontrolled one; want %.2f", part, minThroughput)
	}
	return errs
}
