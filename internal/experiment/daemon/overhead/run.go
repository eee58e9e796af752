package overhead

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/daybook-project/daybook/internal/disksim"
	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/experiment/report"
	"github.com/daybook-project/daybook/internal/experiment/statistics"
	"github.com/daybook-project/daybook/internal/workload"
)

// Bound is the minimum ratio of the rate with the daemon to the rate without it.
const Bound = 0.99

// Options configure the measurement.
type Options struct {
	// Program is the daybook program that runs as the daemon.
	Program string
	// Pairs of rounds, one with the daemon and one without.
	Pairs int
	// Scale divides the calls of a round, 1 or more.
	Scale int
}

// daemonInterval is the interval of the daemon.
const daemonInterval = 5 * time.Second

// measuredLoad is one operation, with the number of calls in a round, which take
// some tenths of a second.
type measuredLoad struct {
	name      string
	operation string
	calls     int
	// timed means that the disk has the delays of its model.
	timed bool
	// bounded means that Bound applies to it.
	bounded bool
}

// measuredLoads are the loads. An fsync is measured with the delays of a
// solid-state disk and, for comparison, without disk delays, which could hide
// the daemon's cost.
var measuredLoads = []measuredLoad{
	{name: workload.Mkdir, operation: workload.Mkdir, calls: 20_000, bounded: true},
	{name: workload.CreatUnlink, operation: workload.CreatUnlink, calls: 40_000, bounded: true},
	{name: workload.AppendFsync, operation: workload.AppendFsync, calls: 300, timed: true, bounded: true},
	{name: workload.AppendFsync + ", no disk time", operation: workload.AppendFsync, calls: 1500},
}

// diskModel is the model of the disk.
const diskModel = "ssd"

// roundsEach is the number of runs of a load in each half of a pair; the result
// uses their median.
const roundsEach = 3

// Result is the cost of the daemon for the programs on the host.
type Result struct {
	IntervalSeconds float64 `json:"interval_seconds"`
	Rows            []Row   `json:"rows"`
	// Programs' times exclude ClockNanoseconds a run, the cost of the
	// kernel's own time measurement.
	Programs         []ProgramCost `json:"programs"`
	ClockNanoseconds float64       `json:"clock_nanoseconds"`
	Host             report.Host   `json:"host"`
}

// Row is one operation.
type Row struct {
	Operation string `json:"operation"`
	Calls     int    `json:"calls_per_round"`
	Pairs     int    `json:"pairs"`
	// Bounded means that Bound applies to it.
	Bounded bool `json:"bounded"`
	// SecondsWithout and SecondsWith are medians of one call's time.
	SecondsWithout float64 `json:"seconds_per_call_without"`
	SecondsWith    float64 `json:"seconds_per_call_with"`
	// Ratio is the median over the pairs of the ratio of the rate with the
	// daemon to the rate without. Low to High is its 95 % range by bootstrap.
	Ratio float64 `json:"ratio"`
	Low   float64 `json:"ratio_low"`
	High  float64 `json:"ratio_high"`
	// Events are the runs of BPF programs during the calls, Nanoseconds
	// their time, in all processes; both for each call.
	Events      float64 `json:"bpf_events_per_call"`
	Nanoseconds float64 `json:"bpf_nanoseconds_per_call"`
	// WrittenNanoseconds are spent later, when jbd2 writes out the changes of
	// the calls.
	WrittenNanoseconds float64 `json:"bpf_written_nanoseconds_per_call"`
}

// Expected is the ratio under the assumption that the caller waits for all runs
// of BPF programs during the calls.
func (r Row) Expected() float64 {
	if r.SecondsWithout <= 0 {
		return 1
	}
	return r.SecondsWithout / (r.SecondsWithout + r.Nanoseconds*1e-9)
}

// ProgramCost is one BPF program under one operation: runs and time for each
// call, during the calls and during the write-out after them.
type ProgramCost struct {
	Operation          string  `json:"operation"`
	Program            string  `json:"program"`
	Events             float64 `json:"events_per_call"`
	Nanoseconds        float64 `json:"nanoseconds_per_call"`
	WrittenEvents      float64 `json:"written_events_per_call"`
	WrittenNanoseconds float64 `json:"written_nanoseconds_per_call"`
}

// PerEvent returns the mean time of one run in nanoseconds.
func (p ProgramCost) PerEvent() float64 {
	return (p.Nanoseconds + p.WrittenNanoseconds) / (p.Events + p.WrittenEvents)
}

// rounds runs the loads on one file system.
type rounds struct {
	lab fixture.Lab
	fs  *fixture.FileSystem
	// cgroup is the cgroup of the load.
	cgroup string
	scale  int
	number int
}

