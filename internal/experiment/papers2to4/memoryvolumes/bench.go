package memoryvolumes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/daybook-project/daybook/internal/experiment/native"
	"github.com/daybook-project/daybook/internal/experiment/report"
	"github.com/daybook-project/daybook/internal/experiment/statistics"
)

// The arrangements of the container and its neighbour on one disk.
const (
	// Shared is one ext4 for both, SharedOrdered the same with nodioread_nolock.
	Shared        = "shared"
	SharedOrdered = "shared-ordered"
	// Volume is an ext4 for each, with the jbd2 threads in the containers' cgroups.
	Volume = "volume"
	// Memory is the same, but the container's ext4 is ext4nvj: its journal is in memory.
	// MemoryData also has the data of the container's file in this journal.
	Memory     = "memory"
	MemoryData = "memory-data"
)

// Arrangements lists all arrangements.
func Arrangements() []string { return []string{Shared, SharedOrdered, Volume, Memory, MemoryData} }

func inMemory(arrangement string) bool { return arrangement == Memory || arrangement == MemoryData }

// The neighbours write through the page cache.
const (
	Alone     = "none"
	NoFsync   = "no-fsync"
	LowFsync  = "low-fsync"
	HighFsync = "high-fsync"
	// Limited is HighFsync under io.max.
	Limited = "limited"
)

// Neighbours lists all neighbours, and that there is none.
func Neighbours() []string { return []string{Alone, NoFsync, LowFsync, HighFsync, Limited} }

// syncBytes is how much a neighbour writes between two calls of fsync; 0: it calls none.
func syncBytes(neighbour string) uint64 {
	return map[string]uint64{LowFsync: 16 << 20, HighFsync: 1 << 20, Limited: 1 << 20}[neighbour]
}

// The disk does one request after the other, and each takes the same time.
const (
	diskBytes          = 2 << 30
	requestNanoseconds = 100_000
	requestBytes       = 16 << 10
	diskRate           = requestBytes * 1_000_000_000 / requestNanoseconds
	// limitBytes is the neighbour's limit in each second.
	limitBytes = 8 << 20
)

const (
	journalBytes = 128 << 20
	regionBytes  = 256 << 20
	// unusedBytes is the size of the journal on the disk that ext4nvj does not use.
	unusedBytes    = 16 << 20
	partitionBytes = 1 << 30

	writeBytes = 4 << 10
	logBytes   = 16 << 20
	// The neighbour's.
	blockBytes = 1 << 20
	fileBytes  = 256 << 20

	dirtyBytes     = 64 << 20
	writebackBytes = 32 << 20
)

// wantedSyncs and wantedTransactions are the least numbers of which a verdict is made.
const (
	wantedSyncs        = 10_000
	wantedTransactions = 2_000
)

// Options say how much is measured.
type Options struct {
	Kernel Kernel
	// Load is what the container does.
	Load string
	// Arrangements and Neighbours are measured, each with each.
	Arrangements, Neighbours []string
	// Rounds is the number of times that each is measured, in a kernel of its own.
	Rounds int
	// Syncs end a measurement of Writer, if LeastMilliseconds have passed; MostMilliseconds always
	// do. MariaDB works for MostMilliseconds, in whole seconds.
	Syncs uint64
	// JudgedSyncs are Syncs where a goal is for the p99.
	JudgedSyncs                         uint64
	LeastMilliseconds, MostMilliseconds int
	Progress                            func(line string)
}

// Full is the benchmark, Quick a short run that tests it.
var (
	Full = Options{
		Load: Writer, Arrangements: Arrangements(), Neighbours: Neighbours(), Rounds: 3,
		Syncs: wantedSyncs * 2 / 5, JudgedSyncs: wantedSyncs, LeastMilliseconds: 2000, MostMilliseconds: 20000,
	}
	Quick = Options{
		Load: Writer, Arrangements: []string{Shared, MemoryData}, Neighbours: []string{Alone, HighFsync}, Rounds: 1,
		Syncs: 100, JudgedSyncs: 100, LeastMilliseconds: 300, MostMilliseconds: 3000,
	}
)

