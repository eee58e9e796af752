package guestvolumes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/experiment/report"
	"github.com/daybook-project/daybook/internal/iocost"
)

// Options say how much bench-guest-volumes measures.
type Options struct {
	// Boot boots one of Kernels with the disk /dev/daybook/disk0, of DiskBytes and
	// DiskBytesPerSecond.
	Boot         func(ctx context.Context, kernel string) (Guest, error)
	Kernels      []string
	Arrangements []fixture.Arrangement
	Dividers     []string
	Loads        []string
	Seconds      int
	Interval     time.Duration
	// Rounds is how often each case is measured, at least 1. A round measures all cases
	// once, so that a host that is busy for a while does not change one arrangement alone.
	Rounds int
	// Before is an earlier result. Its runs are kept, except those of a kernel, load and
	// divider that is measured.
	Before Result
}

// Guest is a booted kernel.
type Guest = fixture.Guest[Case, Phase]

// The guest's disk. It is so slow that the emulated processors are never the
// bottleneck.
const (
	DiskBytes          = 4 << 30
	DiskBytesPerSecond = 32 << 20
)

// The dividers share the disk between the cgroups. io.cost does it by a model of the
// disk: it lets through what the model allows, and adjusts itself once in a period.
const (
	// IOCost is as `daybook calibrate --io-cost DEV --for volumes` proposes it. It has a model
	// of three quarters of the disk's rate, so that requests wait in io.cost, which knows the
	// weights, and not in the disk. Its period is six times as long as a write of the loads
	// takes.
	IOCost = "io.cost"
	// IOCostControl is as `daybook calibrate --io-cost DEV` proposes it for control: with the
	// same model, and a period that is shorter than a write takes.
	IOCostControl = "io.cost-control"
	// IOCostFull has a model of the disk's full rate, and the period of IOCost. Requests wait
	// partly in the disk, which knows no weights.
	IOCostFull = "io.cost-full"
	// BFQ is the scheduler of that name, without io.cost.
	BFQ = "bfq"

	costRate uint64 = DiskBytesPerSecond * iocost.DefaultPart
)

// Dividers lists all dividers.
func Dividers() []string {
	return []string{IOCost, IOCostControl, IOCostFull, BFQ}
}

// The loads of the containers. Both write and sync. In growing each write allocates new
// blocks, so the journal has more I/O and a sync takes longer. In waiting B grows, and A
// is one thread that writes little and waits for each sync, as a database with one client
// does: it queues nothing that a weight divides.
const (
	Growing   = "growing"
	Rewriting = "rewriting"
	Waiting   = "waiting"
)

// Loads lists all loads.
func Loads() []string { return []string{Growing, Rewriting, Waiting} }

// Arrangements lists those that run in guests.
func Arrangements() []fixture.Arrangement {
	return []fixture.Arrangement{fixture.PlacedOnXFS, ServedOnXFS, MappedOnXFS, fixture.OwnPartitions}
}

// RunsOn says whether Debian's kernel of this name has what an arrangement needs: its 6.1
// is built without ublk_drv.
func RunsOn(a fixture.Arrangement, kernel string) bool {
	return a != ServedOnXFS || kernel != "6.1"
}

// Full is the benchmark, Quick a short run that tests it.
var (
	Full = Options{
		Arrangements: Arrangements(), Dividers: Dividers(), Loads: Loads(), Seconds: 40, Interval: 5 * time.Second, Rounds: 1,
	}
	Quick = Options{
		Arrangements: []fixture.Arrangement{fixture.PlacedOnXFS}, Dividers: []string{IOCost}, Loads: []string{Rewriting}, Seconds: 15, Interval: 5 * time.Second, Rounds: 1,
	}
)

const (
	// maxError is the maximum absolute error of A's share on volumes under io.cost.
	maxError = 0.03
	// minUse is the minimum that the containers must use of the allowed rate.
	// Otherwise the disk was not the bottleneck, and their shares do not depend on
	// weights.
	minUse = 0.9
	// minSyncs is the minimum of the syncs of a container that waits for each of them, over
	// those on a partition in the same round.
	minSyncs = 0.9
)

// Check returns an error if the options are invalid.
func (o Options) Check() error {
	if o.Interval < time.Second || time.Duration(o.Seconds)*time.Second < o.Interval {
		return fmt.Errorf("%d s with samples of %v: want at least one sample, of at least 1 s", o.Seconds, o.Interval)
	}
	if o.Rounds < 1 {
		return fmt.Errorf("%d rounds: want at least 1", o.Rounds)
	}
	if len(o.Kernels) == 0 || len(o.Arrangements) == 0 || len(o.Dividers) == 0 || len(o.Loads) == 0 {
		return errors.New("nothing to measure: want at least one kernel, arrangement, divider and load")
	}
	for _, c := range o.cases() {
		if err := c.check(); err != nil {
			return err
		}
	}
	return nil
}

