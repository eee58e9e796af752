package filesystems

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/daybook-project/daybook/internal/experiment/report"
	"github.com/daybook-project/daybook/internal/experiment/statistics"
)

// Targets of ext4nvj: paper 3's gains, at 16 threads, its Figs. 4 and 5.
const (
	// VarmailOverStock and CreateOverStock are the gains over ext4 with its journal
	// on the disk.
	VarmailOverStock = 2.9
	CreateOverStock  = 1.97
	// VarmailOverFine and CreateOverFine are the gains over a journal of changed
	// lines in the same memory, with one lock. Its abstract rounds 2.38 to 2.3.
	VarmailOverFine = 2.38
	CreateOverFine  = 1.68

	// VarmailOverJFS and CreateOverJFS are the gains of paper 4 over JFS with its log
	// in the same memory, its Figs. 4 and 5.
	VarmailOverJFS = 5.09
	CreateOverJFS  = 4.9

	targetThreads = 16
)

// The compared file systems.
const (
	// StockDisk is ext4 with its journal on the disk; StockPmem has it on
	// persistent memory, as a block device (mke2fs -O journal_dev).
	StockDisk = "ext4"
	StockPmem = "ext4-pmem"
	// NVJBlocks is ext4nvj with records of whole blocks and one lock, NVJFine
	// with records of changed lines and one lock: paper 3's fine-grained
	// baseline, and paper 4's N-JFS.
	NVJBlocks = "blocks-one-lock"
	NVJFine   = "lines-one-lock"
	// NVJOne and NVJEight are ext4nvj with one partition (paper 3) and with
	// eight (paper 4).
	NVJOne   = "ext4nvj-1"
	NVJEight = "ext4nvj-8"
	// NVJSmall is ext4nvj with one partition, and with the data of small files in its
	// journal (the papers' future work).
	NVJSmall = "ext4nvj-small"

	// JFSDisk is JFS with its log on the disk; JFSPmem has it on persistent memory, as
	// a block device (mkfs.jfs -J journal_dev).
	JFSDisk = "jfs"
	JFSPmem = "jfs-pmem"
	// JFSBlocks is jfsnvj with records of whole pages and one lock: paper 4's N-JFS.
	// JFSOne and JFSEight have one partition and eight: O-JFS.
	JFSBlocks = "jfs-blocks-one-lock"
	JFSOne    = "jfsnvj-1"
	JFSEight  = "jfsnvj-8"
)

// Arrangements lists the compared file systems of ext4.
func Arrangements() []string { return ext4Family.arrangements() }

// JFSArrangements lists those of JFS.
func JFSArrangements() []string { return jfsFamily.arrangements() }

func allArrangements() []string { return append(Arrangements(), JFSArrangements()...) }

// NeedsModule reports whether one of the arrangements needs the module.
func NeedsModule(arrangements []string) bool {
	return slices.ContainsFunc(arrangements, func(a string) bool { return mountOptions(a) != "" })
}

// mountOptions returns the mount options of an arrangement, without the path of the
// journal; "" for the kernel's own file system.
func mountOptions(arrangement string) string {
	return map[string]string{
		NVJBlocks: "partitions=1,records=blocks,lock=one", NVJFine: "partitions=1,records=lines,lock=one",
		NVJOne: "partitions=1", NVJEight: "partitions=8", NVJSmall: "partitions=1,journal_data=small",
		JFSBlocks: "partitions=1,records=blocks,lock=one", JFSOne: "partitions=1", JFSEight: "partitions=8",
	}[arrangement]
}

// The loads of nvjournal/kernel/bench.
const (
	Varmail = "varmail"
	Create  = "create"

	mailFiles = 1000
)

// Loads lists all loads.
func Loads() []string { return []string{Varmail, Create} }

// Disk is a kind of disk. Each file system has its own disk of this kind.
type Disk struct {
	Name string
	// QEMU's limits for the disk; 0 means no limit: it is as fast as memory.
	BytesPerSecond, IOPS int64
	// DelayNanoseconds is the time of a request of a native disk.
	DelayNanoseconds int64
}

// Disks lists all kinds of disks.
func Disks() []Disk {
	return []Disk{{Name: "undelayed"}, {Name: "throttled", BytesPerSecond: 64 << 20, IOPS: 500}}
}