// Check returns an error if the options are invalid.
func (o Options) Check() error {
	for what, list := range map[string][2][]string{"arrangement": {o.Arrangements, Arrangements()}, "neighbour": {o.Neighbours, Neighbours()}} {
		if len(list[0]) == 0 {
			return fmt.Errorf("no %s: want at least one of %s", what, strings.Join(list[1], ", "))
		}
		for n, name := range list[0] {
			if !slices.Contains(list[1], name) || slices.Contains(list[0][:n], name) {
				return fmt.Errorf("no %s %q, or twice: choose from %s", what, name, strings.Join(list[1], ", "))
			}
		}
	}
	if !slices.Contains(Loads(), o.Load) {
		return fmt.Errorf("no load %q: want %s", o.Load, strings.Join(Loads(), " or "))
	}
	if o.Rounds < 1 || o.Syncs < 1 || o.JudgedSyncs < 1 || o.LeastMilliseconds < 100 || o.MostMilliseconds < o.LeastMilliseconds {
		return fmt.Errorf("%d rounds of %d and %d syncs in %d to %d ms: want at least 1, 1, and 100 ms", o.Rounds, o.Syncs, o.JudgedSyncs, o.LeastMilliseconds, o.MostMilliseconds)
	}
	return nil
}

// Kernel is the native kernel, and the directory of the program nvj.
type Kernel struct {
	native.Kernel
	NVJDirectory string
}

// nativeCase is what the first process of a kernel reads: the measurements in one kernel.
type nativeCase struct {
	Load              string   `json:"load"`
	Arrangement       string   `json:"arrangement"`
	Neighbours        []string `json:"neighbours"`
	Syncs             uint64   `json:"syncs"`
	LeastMilliseconds int      `json:"least_milliseconds"`
	MostMilliseconds  int      `json:"most_milliseconds"`
	Modules           string   `json:"modules"`
	NVJDirectory      string   `json:"nvj_directory"`
}

// nativeLine is a value that it writes: one of these.
type nativeLine struct {
	Sample   *Sample `json:"sample,omitempty"`
	Progress string  `json:"progress,omitempty"`
	// Settings are those of the scheduler, as text.
	Settings string `json:"settings,omitempty"`
}

// Sample is one measurement.
type Sample struct {
	Arrangement string `json:"arrangement"`
	Neighbour   string `json:"neighbour"`
	// Writer and Other are what the two writers report; Other is of its whole run.
	Writer WriterResult `json:"writer"`
	Other  WriterResult `json:"other"`
	// AloneBefore and AloneAfter are the container's writer without the neighbour, right
	// before and after, in the same kernel: where a goal is for the p99. What is after one
	// neighbour is before the next.
	AloneBefore *WriterResult `json:"alone_before,omitempty"`
	AloneAfter  *WriterResult `json:"alone_after,omitempty"`
	// The I/O on the disk meanwhile: all, and that of the two containers with the threads
	// that are in their cgroups. Journal is the container's part of those threads.
	Disk        Writes `json:"disk"`
	Container   Writes `json:"container"`
	NeighbourIO Writes `json:"neighbour_io"`
	Journal     Writes `json:"journal"`
	// Commits is the number of commits of the journal that the container uses.
	Commits uint64 `json:"commits"`
	// MemoryBytes were written to the journal in memory.
	MemoryBytes uint64 `json:"memory_bytes"`
}

// Writes are requests of a cgroup, or of a disk.
type Writes struct {
	Count uint64 `json:"count"`
	Bytes uint64 `json:"bytes"`
}

// WriterResult is the output of nvjournal/kernel/native/writer.c. With the load MariaDB, a sync of the
// container is a transaction.
type WriterResult struct {
	Bytes          uint64  `json:"bytes"`
	Seconds        float64 `json:"seconds"`
	Syncs          uint64  `json:"syncs"`
	SyncP50Seconds float64 `json:"sync_p50_seconds"`
	SyncP99Seconds float64 `json:"sync_p99_seconds"`
	SyncMaxSeconds float64 `json:"sync_max_seconds"`
	// SyncMeanSeconds is of MariaDB, which has no SyncP50Seconds and SyncMaxSeconds.
	SyncMeanSeconds float64 `json:"sync_mean_seconds,omitempty"`
	// Waits is how often the process gave its processor up, Preempted how often another
	// thread took it: of Writer.
	Waits     uint64 `json:"waits"`
	Preempted uint64 `json:"preempted"`
}

// Result is the result of the benchmark.
type Result struct {
	Host     report.Host `json:"host"`
	Kernel   string      `json:"kernel"`
	CPUs     int         `json:"cpus"`
	Settings string      `json:"settings"`
	Load     string      `json:"load"`
	Rounds   int         `json:"rounds"`
	Runs     []Run       `json:"runs"`
}

