package experiment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Targets of ext4nvj: paper 3's gains, at 16 threads, its Figs. 4 and 5.
const (
	// VarmailOverStock and CreateOverStock are over ext4 with its journal on
	// the disk.
	VarmailOverStock = 2.9
	CreateOverStock  = 1.97
	// VarmailOverFine and CreateOverFine are over a journal in the same memory,
	// of changed lines, with one lock.
	VarmailOverFine = 2.3
	CreateOverFine  = 1.68

	ext4nvjTargetThreads = 16
)

// The file systems that are compared.
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
	// NVJSmall is ext4nvj with small files' data in its journal (the papers'
	// future work), and one partition.
	NVJSmall = "ext4nvj-small"
)

// Ext4NVJArrangements lists them.
func Ext4NVJArrangements() []string {
	return []string{StockDisk, StockPmem, NVJBlocks, NVJFine, NVJOne, NVJEight, NVJSmall}
}

// NeedsExt4NVJ says whether one of the arrangements needs the module.
func NeedsExt4NVJ(arrangements []string) bool {
	return slices.ContainsFunc(arrangements, func(a string) bool { return ext4nvjOptions(a) != "" })
}

// ext4nvjOptions are the mount options of an arrangement, besides the journal's
// path; "": it is stock ext4.
func ext4nvjOptions(arrangement string) string {
	return map[string]string{
		NVJBlocks: "partitions=1,records=blocks,lock=one", NVJFine: "partitions=1,records=lines,lock=one",
		NVJOne: "partitions=1", NVJEight: "partitions=8", NVJSmall: "partitions=1,journal_data=small",
	}[arrangement]
}

// The loads, those of nvjournal/kernel/bench.
const (
	Ext4NVJVarmail = "varmail"
	Ext4NVJCreate  = "create"

	ext4nvjMailFiles = 1000
)

// Ext4NVJLoads lists them.
func Ext4NVJLoads() []string { return []string{Ext4NVJVarmail, Ext4NVJCreate} }

// Ext4NVJDisk is a kind of disk under the file systems; each has one of its own.
type Ext4NVJDisk struct {
	Name string
	// Limits that QEMU puts on it; 0: none, and it is as fast as memory.
	BytesPerSecond, IOPS int64
}

// Ext4NVJDisks lists them.
func Ext4NVJDisks() []Ext4NVJDisk {
	return []Ext4NVJDisk{{Name: "undelayed"}, {Name: "throttled", BytesPerSecond: 64 << 20, IOPS: 500}}
}

// Ext4NVJDiskNames are their names.
func Ext4NVJDiskNames() (names []string) {
	for _, d := range Ext4NVJDisks() {
		names = append(names, d.Name)
	}
	return names
}

// What the guest has for each arrangement: a disk of each kind, and persistent
// memory, all of which is the journal: as much as paper 3 gives it. The journal of
// stock ext4 on its disk is as large.
const (
	Ext4NVJDiskBytes    = 1 << 30
	Ext4NVJJournalBytes = 256 << 20

	// ext4nvjUnusedBytes is the journal on the disk of ext4nvj, which must be
	// there, and is not used.
	ext4nvjUnusedBytes = 16 << 20
)

// Ext4NVJPart is a load on a kind of disk, as throttled/varmail.
type Ext4NVJPart struct{ Disk, Load string }

func (p Ext4NVJPart) String() string { return p.Disk + "/" + p.Load }

// Ext4NVJParts lists those of the benchmark, in their order. create is not on the
// throttled disk: its time has one fsync at its end, and what it leaves to be
// written back afterwards takes that disk longer than all else.
func Ext4NVJParts() []Ext4NVJPart {
	return []Ext4NVJPart{{"undelayed", Ext4NVJVarmail}, {"undelayed", Ext4NVJCreate}, {"throttled", Ext4NVJVarmail}}
}