// NativeDisks lists the kinds of disks of the native measurement (null_blk).
func NativeDisks() []Disk {
	return []Disk{{Name: "undelayed"}, {Name: "10us", DelayNanoseconds: 10_000}, {Name: "80us", DelayNanoseconds: 80_000}}
}

// AllDisks lists the disks of both measurements.
func AllDisks() []Disk { return append(Disks(), NativeDisks()[1:]...) }

// DiskNames lists the names of all kinds of disks.
func DiskNames() []string { return namesOf(AllDisks()) }

// NativeDiskNames lists those of the native measurement.
func NativeDiskNames() []string { return namesOf(NativeDisks()) }

func namesOf(disks []Disk) (names []string) {
	for _, d := range disks {
		names = append(names, d.Name)
	}
	return names
}

// The guest has for each arrangement a disk of each kind, and persistent memory for the
// journal. The journal has the size of paper 3, also on the disk of stock ext4.
const (
	DiskBytes    = 1 << 30
	JournalBytes = 256 << 20

	// unusedBytes is the size of the journal on the disk of ext4nvj. It must exist, but
	// is not used.
	unusedBytes = 16 << 20
)

// Part is a load on a kind of disk, such as throttled/varmail.
type Part struct{ Disk, Load string }

func (p Part) String() string { return p.Disk + "/" + p.Load }

// Parts lists the parts of the benchmark in their order. create is not measured on the
// throttled disk. Its measured time has only one fsync, at the end, and the writeback
// after it takes longer on this disk than everything else.
func Parts() []Part {
	return []Part{{"undelayed", Varmail}, {"undelayed", Create}, {"throttled", Varmail}}
}

// NativeParts lists the parts of the native measurement.
func NativeParts() []Part {
	return []Part{
		{"undelayed", Varmail}, {"undelayed", Create}, {"10us", Varmail}, {"10us", Create},
		{"80us", Varmail}, {"80us", Create},
	}
}

// Options configure the measurement.
type Options struct {
	// Boot boots a guest. For each kind of disk, and for each arrangement in it, the
	// guest has a disk; for each arrangement it has persistent memory.
	Boot         func(ctx context.Context, disks []Disk, arrangements []string) (Guest, error)
	Parts        []Part
	Arrangements []string
	Threads      []int
	// Rounds is the number of timed rounds. One more round before them warms up; in
	// it the work is counted.
	Rounds int
	// Milliseconds is the length of a run of varmail. A run of create makes
	// CreateFiles files. With CreateMilliseconds it makes at most as many, until this
	// time has passed, and deletes them when its clock has stopped.
	Milliseconds       int
	CreateFiles        int
	CreateMilliseconds int
	// Progress receives messages, line by line; it may be nil.
	Progress func(line string)
	// Native means that the kernel runs on the host's processors, in User Mode Linux.
	Native bool
	// CPUs is the number of the guest's processors; 0: all of the host. KVM means that
	// the host's processors run the guest's code.
	CPUs int
	KVM  bool
	// Before is an earlier result. Its runs are kept unless they are measured again.
	Before Result
}

// Full is the benchmark, Quick a short run that tests it.
var (
	Full = Options{
		Parts: Parts(), Arrangements: Arrangements(),
		Threads: []int{1, 2, 4, 8, 16}, Rounds: 3, Milliseconds: 1000, CreateFiles: 3072,
	}
	Quick = Options{
		Parts: Parts()[:2], Arrangements: Arrangements(),
		Threads: []int{1, 16}, Rounds: 1, Milliseconds: 500, CreateFiles: 1024,
	}
)

// FullNative and QuickNative are the same of the native measurement.
var (
	FullNative = Options{
		Parts: NativeParts(), Arrangements: Arrangements(), Native: true,
		Threads: []int{1, 2, 4, 16}, Rounds: 3, Milliseconds: 300, CreateFiles: 98304, CreateMilliseconds: 500,
	}
	QuickNative = Options{
		Parts: []Part{{"undelayed", Varmail}, {"10us", Create}}, Arrangements: Arrangements(), Native: true,
		Threads: []int{1, 2}, Rounds: 1, Milliseconds: 200, CreateFiles: 16384, CreateMilliseconds: 100,
	}
)

