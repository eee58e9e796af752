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
)

// Options say how much bench-guest-volumes measures.
type Options struct {
	// Boot boots a kernel of these names with a disk of DiskBytes
	// and DiskBytesPerSecond, which is /dev/daybook/disk0 there.
	Boot         func(ctx context.Context, kernel string) (Guest, error)
	Kernels      []string
	Arrangements []fixture.Arrangement
	Dividers     []string
	Loads        []string
	Seconds      int
	Interval     time.Duration
	// Before is a result whose runs are kept where none is measured now.
	Before Result
}

// Guest is a booted kernel.
type Guest interface {
	// Kernel is what uname -r says there.
	Kernel() string
	// RunVolumes calls RunInGuest there and reads what it writes. tell
	// gets what it says meanwhile, line by line.
	RunVolumes(ctx context.Context, c Case, tell func(line string)) (Phase, error)
	// Close ends it. The error says what faults the kernel reported of itself.
	Close() error
}

// The guest's disk. It is so slow that an emulated processor does not have
// enough to do with it.
const (
	DiskBytes          = 4 << 30
	DiskBytesPerSecond = 32 << 20
)

// What divides the disk. io.cost goes by a model of the disk, and what the
// model says is all that it lets through; it reckons once in a period.
const (
	// IOCost has a model of three quarters of what the disk can do, so that
	// what has to wait does so before the disk, and by weights. Its period is
	// longer than the disk takes for a write of the loads.
	IOCost = "io.cost"
	// IOCostShort has a period much shorter than the disk takes for a write:
	// what the kernel sets up if it is told no latencies.
	IOCostShort = "io.cost-short"
	// IOCostFull has a model of all that the disk can do. Who waits does so
	// partly in the disk, which knows no weights.
	IOCostFull = "io.cost-full"
	// BFQ is BFQ.
	BFQ = "bfq"

	costRate = DiskBytesPerSecond / 4 * 3
	// costLatency is written to io.cost.qos as the latency of reads and of
	// writes. With the part of requests that must keep it at 0, its only effect
	// is io.cost's period, which is twice as long (block/blk-iocost.c,
	// ioc_refresh_period_us; 1 ms to 1 s, and 1 ms without a latency).
	costLatency = 100 * time.Millisecond
)

// Dividers lists them.
func Dividers() []string {
	return []string{IOCost, IOCostShort, IOCostFull, BFQ}
}

// What the containers do. All write and sync; in the one case each write takes
// new blocks, so that the journal has more to do and the sync more to wait for.
const (
	Growing   = "growing"
	Rewriting = "rewriting"
)

// Loads lists them.
func Loads() []string { return []string{Growing, Rewriting} }

// Arrangements are those of fixture.Arrangements that run in guests.
func Arrangements() []fixture.Arrangement {
	return []fixture.Arrangement{fixture.PlacedOnXFS, fixture.OwnPartitions}
}

// Full is the benchmark, Quick a look whether it works.
var (
	Full = Options{
		Arrangements: Arrangements(), Dividers: Dividers(), Loads: Loads(), Seconds: 40, Interval: 5 * time.Second,
	}
	Quick = Options{
		Arrangements: []fixture.Arrangement{fixture.PlacedOnXFS}, Dividers: []string{IOCost}, Loads: []string{Rewriting}, Seconds: 15, Interval: 5 * time.Second,
	}
)

const (
	// maxError bounds what A's share may be off its target on
	// volumes under io.cost, absolute.
	maxError = 0.03
	// minUse is how much of what they may have the containers must
	// use at least: else it was not the disk that they waited for, and their
	// shares say nothing of weights.
	minUse = 0.9
)