// cases returns the cases of each guest, in the order in which they run.
func (o Options) cases() []Case {
	var all []Case
	for round := range o.Rounds {
		for _, arrangement := range o.Arrangements {
			for _, load := range o.Loads {
				for _, divider := range o.Dividers {
					all = append(all, Case{Round: round, Arrangement: arrangement, Load: load, Divider: divider, Seconds: o.Seconds, Interval: o.Interval})
				}
			}
		}
	}
	return all
}

// Case is one measurement in a guest.
type Case struct {
	Round       int                 `json:"round"` // from 0
	Arrangement fixture.Arrangement `json:"arrangement"`
	Load        string              `json:"load"`
	Divider     string              `json:"divider"`
	Seconds     int                 `json:"seconds"`
	Interval    time.Duration       `json:"interval_nanoseconds"`
}

func (c Case) check() error {
	if !slices.Contains(Arrangements(), c.Arrangement) {
		return fmt.Errorf("no arrangement %q in guests: choose from %v", c.Arrangement, Arrangements())
	}
	if !slices.Contains(Dividers(), c.Divider) {
		return fmt.Errorf("no divider %q: choose from %s", c.Divider, strings.Join(Dividers(), ", "))
	}
	if !slices.Contains(Loads(), c.Load) {
		return fmt.Errorf("no load %q: choose from %s", c.Load, strings.Join(Loads(), ", "))
	}
	return nil
}

// disk returns the guest's disk with the divider.
func (c Case) disk() fixture.GivenDisk {
	given := fixture.GivenDisk{Node: "/dev/daybook/disk0", Divider: fixture.IOCostProposed, BytesPerSecond: DiskBytesPerSecond}
	if c.Divider == BFQ {
		given.Divider = fixture.BFQ
	}
	return given
}

// allowed is the rate that the containers may reach together, in bytes per second.
func (c Case) allowed() uint64 {
	switch c.Divider {
	case IOCost, IOCostControl:
		return costRate
	}
	return DiskBytesPerSecond
}

// cost returns the contents of io.cost's files for the disk; "" under BFQ.
func (c Case) cost(disk fixture.GivenDisk) (model, qos string) {
	if c.Divider == BFQ {
		return "", ""
	}
	part, use := iocost.DefaultPart, iocost.ForVolumes
	switch c.Divider {
	case IOCostControl:
		use = iocost.ForControl
	case IOCostFull:
		part = 1
	}
	proposal := iocost.Propose(iocost.OfRate(disk.BytesPerSecond), part, use)
	return proposal.Model, proposal.QoS
}

// Phase is the result of one arrangement with one load under one divider.
type Phase struct {
	Case
	// Settings are the settings of the divider, as text.
	Settings string `json:"settings"`
	// MeasuredSeconds is the time after the warm-up, by the guest's clock.
	MeasuredSeconds float64 `json:"measured_seconds"`
	// ShareA is A's fraction of the I/O of A and B, and Shares that of each interval.
	ShareA float64   `json:"share_a"`
	Shares []float64 `json:"shares"`
	A      Container `json:"a"`
	B      Container `json:"b"`
	// DiskBytes is all I/O of the disk, also of neither container.
	DiskBytes uint64 `json:"disk_bytes"`
	// Queue is the mean number of requests in the disk and its scheduler. It does not
	// include requests that io.cost holds back.
	Queue float64 `json:"queue"`
	// Idle is the fraction of the time in which the guest's processors were idle, 0 to 1.
	Idle float64 `json:"idle"`
}

// Container is the I/O of a container, with its journal.
type Container struct {
	Bytes uint64 `json:"bytes"`
	// JournalBytes is the part of Bytes that the jbd2 thread did.
	JournalBytes uint64 `json:"journal_bytes"`
	// Held is the fraction of the time in which io.cost held back requests of the
	// container, 0 to 1; 0 under BFQ.
	Held float64 `json:"held"`
	// Syncs and their mean time are from fio, for its whole run after the warm-up, which
	// takes SyncSeconds. Results of before it was kept have 0.
	Syncs           uint64  `json:"syncs"`
	SyncSeconds     float64 `json:"sync_seconds,omitempty"`
	SyncMeanSeconds float64 `json:"sync_mean_seconds"`
}

// used is the rate of both, as a fraction of the allowed rate.
func (p Phase) used() float64 {
	return float64(p.A.Bytes+p.B.Bytes) / p.MeasuredSeconds / float64(p.allowed())
}

// bounded reports whether Check compares the phase with the bounds. The other phases are
// for comparison.
func (p Phase) bounded() bool {
	return p.Arrangement == fixture.PlacedOnXFS && p.Divider == IOCost
}

// Result is the result of bench-guest-volumes.
type Result struct {
	Host report.Host `json:"host"`
	Runs []Run       `json:"runs"`
}

// Run is one phase in one guest.
type Run struct {
	// Kernel is the output of uname -r in the guest.
	Kernel string `json:"kernel"`
	Phase
}