// FullJFS and QuickJFS are the native measurement of JFS.
var (
	FullJFS  = forJFS(FullNative)
	QuickJFS = forJFS(QuickNative)
)

func forJFS(o Options) Options {
	o.Arrangements = JFSArrangements()
	return o
}

// Bounds of the options.
const (
	maxExt4NVJThreads = 64
	maxExt4NVJRounds  = 33
	// maxExt4NVJCreated limits the files of create that are on a disk at a time.
	maxExt4NVJCreated = 100_000
)

// Check returns an error if the options are invalid.
func (o Options) Check() error {
	if len(o.Parts) == 0 || len(o.Arrangements) == 0 {
		return errors.New("nothing to measure: want at least one part and one arrangement")
	}
	for n, part := range o.Parts {
		if !slices.Contains(DiskNames(), part.Disk) || !slices.Contains(Loads(), part.Load) || slices.Contains(o.Parts[:n], part) {
			return fmt.Errorf("no part %s, or twice: choose a disk from %s and a load from %s, such as %s", part, strings.Join(DiskNames(), ", "), strings.Join(Loads(), ", "), Parts()[0])
		}
	}
	for n, name := range o.Arrangements {
		if !slices.Contains(allArrangements(), name) || slices.Contains(o.Arrangements[:n], name) {
			return fmt.Errorf("no arrangement %q, or twice: choose from %s", name, strings.Join(familyOf(o.Arrangements[0]).arrangements(), ", "))
		}
	}
	if err := checkFamily(o.Arrangements); err != nil {
		return err
	}
	if len(o.Threads) == 0 || slices.Min(o.Threads) < 1 || slices.Max(o.Threads) > maxExt4NVJThreads {
		return fmt.Errorf("threads %v: want numbers from 1 to %d", o.Threads, maxExt4NVJThreads)
	}
	if o.Rounds < 1 || o.Rounds > maxExt4NVJRounds {
		return fmt.Errorf("%d rounds: want 1 to %d", o.Rounds, maxExt4NVJRounds)
	}
	if o.Milliseconds < 100 || o.CreateFiles < maxExt4NVJThreads {
		return fmt.Errorf("runs of %d ms and %d files: want at least 100 ms and %d", o.Milliseconds, o.CreateFiles, maxExt4NVJThreads)
	}
	if o.CreateMilliseconds != 0 && o.CreateMilliseconds < 100 {
		return fmt.Errorf("runs of create of %d ms: want at least 100 ms", o.CreateMilliseconds)
	}
	made := o.CreateFiles
	if o.CreateMilliseconds == 0 { // each run's files stay
		made *= len(o.Threads) * (o.Rounds + 1)
	}
	if made > maxExt4NVJCreated {
		return fmt.Errorf("create would make %d files on each disk: want at most %d; choose fewer rounds, threads or files", made, maxExt4NVJCreated)
	}
	return nil
}