// Ext4NVJOptions say what is measured.
type Ext4NVJOptions struct {
	// Boot boots a guest with, for each kind of disk and each arrangement, in
	// this order, a disk, and for each arrangement persistent memory.
	Boot         func(ctx context.Context, disks []Ext4NVJDisk, arrangements []string) (Ext4NVJGuest, error)
	Parts        []Ext4NVJPart
	Arrangements []string
	Threads      []int
	// Rounds are timed; one before them warms up, and is counted.
	Rounds int
	// Milliseconds a run of varmail takes; create makes CreateFiles.
	Milliseconds int
	CreateFiles  int
	// Tell is told what is done; nil: nobody.
	Tell func(line string)
	// Before is a result whose runs are kept where none is measured now.
	Before Ext4NVJ
}

// FullExt4NVJ is the benchmark, QuickExt4NVJ a look whether it works.
var (
	FullExt4NVJ = Ext4NVJOptions{
		Parts: Ext4NVJParts(), Arrangements: Ext4NVJArrangements(),
		Threads: []int{1, 2, 4, 8, 16}, Rounds: 3, Milliseconds: 1000, CreateFiles: 3072,
	}
	QuickExt4NVJ = Ext4NVJOptions{
		Parts: Ext4NVJParts()[:2], Arrangements: Ext4NVJArrangements(),
		Threads: []int{1, 16}, Rounds: 1, Milliseconds: 500, CreateFiles: 1024,
	}
)

// Bounds of the options.
const (
	maxExt4NVJThreads = 64
	maxExt4NVJRounds  = 33
	// maxExt4NVJCreated bounds what create leaves on a disk, in all rounds.
	maxExt4NVJCreated = 100_000
)

