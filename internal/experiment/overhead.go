package experiment

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/daybook-project/daybook/internal/disksim"
	"github.com/daybook-project/daybook/internal/workload"
)

// OverheadBound is the least rate with the daemon over the rate without it
// that is good enough.
const OverheadBound = 0.99

// OverheadOptions say how much is measured.
type OverheadOptions struct {
	// Program is the daybook whose daemon runs.
	Program string
	// Pairs of rounds, one with the daemon and one without.
	Pairs int
	// Scale divides the calls of a round, 1 or more.
	Scale int
}

// overheadInterval is the daemon's.
const overheadInterval = 5 * time.Second

// overheadLoad is one operation, with the calls of a round: some tenths of a
// second.
type overheadLoad struct {
	name      string
	operation string
	calls     int
	// timed: the disk takes its model's time.
	timed bool
	// bounded: OverheadBound holds for it.
	bounded bool
}

// overheadLoads: an fsync takes what a solid-state disk takes; beside it, for
// comparison, what it is without any disk, where nothing hides a microsecond.
var overheadLoads = []overheadLoad{
	{name: workload.Mkdir, operation: workload.Mkdir, calls: 20_000, bounded: true},
	{name: workload.CreatUnlink, operation: workload.CreatUnlink, calls: 40_000, bounded: true},
	{name: workload.AppendFsync, operation: workload.AppendFsync, calls: 300, timed: true, bounded: true},
	{name: workload.AppendFsync + ", no disk time", operation: workload.AppendFsync, calls: 1500},
}

// overheadModel is the model of the disk.
const overheadModel = "ssd"

// roundsEach is how often a load is run in each half of a pair; the median
// counts.
const roundsEach = 3

// Overhead is what the daemon costs the programs on the host.
type Overhead struct {
	IntervalSeconds float64       `json:"interval_seconds"`
	Rows            []OverheadRow `json:"rows"`
	// Programs' times are without ClockNanoseconds a run, which the
	// kernel's counting adds.
	Programs         []ProgramCost `json:"programs"`
	ClockNanoseconds float64       `json:"clock_nanoseconds"`
	Host             Host          `json:"host"`
}

// OverheadRow is one operation.
type OverheadRow struct {
	Operation string `json:"operation"`
	Calls     int    `json:"calls_per_round"`
	Pairs     int    `json:"pairs"`
	// Bounded: OverheadBound holds for it.
	Bounded bool `json:"bounded"`
	// SecondsWithout and SecondsWith are medians of one call's time.
	SecondsWithout float64 `json:"seconds_per_call_without"`
	SecondsWith    float64 `json:"seconds_per_call_with"`
	// Ratio is the median over the pairs of the rate with the daemon over
	// the rate without, Low to High its 95 % range by bootstrap.
	Ratio float64 `json:"ratio"`
	Low   float64 `json:"ratio_low"`
	High  float64 `json:"ratio_high"`
	// Events are the runs of BPF programs during the calls, Nanoseconds
	// their time, whoever ran them; for each call.
	Events      float64 `json:"bpf_events_per_call"`
	Nanoseconds float64 `json:"bpf_nanoseconds_per_call"`
	// WrittenNanoseconds are spent later, when jbd2 writes out what the
	// calls left behind.
	WrittenNanoseconds float64 `json:"bpf_written_nanoseconds_per_call"`
}

// Expected is the ratio by the time of the BPF programs during the calls, as
// if all of it was in the caller's way.
func (r OverheadRow) Expected() float64 {
	if r.SecondsWithout <= 0 {
		return 1
	}
	return r.SecondsWithout / (r.SecondsWithout + r.Nanoseconds*1e-9)
}

// ProgramCost is one BPF program under one operation: runs and time of each
// call, during the calls and during the write-out after them.
type ProgramCost struct {
	Operation          string  `json:"operation"`
	Program            string  `json:"program"`
	Events             float64 `json:"events_per_call"`
	Nanoseconds        float64 `json:"nanoseconds_per_call"`
	WrittenEvents      float64 `json:"written_events_per_call"`
	WrittenNanoseconds float64 `json:"written_nanoseconds_per_call"`
}

// PerEvent is the mean time of one run in nanoseconds.
func (p ProgramCost) PerEvent() float64 {
	return (p.Nanoseconds + p.WrittenNanoseconds) / (p.Events + p.WrittenEvents)
}

// rounds runs the loads on one stage.
type rounds struct {
	lab   Lab
	stage *stage
	// cgroup is the load's.
	cgroup string
	scale  int
	number int
}