// Run is an arrangement with a neighbour: the spread of each value over the rounds.
type Run struct {
	Arrangement    string            `json:"arrangement"`
	Neighbour      string            `json:"neighbour"`
	Syncs          uint64            `json:"syncs"`
	SyncsPerSecond statistics.Spread `json:"syncs_per_second"`
	SyncP50Seconds statistics.Spread `json:"sync_p50_seconds"`
	SyncP99Seconds statistics.Spread `json:"sync_p99_seconds"`
	// AloneP99Seconds is the mean of that right before and right after, without the
	// neighbour, and P99OverAlone the ratio in each round. P99Syncs is the smallest number
	// of syncs of which one of these p99 is. All are 0 where no goal is for the p99.
	AloneP99Seconds statistics.Spread `json:"alone_p99_seconds"`
	P99OverAlone    statistics.Spread `json:"p99_over_alone"`
	P99Syncs        uint64            `json:"p99_syncs"`
	SyncMaxSeconds  float64           `json:"sync_max_seconds"`
	// SyncMeanSeconds is of MariaDB, and the values before of Writer.
	SyncMeanSeconds statistics.Spread `json:"sync_mean_seconds"`
	// OtherBytesPerSecond is what the neighbour's writes reach.
	OtherBytesPerSecond statistics.Spread `json:"other_bytes_per_second"`
	// The following are sums over the rounds.
	Seconds     float64 `json:"seconds"`
	Disk        Writes  `json:"disk"`
	Container   Writes  `json:"container"`
	NeighbourIO Writes  `json:"neighbour_io"`
	Journal     Writes  `json:"journal"`
	Commits     uint64  `json:"commits"`
	MemoryBytes uint64  `json:"memory_bytes"`
	Waits       uint64  `json:"waits"`
	Preempted   uint64  `json:"preempted"`
}

// Bench measures. It starts a kernel for each round of each arrangement.
func Bench(ctx context.Context, o Options) (result Result, err error) {
	result = Result{Host: report.ThisHost(), CPUs: report.ThisHost().CPUs, Rounds: o.Rounds, Load: o.Load}
	if err := o.Check(); err != nil {
		return result, err
	}
	if result.Kernel, err = o.Kernel.Release(); err != nil {
		return result, err
	}
	progress := func(string) {}
	if o.Progress != nil {
		progress = o.Progress
	}
	var samples []Sample
	for round := range o.Rounds {
		for n := range o.Arrangements {
			// Each round starts with another arrangement.
			arrangement := o.Arrangements[(n+round)%len(o.Arrangements)]
			what := fmt.Sprintf("round %d of %d, %s: ", round+1, o.Rounds, arrangement)
			progress(what + "booting")
			syncs := o.Syncs
			if inMemory(arrangement) {
				syncs = o.JudgedSyncs
			}
			c := nativeCase{
				Load: o.Load, Arrangement: arrangement, Neighbours: o.Neighbours, Syncs: syncs, LeastMilliseconds: o.LeastMilliseconds, MostMilliseconds: o.MostMilliseconds,
				Modules: o.Kernel.Modules, NVJDirectory: o.Kernel.NVJDirectory,
			}
			err := native.Run(ctx, o.Kernel.Kernel, machine(), c, func(line nativeLine) {
				switch {
				case line.Sample != nil:
					samples = append(samples, *line.Sample)
				case line.Settings != "":
					result.Settings = line.Settings
				default:
					progress(what + line.Progress)
				}
			})
			if err != nil {
				return result, fmt.Errorf("%s: %w", arrangement, err)
			}
		}
	}
	result.Runs, err = runs(o, samples)
	return result, err
}

// machine is the kernel's memory, disk and region.
func machine() native.Machine {
	return native.Machine{
		MemoryBytes: 4 << 30,
		Parameters: []string{
			fmt.Sprintf("reserve_mem=%dM:4096:memory", regionBytes>>20),
			"null_blk.nr_devices=1", "null_blk.memory_backed=1", "null_blk.bs=4096", fmt.Sprintf("null_blk.gb=%d", diskBytes>>30),
			"null_blk.submit_queues=1", "null_blk.hw_queue_depth=1", fmt.Sprintf("null_blk.max_sectors=%d", requestBytes/512),
			"null_blk.irqmode=2", fmt.Sprintf("null_blk.completion_nsec=%d", requestNanoseconds),
		},
		Init: []string{"memory-volumes", "native-init"},
	}
}

