package filesystems

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"

	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/experiment/report"
	"github.com/daybook-project/daybook/internal/experiment/statistics"
)

// Guest is a booted kernel.
type Guest = fixture.Guest[Case, []Sample]

// Case is the measurement in a guest on one kind of disk.
type Case struct {
	Disk string `json:"disk"`
	// FirstDisk is the number of the first arrangement's disk.
	FirstDisk    int      `json:"first_disk"`
	Loads        []string `json:"loads"`
	Arrangements []string `json:"arrangements"`
	Threads      []int    `json:"threads"`
	Rounds       int      `json:"rounds"`
	Milliseconds int      `json:"milliseconds"`
	CreateFiles  int      `json:"create_files"`
	// CreateMilliseconds is as in the options.
	CreateMilliseconds int `json:"create_milliseconds,omitempty"`
	// LoadPath is the path of the load program; "" means LoadProgram. InKernel means
	// that the kernel runs the loads in threads of its own, in directories that this
	// program prepares.
	LoadPath string `json:"load_path,omitempty"`
	InKernel bool   `json:"in_kernel,omitempty"`
	// DiskPath is the disk of the only arrangement; "": /dev/daybook/diskN.
	DiskPath string `json:"disk_path,omitempty"`
	// Uncounted means that nothing is counted: round 0 only warms up.
	Uncounted bool `json:"uncounted,omitempty"`
	// Holds means that the module measures how long locks are held, in all rounds but
	// round 0.
	Holds bool `json:"holds,omitempty"`
	// Instructions means that the guest's clocks count instructions, and that its disks
	// are in its memory.
	Instructions bool `json:"instructions,omitempty"`
}

// Sample is one run in a guest.
type Sample struct {
	Load        string `json:"load"`
	Arrangement string `json:"arrangement"`
	Threads     int    `json:"threads"`
	// Result is the output of the load.
	Result LoadResult `json:"result"`
	// Counts are set in the round that is counted; its times are not used.
	Counts *Counts `json:"counts,omitempty"`
	// Holds are set if the case wants them; the times of the run are not used.
	Holds map[string]LockHold `json:"holds,omitempty"`
	// Instructions are those that the guest executed for the run, if the case counts them.
	Instructions uint64 `json:"instructions,omitempty"`
}

// LoadResult is the output of nvjournal/kernel/bench for a run.
type LoadResult struct {
	Operations     uint64  `json:"operations"`
	Seconds        float64 `json:"seconds"`
	Syncs          uint64  `json:"syncs"`
	SyncP50Seconds float64 `json:"sync_p50_seconds"`
	SyncP95Seconds float64 `json:"sync_p95_seconds"`
	SyncP99Seconds float64 `json:"sync_p99_seconds"`
}

// Result is the result of the benchmark.
type Result struct {
	Host   report.Host `json:"host"`
	Kernel string      `json:"guest_kernel"`
	CPUs   int         `json:"guest_cpus"`
	// KVM: as in the options.
	KVM    bool `json:"kvm,omitempty"`
	Rounds int  `json:"rounds"`
	// Milliseconds, CreateFiles and CreateMilliseconds are as in the options.
	Milliseconds       int   `json:"milliseconds"`
	CreateFiles        int   `json:"create_files"`
	CreateMilliseconds int   `json:"create_milliseconds,omitempty"`
	Runs               []Run `json:"runs"`
	// Native is set if the kernel ran on the host's processors.
	Native *NativeResult `json:"native,omitempty"`
}

// Run is the result of an arrangement with a load, a kind of disk and a number of
// threads: the spread of each value over all rounds.
type Run struct {
	Disk                string            `json:"disk"`
	Load                string            `json:"load"`
	Threads             int               `json:"threads"`
	Arrangement         string            `json:"arrangement"`
	OperationsPerSecond statistics.Spread `json:"operations_per_second"`
	// Rates are the operations a second of each round, in their order. Results of before
	// they were kept have none.
	Rates          []float64         `json:"rates_operations_per_second,omitempty"`
	SyncsPerSecond statistics.Spread `json:"syncs_per_second"`
	SyncP50Seconds statistics.Spread `json:"sync_p50_seconds"`
	SyncP95Seconds statistics.Spread `json:"sync_p95_seconds"`
	SyncP99Seconds statistics.Spread `json:"sync_p99_seconds"`
	Counts         Counts            `json:"counts"`
	// LockHolds are the holds of the module's locks, by what the lock protects, in a run
	// of its own. They are measured natively, on the first disk of the load.
	LockHolds map[string]LockHold `json:"lock_holds,omitempty"`
}

