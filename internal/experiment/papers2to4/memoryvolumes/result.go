package memoryvolumes

import (
	"errors"
	"fmt"

	"github.com/daybook-project/daybook/internal/experiment/report"
	"github.com/daybook-project/daybook/internal/experiment/statistics"
)

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
	spread := func(value func(Sample) float64) statistics.Spread { return statistics.SpreadBy(samples, value) }
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
