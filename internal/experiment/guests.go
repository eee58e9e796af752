package experiment

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/daybook-project/daybook/internal/control"
)

// GuestsOptions say how much bench-guests measures.
type GuestsOptions struct {
	// Boot boots a kernel of these names with a disk of GuestDiskBytes and
	// GuestDiskBytesPerSecond, which is /dev/daybook/disk0 there.
	Boot    func(ctx context.Context, kernel string) (Guest, error)
	Kernels []string
	// Dividers are of BFQ, IOCost and IOCostAuto; nil: all.
	Dividers []string
	Seconds  float64
	Interval time.Duration
	// Scenarios is how many of guestScenarios; 0: all.
	Scenarios int
}

// Guest is a booted kernel.
type Guest interface {
	// Kernel is what uname -r says there.
	Kernel() string
	// Run runs a program there that calls RunGuestPhaseIfAsked, with
	// GuestEnvironment, and reads what it writes by ReadGuestPhase. tell gets
	// what it says meanwhile, line by line.
	Run(ctx context.Context, scenario Scenario, law string, tell func(line string)) (Phase, error)
	// Close ends it. The error says what faults the kernel reported of itself.
	Close() error
}

// FullGuests is the benchmark, QuickGuests a look whether it works.
var (
	FullGuests  = GuestsOptions{Seconds: 60, Interval: 5 * time.Second}
	QuickGuests = GuestsOptions{Seconds: 20, Interval: 5 * time.Second, Scenarios: 1}
)

// maxGuestError bounds what each container's mean share may be off its target
// under control, absolute.
const maxGuestError = 0.03

// GuestsResult is what bench-guests came to.
type GuestsResult struct {
	Host Host       `json:"host"`
	Runs []GuestRun `json:"runs"`
}

// GuestRun is one scenario in one guest, uncontrolled and controlled.
type GuestRun struct {
	// Kernel is what uname -r says in the guest.
	Kernel  string `json:"kernel"`
	Divider string `json:"divider"`
	// Settings are those of the divider, for people.
	Settings string `json:"settings"`
	// Bounded: Check holds it against the bound. What is not is for
	// comparison.
	Bounded bool `json:"bounded"`
	Summary
	phases   []Phase
	scenario Scenario
}

// guestLaws in the order in which they are run.
var guestLaws = []string{Uncontrolled, control.FeedbackLaw}

// The guest's disk: an emulated processor is some ten times slower than a real
// one, so the disk and the rate at which directories are made are scaled down
// alike, and the disk remains what everybody waits for.
const (
	GuestDiskBytes          = 4 << 30
	GuestDiskBytesPerSecond = 16 << 20
)

// guestScenarios are 50:50 and 70:30: A reads, B reads and makes directories.
func guestScenarios(divider string, o GuestsOptions) []Scenario {
	scenario := func(name string, a, b uint64, mkdirPerSecond float64) Scenario {
		return Scenario{
			Name:   name,
			Actors: []Actor{{Name: "A", Weight: a}, {Name: "B", Weight: b, MkdirPerSecond: mkdirPerSecond, MkdirThreads: mkdirThreads}},
			Disk: &GivenDisk{
				Node: "/dev/daybook/disk0", Divider: divider, BytesPerSecond: GuestDiskBytesPerSecond,
				ReadFileBytes: 16 << 20, ReadBytes: 128 << 10, JournalBytes: 512 << 20,
			},
			Seconds: o.Seconds, Interval: o.Interval,
		}
	}
	scenarios := []Scenario{
		scenario("50:50", 500, 500, 400),
		// As in ShareScenarios: what B hides must fit into what it was promised.
		scenario("70:30", 700, 300, 200),
	}
	switch {
	case divider == IOCostAuto:
		// For comparison: that weights do nothing shows only where they
		// are unlike, and soon.
		scenarios = scenarios[1:]
		scenarios[0].Seconds = o.Seconds / 2
	case o.Scenarios > 0:
		scenarios = scenarios[:o.Scenarios]
	}
	return scenarios
}

// BenchGuests runs the scenarios in a guest of each kernel, with each divider.
func (l Lab) BenchGuests(ctx context.Context, o GuestsOptions) (GuestsResult, error) {
	result := GuestsResult{Host: thisHost()}
	if o.Dividers == nil {
		o.Dividers = []string{BFQ, IOCost, IOCostAuto}
	}
	for _, kernel := range o.Kernels {
		runs, err := l.benchGuest(ctx, kernel, o)
		result.Runs = append(result.Runs, runs...)
		if err != nil {
			return result, fmt.Errorf("kernel %s: %w", kernel, err)
		}
	}
	return result, nil
}

func (l Lab) benchGuest(ctx context.Context, kernel string, o GuestsOptions) (runs []GuestRun, err error) {
	l.progress(kernel, "booting kernel "+kernel, nil)
	g, err := o.Boot(ctx, kernel)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	for _, divider := range o.Dividers {
		for _, scenario := range guestScenarios(divider, o) {
			run := GuestRun{Kernel: g.Kernel(), Divider: divider, Settings: scenario.divider(), Bounded: divider != IOCostAuto, scenario: scenario}
			for _, law := range guestLaws {
				what := fmt.Sprintf("%s, %s, %s, %s", kernel, divider, scenario.Name, law)
				l.progress(law, what, nil)
				phase, err := g.Run(ctx, scenario, law, func(line string) { l.progress(law, what+": "+line, nil) })
				if err != nil {
					return runs, fmt.Errorf("%s, scenario %s, %s: %w", divider, scenario.Name, law, err)
				}
				run.phases = append(run.phases, phase)
			}
			run.Summary = Summarize(scenario, run.phases)
			runs = append(runs, run)
		}
	}
	return runs, nil
}

// Check says which controlled phases are outside the bound.
func (r GuestsResult) Check() error {
	var errs []error
	for _, run := range r.Runs {
		for _, phase := range run.Phases {
			if phase.Law != control.FeedbackLaw || !run.Bounded {
				continue
			}
			for _, c := range phase.Containers {
				if off := c.Share - c.TargetShare; !(math.Abs(off) <= maxGuestError) {
					errs = append(errs, fmt.Errorf("%s, %s, %s: %s is off its target by %+.2f points of %.0f allowed",
						run.Kernel, run.Divider, run.Scenario, c.Name, 100*off, 100*maxGuestError))
				}
			}
		}
	}
	return errors.Join(errs...)
}