// Bench runs each arrangement under each divider in a guest of each
// kernel.
func Bench(ctx context.Context, l fixture.Lab, o Options) (Result, error) {
	result := Result{Host: report.ThisHost(), Runs: slices.Clone(o.Before.Runs)}
	if err := o.Check(); err != nil {
		return result, err
	}
	if len(o.Before.Runs) > 0 {
		if err := report.SameHost(o.Before.Host, result.Host); err != nil {
			return result, err
		}
	}
	for _, kernel := range o.Kernels {
		err := fixture.InGuest(ctx, l, kernel, o.Boot, func(g Guest) error { return result.benchKernel(ctx, l, g, kernel, o) })
		if err != nil {
			return result, fmt.Errorf("kernel %s: %w", kernel, err)
		}
	}
	slices.SortStableFunc(result.Runs, Run.compare)
	return result, nil
}

// benchKernel runs the cases in a guest.
func (r *Result) benchKernel(ctx context.Context, l fixture.Lab, g Guest, kernel string, o Options) error {
	// A run is compared with that on a partition in the same round.
	r.Runs = slices.DeleteFunc(r.Runs, func(old Run) bool {
		return old.Kernel == g.Kernel() && slices.Contains(o.Loads, old.Load) && slices.Contains(o.Dividers, old.Divider)
	})
	for _, c := range o.cases() {
		if !RunsOn(c.Arrangement, kernel) {
			continue
		}
		what := fmt.Sprintf("%s, %s, %s, %s", kernel, c.Arrangement, c.Load, c.Divider)
		l.Say(what)
		phase, err := g.Run(ctx, c, func(line string) { l.Say(what + ": " + line) })
		if err != nil {
			return fmt.Errorf("%s, %s, %s: %w", c.Arrangement, c.Load, c.Divider, err)
		}
		r.put(Run{Kernel: g.Kernel(), Phase: phase})
	}
	return nil
}

// put adds a run, and replaces an earlier one of the same kind.
func (r *Result) put(run Run) {
	r.Runs = slices.DeleteFunc(r.Runs, func(old Run) bool { return old.compare(run) == 0 })
	r.Runs = append(r.Runs, run)
}

// compare orders by kernel, arrangement, load, divider and round.
func (r Run) compare(other Run) int {
	if r.Kernel != other.Kernel {
		// 6.1 before 6.12: the shorter number first.
		if a, b := len(release(r.Kernel)), len(release(other.Kernel)); a != b {
			return a - b
		}
		return strings.Compare(r.Kernel, other.Kernel)
	}
	return cmp.Or(
		slices.Index(Arrangements(), r.Arrangement)-slices.Index(Arrangements(), other.Arrangement),
		slices.Index(Loads(), r.Load)-slices.Index(Loads(), other.Load),
		slices.Index(Dividers(), r.Divider)-slices.Index(Dividers(), other.Divider),
		r.Round-other.Round)
}

// release returns the part of a kernel release before the second dot.
func release(kernel string) string {
	parts := strings.SplitN(kernel, ".", 3)
	return strings.Join(parts[:min(len(parts), 2)], ".")
}

// missed returns an error if a run is outside the bounds.
func (r Result) missed(run Run) error {
	if run.Load != Waiting {
		return run.missed()
	}
	switch over, known := r.overPartition(run); {
	case !known:
		return fmt.Errorf("%s, %s: no verdict, because nothing was measured on a partition in round %d", run.Kernel, run.kind(), run.Round)
	case !(over >= minSyncs):
		return fmt.Errorf("%s, %s: A has %.2f times the syncs of a partition in round %d; want at least %g", run.Kernel, run.kind(), over, run.Round, minSyncs)
	}
	return nil
}

// missed is the same where the share is what counts.
func (r Run) missed() error {
	var errs []error
	if off := r.ShareA - fixture.TargetA; !(math.Abs(off) <= maxError) {
		errs = append(errs, fmt.Errorf("%s, %s, %s, %s: A's share is off by %+.2f points; want at most %.0f",
			r.Kernel, r.Arrangement, r.Load, r.Divider, 100*off, 100*maxError))
	}
	if used := r.used(); !(used >= minUse) {
		errs = append(errs, fmt.Errorf("%s, %s, %s, %s: A and B used %.0f %% of the allowed rate; below %.0f %% the disk is not the bottleneck",
			r.Kernel, r.Arrangement, r.Load, r.Divider, 100*used, 100*minUse))
	}
	return errors.Join(errs...)
}

// Check returns an error for each run outside the bounds, or nil.
func (r Result) Check() error {
	var errs []error
	bounded := 0
	for _, run := range r.Runs {
		if !run.bounded() {
			continue
		}
		bounded++
		errs = append(errs, r.missed(run))
	}
	if bounded == 0 {
		errs = append(errs, fmt.Errorf("nothing was measured that has a bound: measure %s under %s", fixture.PlacedOnXFS, IOCost))
	}
	return errors.Join(errs...)
}