// Check says what is wrong with the options.
func (o Options) Check() error {
	if o.Interval < time.Second || time.Duration(o.Seconds)*time.Second < o.Interval {
		return fmt.Errorf("%d s with samples of %v: want at least one sample, of at least 1 s", o.Seconds, o.Interval)
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

// cases are what runs in each guest, in this order.
func (o Options) cases() []Case {
	var all []Case
	for _, arrangement := range o.Arrangements {
		for _, load := range o.Loads {
			for _, divider := range o.Dividers {
				all = append(all, Case{Arrangement: arrangement, Load: load, Divider: divider, Seconds: o.Seconds, Interval: o.Interval})
			}
		}
	}
	return all
}

// Case is what a guest is told to run.
type Case struct {
	Arrangement fixture.Arrangement `json:"arrangement"`
	Load        string              `json:"load"`
	Divider     string              `json:"divider"`
	Seconds     int                 `json:"seconds"`
	Interval    time.Duration       `json:"interval_nanoseconds"`
}

func (c Case) check() error {
	if !slices.Contains(Arrangements(), c.Arrangement) {
		return fmt.Errorf("no arrangement %q in guests: choose of %v", c.Arrangement, Arrangements())
	}
	if !slices.Contains(Dividers(), c.Divider) {
		return fmt.Errorf("no divider %q: choose of %s", c.Divider, strings.Join(Dividers(), ", "))
	}
	if !slices.Contains(Loads(), c.Load) {
		return fmt.Errorf("no load %q: choose of %s", c.Load, strings.Join(Loads(), ", "))
	}
	return nil
}

// disk is the guest's disk with the divider.
func (c Case) disk() fixture.GivenDisk {
	given := fixture.GivenDisk{Node: "/dev/daybook/disk0", Divider: fixture.IOCost, BytesPerSecond: c.allowed()}
	if c.Divider == BFQ {
		given.Divider = fixture.BFQ
	}
	return given
}

// allowed is what the containers may have together, in bytes per second.
func (c Case) allowed() uint64 {
	switch c.Divider {
	case IOCost, IOCostShort:
		return costRate
	}
	return DiskBytesPerSecond
}

// cost is what is written to io.cost's files for the disk; "" under BFQ.
func (c Case) cost(disk fixture.GivenDisk) (model, qos string) {
	if c.Divider == BFQ {
		return "", ""
	}
	model, qos = disk.Cost()
	if c.Divider != IOCostShort {
		microseconds := costLatency.Microseconds()
		qos = fmt.Sprintf("enable=1 ctrl=user rpct=0 rlat=%d wpct=0 wlat=%d min=100 max=100", microseconds, microseconds)
	}
	return model, qos
}

// Phase is one arrangement under one divider.
type Phase struct {
	Case
	// Settings are those of the divider, for people.
	Settings string `json:"settings"`
	// MeasuredSeconds is the time after the warm-up, by the guest's clock.
	MeasuredSeconds float64 `json:"measured_seconds"`
	// ShareA is A's part of what A and B did, and Shares that of each interval.
	ShareA float64   `json:"share_a"`
	Shares []float64 `json:"shares"`
	A      Container `json:"a"`
	B      Container `json:"b"`
	// DiskBytes is what the disk did, with what is neither's.
	DiskBytes uint64 `json:"disk_bytes"`
	// Queue is how many requests were in the disk or its scheduler, on average.
	// What io.cost holds back is not there yet.
	Queue float64 `json:"queue"`
	// Idle is the part of the guest's processors' time in which they had nothing
	// to do but to wait, 0 to 1.
	Idle float64 `json:"idle"`
}

// Container is what a container did, its journal with it.
type Container struct {
	Bytes uint64 `json:"bytes"`
	// JournalBytes of them were the jbd2 thread's.
	JournalBytes uint64 `json:"journal_bytes"`
	// Held is the part of the time in which io.cost held something of the
	// container back, 0 to 1; 0 under BFQ.
	Held float64 `json:"held"`
	// Syncs and the mean time of one are fio's, of its whole run.
	Syncs           uint64  `json:"syncs"`
	SyncMeanSeconds float64 `json:"sync_mean_seconds"`
}

// used is what both did, by what they were allowed.
func (p Phase) used() float64 {
	return float64(p.A.Bytes+p.B.Bytes) / p.MeasuredSeconds / float64(p.allowed())
}

// bounded: Check holds it against the bound. What is not is for comparison.
func (p Phase) bounded() bool {
	return p.Arrangement == fixture.PlacedOnXFS && p.Divider == IOCost
}

// Result is what bench-guest-volumes came to.
type Result struct {
	Host report.Host `json:"host"`
	Runs []Run       `json:"runs"`
}

// Run is one phase in one guest.
type Run struct {
	// Kernel is what uname -r says in the guest.
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
	for _, kernel := range o.Kernels {
		if err := benchKernel(ctx, l, kernel, o, &result); err != nil {
			return result, fmt.Errorf("kernel %s: %w", kernel, err)
		}
	}
	slices.SortStableFunc(result.Runs, Run.compare)
	return result, nil
}

func benchKernel(ctx context.Context, l fixture.Lab, kernel string, o Options, result *Result) (err error) {
	l.Announce(kernel, "booting kernel "+kernel, nil)
	g, err := o.Boot(ctx, kernel)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	for _, c := range o.cases() {
		what := fmt.Sprintf("%s, %s, %s, %s", kernel, c.Arrangement, c.Load, c.Divider)
		l.Announce(kernel, what, nil)
		phase, err := g.RunVolumes(ctx, c, func(line string) { l.Announce(kernel, what+": "+line, nil) })
		if err != nil {
			return fmt.Errorf("%s, %s, %s: %w", c.Arrangement, c.Load, c.Divider, err)
		}
		result.put(Run{Kernel: g.Kernel(), Phase: phase})
	}
	return nil
}

// put keeps a run, in the place of one before of the same kind.
func (r *Result) put(run Run) {
	r.Runs = slices.DeleteFunc(r.Runs, func(old Run) bool { return old.compare(run) == 0 })
	r.Runs = append(r.Runs, run)
}

// compare is by kernel, arrangement, load and divider, in this order.
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
		slices.Index(Dividers(), r.Divider)-slices.Index(Dividers(), other.Divider))
}

// release is what is before the second dot.
func release(kernel string) string {
	parts := strings.SplitN(kernel, ".", 3)
	return strings.Join(parts[:min(len(parts), 2)], ".")
}

// missed says how a bounded run is outside the bounds; nil: it is not.
func (r Run) missed() error {
	var errs []error
	if off := r.ShareA - fixture.TargetA; !(math.Abs(off) <= maxError) {
		errs = append(errs, fmt.Errorf("%s, %s, %s, %s: A is off its target by %+.2f points of %.0f allowed",
			r.Kernel, r.Arrangement, r.Load, r.Divider, 100*off, 100*maxError))
	}
	if used := r.used(); !(used >= minUse) {
		errs = append(errs, fmt.Errorf("%s, %s, %s, %s: A and B used %.0f %% of what they may; under %.0f %%, the disk is not what they wait for",
			r.Kernel, r.Arrangement, r.Load, r.Divider, 100*used, 100*minUse))
	}
	return errors.Join(errs...)
}

// Check says which runs are outside the bounds.
func (r Result) Check() error {
	var errs []error
	held := 0
	for _, run := range r.Runs {
		if !run.bounded() {
			continue
		}
		held++
		errs = append(errs, run.missed())
	}
	if held == 0 {
		errs = append(errs, fmt.Errorf("nothing was measured that has a bound: want %s under %s", fixture.PlacedOnXFS, IOCost))
	}
	return errors.Join(errs...)
}