// Guest is a booted kernel.
type Guest interface {
	// Kernel is the output of uname -r in the guest.
	Kernel() string
	// RunExt4NVJ calls RunInGuest in the guest. It passes each sample to got at once,
	// and messages to progress, line by line.
	RunExt4NVJ(ctx context.Context, c Case, got func(Sample), progress func(line string)) error
	// Close ends the guest. The error lists the faults that its kernel reported.
	Close() error
}

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
		CreateFiles: o.CreateFiles, CreateMilliseconds: o.CreateMilliseconds, Runs: slices.Clone(o.Before.Runs),
	}
	if o.Native {
		result.Native = cmp.Or(o.Before.Native, &NativeResult{})
	}
	if err := o.Check(); err != nil {
		return result, err
	}
	if b := o.Before; len(b.Runs) > 0 && (b.Rounds != o.Rounds || b.Milliseconds != o.Milliseconds || b.CreateFiles != o.CreateFiles || b.CreateMilliseconds != o.CreateMilliseconds) {
		return result, fmt.Errorf("the earlier result has %d rounds of %d ms, and %d files in %d ms, and this one would have %d, %d, %d and %d: measure all parts, or write to another file (--output)",
			b.Rounds, b.Milliseconds, b.CreateFiles, b.CreateMilliseconds, o.Rounds, o.Milliseconds, o.CreateFiles, o.CreateMilliseconds)
	}
	if b := o.Before; len(b.Runs) > 0 && (b.KVM != o.KVM || b.CPUs != result.CPUs) {
		return result, fmt.Errorf("the earlier result is of another guest (%d processors, KVM %v; this one: %d, %v): measure all parts, or write to another file (--output)", b.CPUs, b.KVM, result.CPUs, o.KVM)
	}
	progress := func(string) {}
	if o.Progress != nil {
		progress = o.Progress
	}
	var disks []Disk
	loads := make(map[string][]string)
	known := Disks()
	if o.Native {
		known = NativeDisks()
	}
	for _, d := range known {
		for _, load := range Loads() {
			if slices.Contains(o.Parts, Part{d.Name, load}) {
				loads[d.Name] = append(loads[d.Name], load)
			}
		}
		if len(loads[d.Name]) > 0 {
			disks = append(disks, d)
		}
	}
	progress("booting")
	g, err := o.Boot(ctx, disks, o.Arrangements)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	result.Kernel = g.Kernel()
	for n, d := range disks {
		c := Case{
			Disk: d.Name, FirstDisk: n * len(o.Arrangements), Loads: loads[d.Name], Arrangements: o.Arrangements, Threads: o.Threads,
			Rounds: o.Rounds, Milliseconds: o.Milliseconds, CreateFiles: o.CreateFiles, CreateMilliseconds: o.CreateMilliseconds,
		}
		var samples []Sample
		err := g.RunExt4NVJ(ctx, c, func(s Sample) { samples = append(samples, s) }, func(line string) { progress(d.Name + ": " + line) })
		if err != nil {
			return result, fmt.Errorf("disk %s: %w", d.Name, err)
		}
		runs, err := runs(c, samples)
		if err != nil {
			return result, fmt.Errorf("disk %s: %w", d.Name, err)
		}
		for _, run := range runs {
			result.put(run)
		}
	}
	slices.SortStableFunc(result.Runs, Run.compare)
	return result, nil
}

// runs combines the samples of a case into runs. No sample may be missing.
func runs(c Case, samples []Sample) (runs []Run, err error) {
	for _, load := range c.Loads {
		for _, threads := range c.Threads {
			for _, arrangement := range c.Arrangements {
				run := Run{Disk: c.Disk, Load: load, Threads: threads, Arrangement: arrangement}
				var timed []LoadResult
				counted := 0
				for _, s := range samples {
					switch {
					case s.Load != load || s.Threads != threads || s.Arrangement != arrangement:
					case s.Counts != nil:
						run.Counts = *s.Counts
						counted++
					case s.Result.Operations == 0 || s.Result.Seconds <= 0:
						return nil, fmt.Errorf("%s, %s, %d threads: a run of %d operations in %g s", load, arrangement, threads, s.Result.Operations, s.Result.Seconds)
					default:
						timed = append(timed, s.Result)
					}
				}
				if len(timed) != c.Rounds || counted != 1 {
					return nil, fmt.Errorf("%s, %s, %d threads: the guest returned %d timed runs and %d counted runs; want %d and 1", load, arrangement, threads, len(timed), counted, c.Rounds)
				}
				of := func(value func(LoadResult) float64) statistics.Spread {
					var values []float64
					for _, r := range timed {
						values = append(values, value(r))
					}
					return statistics.Spread{Median: statistics.Median(values), Low: slices.Min(values), High: slices.Max(values)}
				}
				rate := func(r LoadResult) float64 { return float64(r.Operations) / r.Seconds }
				run.OperationsPerSecond = of(rate)
				for _, r := range timed {
					run.Rates = append(run.Rates, rate(r))
				}
				run.SyncsPerSecond = of(func(r LoadResult) float64 { return float64(r.Syncs) / r.Seconds })
				run.SyncP50Seconds = of(func(r LoadResult) float64 { return r.SyncP50Seconds })
				run.SyncP95Seconds = of(func(r LoadResult) float64 { return r.SyncP95Seconds })
				run.SyncP99Seconds = of(func(r LoadResult) float64 { return r.SyncP99Seconds })
				runs = append(runs, run)
			}
		}
	}
	return runs, nil
}

// put adds a run, and replaces an earlier one of the same kind.
func (n *Result) put(run Run) {
	n.Runs = slices.DeleteFunc(n.Runs, func(old Run) bool { return old.compare(run) == 0 })
	n.Runs = append(n.Runs, run)
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