// Run measures the rates with and without the daemon in alternation. Afterwards
// it measures the time of the BPF programs, separately because that costs time too.
//
// The disk is a simulated one without delays, so that processor time is the
// largest possible part of a call. Only loads that wait for a disk get the delays
// of a solid-state disk.
func Run(ctx context.Context, l fixture.Lab, o Options) (result Result, err error) {
	if o.Pairs < 1 || o.Scale < 1 {
		return result, fmt.Errorf("%d pairs of 1/%d: want 1 or more", o.Pairs, o.Scale)
	}
	l.Announce("overhead", "preparing a disk", nil)
	model, err := disksim.Preset(diskModel)
	if err != nil {
		return result, err
	}
	fs, err := fixture.MakeFileSystem(ctx, l.Tree, fixture.Options{Parameters: model, SizeBytes: fixture.DiskBytes, JournalBytes: fixture.JournalBytes})
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, fs.Close()) }()
	r := &rounds{lab: l, fs: fs, scale: o.Scale}
	if r.cgroup, err = fs.Group.Add("load", fs.Disk.Device, 0); err != nil {
		return result, err
	}
	result = Result{IntervalSeconds: daemonInterval.Seconds(), Host: report.ThisHost()}
	// Warm up the caches.
	if _, err := r.all(ctx, 1); err != nil {
		return result, err
	}
	without, with := make([][]float64, len(measuredLoads)), make([][]float64, len(measuredLoads))
	for pair := range o.Pairs {
		l.Announce("overhead", fmt.Sprintf("pair %d of %d", pair+1, o.Pairs), nil)
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
	for n, load := range measuredLoads {
		ratios := make([]float64, o.Pairs)
		for pair := range ratios {
			ratios[pair] = without[n][pair] / with[n][pair]
		}
		row := Row{
			Operation: load.name, Calls: r.calls(n), Pairs: o.Pairs, Bounded: load.bounded,
			SecondsWithout: statistics.Median(without[n]), SecondsWith: statistics.Median(with[n]), Ratio: statistics.Median(ratios),
		}
		row.Low, row.High = statistics.Bootstrap(ratios)
		result.Rows = append(result.Rows, row)
	}
	return result, r.countPrograms(ctx, &result)
}

func (r *rounds) calls(load int) int { return max(1, measuredLoads[load].calls/r.scale) }

// all runs each load this many times and returns the median seconds of one call.
func (r *rounds) all(ctx context.Context, times int) ([]float64, error) {
	seconds := make([]float64, len(measuredLoads))
	for n := range measuredLoads {
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
		seconds[n] = statistics.Median(each)
	}
	return seconds, nil
}

// into appends a round's seconds to those of the earlier rounds.
func (r *rounds) into(ctx context.Context, columns [][]float64) error {
	seconds, err := r.all(ctx, roundsEach)
	for n := range seconds {
		columns[n] = append(columns[n], seconds[n])
	}
	return err
}

func (r *rounds) withDaemon(ctx context.Context, program string, columns [][]float64) (err error) {
	d, err := fixture.StartDaemon(program, r.fs.Disk.Device.Name, r.cgroup, daemonInterval)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Stop()) }()
	if err := d.AwaitCalm(ctx); err != nil {
		return err
	}
	return r.into(ctx, columns)
}

// one prepares a load in a new directory, calls around to run it, and removes
// its files.
func (r *rounds) one(ctx context.Context, load int, around func(do func() (workload.Result, error)) error) error {
	r.number++
	job := workload.Job{Operation: measuredLoads[load].operation, In: r.fs.Path(strconv.Itoa(r.number)), Count: r.calls(load)}
	if err := workload.Prepare(ctx, job); err != nil {
		return err
	}
	child, err := workload.Start(workload.Spec{Jobs: []workload.Job{job}}, r.fs.Group.Directory(r.cgroup))
	if err != nil {
		return err
	}
	ended := false
	err = fixture.WriteOut(r.fs.Directory)
	if err == nil {
		err = around(func() (result workload.Result, err error) {
			if measuredLoads[load].timed {
				if err := r.fs.Disk.SetInstant(false); err != nil {
					return result, err
				}
				defer func() { err = errors.Join(err, r.fs.Disk.SetInstant(true)) }()
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
	return fixture.WriteOut(r.fs.Directory)
}

// Check returns an error for each operation whose whole range is below the bound.
func (o Result) Check() error {
	var errs []error
	for _, row := range o.Rows {
		if row.Bounded && row.High < Bound {
			errs = append(errs, fmt.Errorf("%s: %.3f (%.3f to %.3f) of the rate without the daemon, want %.2f", row.Operation, row.Ratio, row.Low, row.High, Bound))
		}
	}
	return errors.Join(errs...)
}