// runs combines the samples. None may be missing.
func runs(o Options, samples []Sample) (all []Run, err error) {
	for _, arrangement := range o.Arrangements {
		for _, neighbour := range o.Neighbours {
			var of []Sample
			for _, s := range samples {
				if s.Arrangement == arrangement && s.Neighbour == neighbour {
					of = append(of, s)
				}
			}
			if len(of) != o.Rounds {
				return nil, fmt.Errorf("%s, %s: %d measurements, want %d", arrangement, neighbour, len(of), o.Rounds)
			}
			run, err := combine(of)
			if err != nil {
				return nil, fmt.Errorf("%s, %s: %w", arrangement, neighbour, err)
			}
			all = append(all, run)
		}
	}
	return all, nil
}

func combine(samples []Sample) (Run, error) {
	run := Run{Arrangement: samples[0].Arrangement, Neighbour: samples[0].Neighbour}
	for _, s := range samples {
		if s.Writer.Syncs == 0 || s.Writer.Seconds <= 0 {
			return run, errors.New("a measurement without a sync")
		}
		run.Syncs += s.Writer.Syncs
		run.Seconds += s.Writer.Seconds
		run.SyncMaxSeconds = max(run.SyncMaxSeconds, s.Writer.SyncMaxSeconds)
		run.Disk.add(s.Disk)
		run.Container.add(s.Container)
		run.NeighbourIO.add(s.NeighbourIO)
		run.Journal.add(s.Journal)
		run.Commits += s.Commits
		run.MemoryBytes += s.MemoryBytes
		run.Waits += s.Writer.Waits
		run.Preempted += s.Writer.Preempted
	}
	spread := func(value func(Sample) float64) statistics.Spread {
		var values []float64
		for _, s := range samples {
			values = append(values, value(s))
		}
		return statistics.SpreadOf(values)
	}
	run.SyncsPerSecond = spread(func(s Sample) float64 { return float64(s.Writer.Syncs) / s.Writer.Seconds })
	run.SyncP50Seconds = spread(func(s Sample) float64 { return s.Writer.SyncP50Seconds })
	run.SyncMeanSeconds = spread(func(s Sample) float64 { return s.Writer.SyncMeanSeconds })
	run.SyncP99Seconds = spread(func(s Sample) float64 { return s.Writer.SyncP99Seconds })
	if err := run.compareAlone(samples); err != nil {
		return run, err
	}
	run.OtherBytesPerSecond = spread(func(s Sample) float64 {
		if s.Other.Seconds == 0 {
			return 0
		}
		return float64(s.Other.Bytes) / s.Other.Seconds
	})
	return run, nil
}

// compareAlone enters the ratio of each sample to the two measurements around it.
func (run *Run) compareAlone(samples []Sample) error {
	var alone, ratios []float64
	for _, s := range samples {
		if s.AloneBefore == nil || s.AloneAfter == nil {
			if s.Neighbour != Alone && inMemory(s.Arrangement) {
				return errors.New("a measurement without those around it")
			}
			continue
		}
		least := min(s.Writer.Syncs, s.AloneBefore.Syncs, s.AloneAfter.Syncs)
		if len(ratios) == 0 || least < run.P99Syncs {
			run.P99Syncs = least
		}
		mean := (s.AloneBefore.SyncP99Seconds + s.AloneAfter.SyncP99Seconds) / 2
		if mean <= 0 {
			return errors.New("a measurement that is too short for the clock")
		}
		alone, ratios = append(alone, mean), append(ratios, s.Writer.SyncP99Seconds/mean)
	}
	run.AloneP99Seconds, run.P99OverAlone = statistics.SpreadOf(alone), statistics.SpreadOf(ratios)
	return nil
}

func (w *Writes) add(other Writes) {
	w.Count += other.Count
	w.Bytes += other.Bytes
}

// since is the difference to an earlier reading.
func (w Writes) since(before Writes) Writes {
	return Writes{Count: w.Count - before.Count, Bytes: w.Bytes - before.Bytes}
}

func (r Result) run(arrangement, neighbour string) *Run {
	for n := range r.Runs {
		if r.Runs[n].Arrangement == arrangement && r.Runs[n].Neighbour == neighbour {
			return &r.Runs[n]
		}
	}
	return nil
}