// RunOverhead measures the rates with and without the daemon, alternating, and
// then, apart because counting costs too, the time of the BPF programs.
//
// The disk is a simulated one that takes no time, so that the processor's part
// of a call is as large as it can be; but for the loads that wait for a disk,
// which have a solid-state disk's.
func (l Lab) RunOverhead(ctx context.Context, o OverheadOptions) (result Overhead, err error) {
	if o.Pairs < 1 || o.Scale < 1 {
		return result, fmt.Errorf("%d pairs of 1/%d: want 1 or more", o.Pairs, o.Scale)
	}
	l.progress("overhead", "preparing a disk", nil)
	model, err := disksim.Preset(overheadModel)
	if err != nil {
		return result, err
	}
	stage, err := build(ctx, l.Tree, stageOptions{Parameters: model, SizeBytes: diskBytes, JournalBytes: journalBytes})
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, stage.close()) }()
	r := &rounds{lab: l, stage: stage, scale: o.Scale}
	if r.cgroup, err = stage.group.add("load", stage.disk.Device, 0); err != nil {
		return result, err
	}
	result = Overhead{IntervalSeconds: overheadInterval.Seconds(), Host: thisHost()}
	// What is cold is warmed.
	if _, err := r.all(ctx, 1); err != nil {
		return result, err
	}
	without, with := make([][]float64, len(overheadLoads)), make([][]float64, len(overheadLoads))
	for pair := range o.Pairs {
		l.progress("overhead", fmt.Sprintf("pair %d of %d", pair+1, o.Pairs), nil)
		for half := range 2 {
			if half == pair%2 {
				err = r.into(ctx, without)
			} else {
				err = r.withDaemon(ctx, o.Program, with)
			}
			if err != nil {
				return result, err
			}
		}
	}
	for n, load := range overheadLoads {
		ratios := make([]float64, o.Pairs)
		for pair := range ratios {
			ratios[pair] = without[n][pair] / with[n][pair]
		}
		row := OverheadRow{
			Operation: load.name, Calls: r.calls(n), Pairs: o.Pairs, Bounded: load.bounded,
			SecondsWithout: median(without[n]), SecondsWith: median(with[n]), Ratio: median(ratios),
		}
		row.Low, row.High = bootstrap(ratios)
		result.Rows = append(result.Rows, row)
	}
	return result, r.countPrograms(ctx, &result)
}

func (r *rounds) calls(load int) int { return max(1, overheadLoads[load].calls/r.scale) }

// all runs each load so many times and gives the median seconds of one call.
func (r *rounds) all(ctx context.Context, times int) ([]float64, error) {
	seconds := make([]float64, len(overheadLoads))
	for n := range overheadLoads {
		var each []float64
		for range times {
			err := r.one(ctx, n, func(do func() (workload.Result, error)) error {
				done, err := do()
				if err == nil {
					each = append(each, done.CallSeconds/float64(done.Calls))
				}
				return err
			})
			if err != nil {
				return nil, err
			}
		}
		seconds[n] = median(each)
	}
	return seconds, nil
}

// into appends a round's seconds to those of the rounds before.
func (r *rounds) into(ctx context.Context, columns [][]float64) error {
	seconds, err := r.all(ctx, roundsEach)
	for n := range seconds {
		columns[n] = append(columns[n], seconds[n])
	}
	return err
}

func (r *rounds) withDaemon(ctx context.Context, program string, columns [][]float64) (err error) {
	d, err := startDaemon(program, r.stage.disk.Device.Name, r.cgroup, overheadInterval)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.stop()) }()
	if err := d.awaitCalm(ctx); err != nil {
		return err
	}
	return r.into(ctx, columns)
}

// one prepares a load in a directory of its own, lets the caller do it, and
// takes away what it made.
func (r *rounds) one(ctx context.Context, load int, around func(do func() (workload.Result, error)) error) error {
	r.number++
	job := workload.Job{Operation: overheadLoads[load].operation, In: r.stage.path(strconv.Itoa(r.number)), Count: r.calls(load)}
	if err := workload.Prepare(ctx, job); err != nil {
		return err
	}
	child, err := workload.Start(workload.Spec{Jobs: []workload.Job{job}}, r.stage.group.directory(r.cgroup))
	if err != nil {
		return err
	}
	ended := false
	err = settle(r.stage.directory)
	if err == nil {
		err = around(func() (result workload.Result, err error) {
			if overheadLoads[load].timed {
				if err := r.stage.disk.SetInstant(false); err != nil {
					return result, err
				}
				defer func() { err = errors.Join(err, r.stage.disk.SetInstant(true)) }()
			}
			if err := child.Go(); err != nil {
				return result, err
			}
			ended = true
			return child.Wait(ctx)
		})
	}
	if !ended {
		_, stopErr := child.Stop()
		err = errors.Join(err, stopErr)
	}
	if err != nil {
		return err
	}
	if err := os.RemoveAll(job.In); err != nil {
		return err
	}
	return settle(r.stage.directory)
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// resamples are enough for a 95 % range.
const resamples = 4000

// bootstrap gives the 95 % range of the median: that of the medians of samples
// drawn from the values. The same values give the same range.
func bootstrap(values []float64) (low, high float64) {
	source := rand.New(rand.NewPCG(1, uint64(len(values))))
	medians := make([]float64, resamples)
	drawn := make([]float64, len(values))
	for n := range medians {
		for i := range drawn {
			drawn[i] = values[source.IntN(len(values))]
		}
		medians[n] = median(drawn)
	}
	slices.Sort(medians)
	return medians[resamples*25/1000], medians[resamples*975/1000-1]
}

// Check says whether an operation is slower than the bound for certain; nil:
// no.
func (o Overhead) Check() error {
	var errs []error
	for _, row := range o.Rows {
		if row.Bounded && row.High < OverheadBound {
			errs = append(errs, fmt.Errorf("%s: %.3f (%.3f to %.3f) of the rate without the daemon, want %.2f", row.Operation, row.Ratio, row.Low, row.High, OverheadBound))
		}
	}
	return errors.Join(errs...)
}