// Check says what is wrong with the options.
func (o Ext4NVJOptions) Check() error {
	if len(o.Parts) == 0 || len(o.Arrangements) == 0 {
		return errors.New("nothing to measure: want at least one part and one arrangement")
	}
	for n, part := range o.Parts {
		if !slices.Contains(Ext4NVJDiskNames(), part.Disk) || !slices.Contains(Ext4NVJLoads(), part.Load) || slices.Contains(o.Parts[:n], part) {
			return fmt.Errorf("no part %s, or twice: choose a disk of %s and a load of %s, as %s", part, strings.Join(Ext4NVJDiskNames(), ", "), strings.Join(Ext4NVJLoads(), ", "), Ext4NVJParts()[0])
		}
	}
	for n, name := range o.Arrangements {
		if !slices.Contains(Ext4NVJArrangements(), name) || slices.Contains(o.Arrangements[:n], name) {
			return fmt.Errorf("no arrangement %q, or twice: choose of %s", name, strings.Join(Ext4NVJArrangements(), ", "))
		}
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
	if made := o.CreateFiles * len(o.Threads) * (o.Rounds + 1); made > maxExt4NVJCreated {
		return fmt.Errorf("create would make %d files on each disk: want at most %d, by fewer rounds, threads or files", made, maxExt4NVJCreated)
	}
	return nil
}

// Ext4NVJGuest is a booted kernel.
type Ext4NVJGuest interface {
	// Kernel is what uname -r says there.
	Kernel() string
	// RunExt4NVJ calls RunExt4NVJ there, and gives each sample as it comes;
	// tell gets what it says meanwhile.
	RunExt4NVJ(ctx context.Context, c Ext4NVJCase, got func(Ext4NVJSample), tell func(line string)) error
	// Close ends it. The error says what faults the kernel reported of itself.
	Close() error
}

// Ext4NVJCase is what a guest is told to run on one kind of disk.
type Ext4NVJCase struct {
	Disk string `json:"disk"`
	// FirstDisk is the number of the first arrangement's disk.
	FirstDisk    int      `json:"first_disk"`
	Loads        []string `json:"loads"`
	Arrangements []string `json:"arrangements"`
	Threads      []int    `json:"threads"`
	Rounds       int      `json:"rounds"`
	Milliseconds int      `json:"milliseconds"`
	CreateFiles  int      `json:"create_files"`
}

// Ext4NVJSample is one run in a guest.
type Ext4NVJSample struct {
	Load        string `json:"load"`
	Arrangement string `json:"arrangement"`
	Threads     int    `json:"threads"`
	// Result is the load's own.
	Result Ext4NVJResult `json:"result"`
	// Counts are there in the round that is counted, whose times do not count.
	Counts *Ext4NVJCounts `json:"counts,omitempty"`
}

// Ext4NVJResult is what nvjournal/kernel/bench prints of a run.
type Ext4NVJResult struct {
	Operations     uint64  `json:"operations"`
	Seconds        float64 `json:"seconds"`
	Syncs          uint64  `json:"syncs"`
	SyncP50Seconds float64 `json:"sync_p50_seconds"`
	SyncP95Seconds float64 `json:"sync_p95_seconds"`
	SyncP99Seconds float64 `json:"sync_p99_seconds"`
}

// Ext4NVJ is what the benchmark came to.
type Ext4NVJ struct {
	Host   Host   `json:"host"`
	Kernel string `json:"guest_kernel"`
	CPUs   int    `json:"guest_cpus"`
	Rounds int    `json:"rounds"`
	// Milliseconds and CreateFiles as in the options.
	Milliseconds int          `json:"milliseconds"`
	CreateFiles  int          `json:"create_files"`
	Runs         []Ext4NVJRun `json:"runs"`
}

// Ext4NVJRun is an arrangement with a load, a disk and a number of threads, over
// all rounds: spreads of each round's values.
type Ext4NVJRun struct {
	Disk                string        `json:"disk"`
	Load                string        `json:"load"`
	Threads             int           `json:"threads"`
	Arrangement         string        `json:"arrangement"`
	OperationsPerSecond Spread        `json:"operations_per_second"`
	SyncsPerSecond      Spread        `json:"syncs_per_second"`
	SyncP50Seconds      Spread        `json:"sync_p50_seconds"`
	SyncP95Seconds      Spread        `json:"sync_p95_seconds"`
	SyncP99Seconds      Spread        `json:"sync_p99_seconds"`
	Counts              Ext4NVJCounts `json:"counts"`
}

// ext4nvjCPUs are the guest's processors.
const ext4nvjCPUs = 2

// BenchExt4NVJ measures in one boot.
func BenchExt4NVJ(ctx context.Context, o Ext4NVJOptions) (result Ext4NVJ, err error) {
	result = Ext4NVJ{Host: thisHost(), CPUs: ext4nvjCPUs, Rounds: o.Rounds, Milliseconds: o.Milliseconds, CreateFiles: o.CreateFiles, Runs: slices.Clone(o.Before.Runs)}
	if err := o.Check(); err != nil {
		return result, err
	}
	if b := o.Before; len(b.Runs) > 0 && (b.Rounds != o.Rounds || b.Milliseconds != o.Milliseconds || b.CreateFiles != o.CreateFiles) {
		return result, fmt.Errorf("the figures kept before are of %d rounds, %d ms, %d files, and these would be of %d, %d, %d: measure all, or write to another file (--output)",
			b.Rounds, b.Milliseconds, b.CreateFiles, o.Rounds, o.Milliseconds, o.CreateFiles)
	}
	tell := func(string) {}
	if o.Tell != nil {
		tell = o.Tell
	}
	var disks []Ext4NVJDisk
	loads := make(map[string][]string)
	for _, d := range Ext4NVJDisks() {
		for _, load := range Ext4NVJLoads() {
			if slices.Contains(o.Parts, Ext4NVJPart{d.Name, load}) {
				loads[d.Name] = append(loads[d.Name], load)
			}
		}
		if len(loads[d.Name]) > 0 {
			disks = append(disks, d)
		}
	}
	tell("booting")
	g, err := o.Boot(ctx, disks, o.Arrangements)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	result.Kernel = g.Kernel()
	for n, d := range disks {
		c := Ext4NVJCase{
			Disk: d.Name, FirstDisk: n * len(o.Arrangements), Loads: loads[d.Name], Arrangements: o.Arrangements, Threads: o.Threads,
			Rounds: o.Rounds, Milliseconds: o.Milliseconds, CreateFiles: o.CreateFiles,
		}
		var samples []Ext4NVJSample
		err := g.RunExt4NVJ(ctx, c, func(s Ext4NVJSample) { samples = append(samples, s) }, func(line string) { tell(d.Name + ": " + line) })
		if err != nil {
			return result, fmt.Errorf("disk %s: %w", d.Name, err)
		}
		runs, err := ext4nvjRuns(c, samples)
		if err != nil {
			return result, fmt.Errorf("disk %s: %w", d.Name, err)
		}
		for _, run := range runs {
			result.put(run)
		}
	}
	slices.SortStableFunc(result.Runs, Ext4NVJRun.compare)
	return result, nil
}

// ext4nvjRuns makes runs of a case's samples, of which none may be missing.
func ext4nvjRuns(c Ext4NVJCase, samples []Ext4NVJSample) (runs []Ext4NVJRun, err error) {
	for _, load := range c.Loads {
		for _, threads := range c.Threads {
			for _, arrangement := range c.Arrangements {
				run := Ext4NVJRun{Disk: c.Disk, Load: load, Threads: threads, Arrangement: arrangement}
				var timed []Ext4NVJResult
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
					return nil, fmt.Errorf("%s, %s, %d threads: the guest gave %d timed runs and %d counted; want %d and 1", load, arrangement, threads, len(timed), counted, c.Rounds)
				}
				of := func(value func(Ext4NVJResult) float64) Spread {
					var values []float64
					for _, r := range timed {
						values = append(values, value(r))
					}
					return Spread{Median: median(values), Low: slices.Min(values), High: slices.Max(values)}
				}
				run.OperationsPerSecond = of(func(r Ext4NVJResult) float64 { return float64(r.Operations) / r.Seconds })
				run.SyncsPerSecond = of(func(r Ext4NVJResult) float64 { return float64(r.Syncs) / r.Seconds })
				run.SyncP50Seconds = of(func(r Ext4NVJResult) float64 { return r.SyncP50Seconds })
				run.SyncP95Seconds = of(func(r Ext4NVJResult) float64 { return r.SyncP95Seconds })
				run.SyncP99Seconds = of(func(r Ext4NVJResult) float64 { return r.SyncP99Seconds })
				runs = append(runs, run)
			}
		}
	}
	return runs, nil
}

// put keeps a run, in the place of one before of the same kind.
func (n *Ext4NVJ) put(run Ext4NVJRun) {
	n.Runs = slices.DeleteFunc(n.Runs, func(old Ext4NVJRun) bool { return old.compare(run) == 0 })
	n.Runs = append(n.Runs, run)
}

// compare is by disk, load, threads and arrangement, in this order.
func (r Ext4NVJRun) compare(other Ext4NVJRun) int {
	at := func(all []string, a, b string) int { return slices.Index(all, a) - slices.Index(all, b) }
	return cmp.Or(at(Ext4NVJDiskNames(), r.Disk, other.Disk), at(Ext4NVJLoads(), r.Load, other.Load), r.Threads-other.Threads,
		at(Ext4NVJArrangements(), r.Arrangement, other.Arrangement))
}

// run is nil if it was not measured.
func (n Ext4NVJ) run(disk, load, arrangement string, threads int) *Ext4NVJRun {
	want := Ext4NVJRun{Disk: disk, Load: load, Threads: threads, Arrangement: arrangement}
	for k := range n.Runs {
		if n.Runs[k].compare(want) == 0 {
			return &n.Runs[k]
		}
	}
	return nil
}