// Bench measures in one boot.
func Bench(ctx context.Context, o Options) (result Result, err error) {
	result = Result{
		Host: report.ThisHost(), CPUs: cmp.Or(o.CPUs, runtime.NumCPU()), KVM: o.KVM, Rounds: o.Rounds, Milliseconds: o.Milliseconds,
		CreateFiles: o.CreateFiles, CreateMilliseconds: o.CreateMilliseconds, Runs: o.kept(),
	}
	if o.Native {
		result.Native = &NativeResult{}
		if len(result.Runs) > 0 {
			result.Native = cmp.Or(o.Before.Native, result.Native)
		}
	}
	if err := o.Check(); err != nil {
		return result, err
	}
	if err := result.fits(o.Before); err != nil {
		return result, err
	}
	progress := func(string) {}
	if o.Progress != nil {
		progress = o.Progress
	}
	disks, loads := o.disks()
	progress("booting")
	g, err := o.Boot(ctx, disks, o.Arrangements)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	if result.Kernel = g.Kernel(); len(result.Runs) > 0 && o.Before.Kernel != result.Kernel {
		return result, fmt.Errorf("the earlier result is of Linux %s, and this guest has %s: measure all parts, or write to another file (--output)", o.Before.Kernel, result.Kernel)
	}
	for n, d := range disks {
		c := Case{
			Disk: d.Name, FirstDisk: n * len(o.Arrangements), Loads: loads[d.Name], Arrangements: o.Arrangements, Threads: o.Threads,
			Rounds: o.Rounds, Milliseconds: o.Milliseconds, CreateFiles: o.CreateFiles, CreateMilliseconds: o.CreateMilliseconds,
		}
		samples, err := g.Run(ctx, c, func(line string) { progress(d.Name + ": " + line) })
		if err != nil {
			return result, fmt.Errorf("disk %s: %w", d.Name, err)
		}
		runs, err := runs(c, samples)
		if err != nil {
			return result, fmt.Errorf("disk %s: %w", d.Name, err)
		}
		result.Runs = append(result.Runs, runs...)
	}
	slices.SortStableFunc(result.Runs, Run.compare)
	return result, nil
}

// kept returns the earlier runs that can stay. A run is compared with others of the same
// disk, load and threads, round by round: if one is measured, all others go.
func (o Options) kept() []Run {
	return slices.DeleteFunc(slices.Clone(o.Before.Runs), func(r Run) bool {
		return slices.Contains(o.Parts, Part{r.Disk, r.Load}) && slices.Contains(o.Threads, r.Threads)
	})
}

// fits refuses to add to an earlier result that was measured in another way. A native
// result has one sanity check, so runs whose check failed cannot stay beside others.
func (n Result) fits(before Result) error {
	if len(n.Runs) == 0 {
		return nil
	}
	if before.Rounds != n.Rounds || before.Milliseconds != n.Milliseconds || before.CreateFiles != n.CreateFiles || before.CreateMilliseconds != n.CreateMilliseconds {
		return fmt.Errorf("the earlier result has %d rounds of %d ms, and %d files in %d ms, and this one would have %d, %d, %d and %d: measure all parts, or write to another file (--output)",
			before.Rounds, before.Milliseconds, before.CreateFiles, before.CreateMilliseconds, n.Rounds, n.Milliseconds, n.CreateFiles, n.CreateMilliseconds)
	}
	if (before.Native == nil) != (n.Native == nil) {
		return errors.New("one result is native and the other is not: measure all parts, or write to another file (--output)")
	}
	if before.KVM != n.KVM || before.CPUs != n.CPUs {
		return fmt.Errorf("the earlier result is of another guest (%d processors, KVM %v; this one: %d, %v): measure all parts, or write to another file (--output)", before.CPUs, before.KVM, n.CPUs, n.KVM)
	}
	if err := report.SameHost(before.Host, n.Host); err != nil {
		return err
	}
	if n.Native != nil && !n.Native.isSane() {
		return errors.New("the sanity check of the earlier result failed: measure all parts, or write to another file (--output)")
	}
	return nil
}

// knownDisks lists the kinds of disks of this measurement.
func (o Options) knownDisks() []Disk {
	if o.Native {
		return NativeDisks()
	}
	return Disks()
}

// disks returns the disks that parts are measured on, and the loads on each, by its name.
func (o Options) disks() (disks []Disk, loads map[string][]string) {
	loads = make(map[string][]string)
	for _, d := range o.knownDisks() {
		for _, load := range Loads() {
			if slices.Contains(o.Parts, Part{d.Name, load}) {
				loads[d.Name] = append(loads[d.Name], load)
			}
		}
		if len(loads[d.Name]) > 0 {
			disks = append(disks, d)
		}
	}
	return disks, loads
}

// runs combines the samples of a case into runs. No sample may be missing.
func runs(c Case, samples []Sample) (runs []Run, err error) {
	for _, load := range c.Loads {
		for _, threads := range c.Threads {
			for _, arrangement := range c.Arrangements {
				run := Run{Disk: c.Disk, Load: load, Threads: threads, Arrangement: arrangement}
				if err := run.combine(samples, c.Rounds); err != nil {
					return nil, fmt.Errorf("%s, %s, %d threads: %w", load, arrangement, threads, err)
				}
				runs = append(runs, run)
			}
		}
	}
	return runs, nil
}

// combine sets what was measured from those samples that are of the run: one of each
// round, and one that is counted.
func (r *Run) combine(samples []Sample, rounds int) error {
	var timed []LoadResult
	counted := 0
	for _, s := range samples {
		switch {
		case s.Load != r.Load || s.Threads != r.Threads || s.Arrangement != r.Arrangement:
		case s.Counts != nil:
			r.Counts = *s.Counts
			counted++
		case s.Result.Operations == 0 || s.Result.Seconds <= 0:
			return fmt.Errorf("a run of %d operations in %g s", s.Result.Operations, s.Result.Seconds)
		default:
			timed = append(timed, s.Result)
		}
	}
	if len(timed) != rounds || counted != 1 {
		return fmt.Errorf("the guest returned %d timed runs and %d counted runs; want %d and 1", len(timed), counted, rounds)
	}
	spread := func(value func(LoadResult) float64) statistics.Spread { return statistics.SpreadBy(timed, value) }
	rate := func(result LoadResult) float64 { return float64(result.Operations) / result.Seconds }
	for _, result := range timed {
		r.Rates = append(r.Rates, rate(result))
	}
	r.OperationsPerSecond = spread(rate)
	r.SyncsPerSecond = spread(func(result LoadResult) float64 { return float64(result.Syncs) / result.Seconds })
	r.SyncP50Seconds = spread(func(result LoadResult) float64 { return result.SyncP50Seconds })
	r.SyncP95Seconds = spread(func(result LoadResult) float64 { return result.SyncP95Seconds })
	r.SyncP99Seconds = spread(func(result LoadResult) float64 { return result.SyncP99Seconds })
	return nil
}

// compare orders by disk, load, threads and arrangement.
func (r Run) compare(other Run) int {
	at := func(all []string, a, b string) int { return slices.Index(all, a) - slices.Index(all, b) }
	return cmp.Or(at(DiskNames(), r.Disk, other.Disk), at(Loads(), r.Load, other.Load), r.Threads-other.Threads,
		at(allArrangements(), r.Arrangement, other.Arrangement))
}

// over returns the rate over that of another run: the median of the ratios in each round.
// A shared host's processors are up to twice as fast in one round as in another, and the
// runs of a round are seconds apart. ratios is nil if the rounds are not known; then ratio
// is that of the medians.
func (r Run) over(other Run) (ratio float64, ratios []float64) {
	if len(r.Rates) == 0 || len(r.Rates) != len(other.Rates) {
		return r.OperationsPerSecond.Median / other.OperationsPerSecond.Median, nil
	}
	for n := range r.Rates {
		ratios = append(ratios, r.Rates[n]/other.Rates[n])
	}
	return statistics.Median(ratios), ratios
}

// run returns a run, or nil if it was not measured.
func (n Result) run(disk, load, arrangement string, threads int) *Run {
	want := Run{Disk: disk, Load: load, Threads: threads, Arrangement: arrangement}
	for k := range n.Runs {
		if n.Runs[k].compare(want) == 0 {
			return &n.Runs[k]
		}
	}
	return nil
}
