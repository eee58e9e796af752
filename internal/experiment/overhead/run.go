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

// Bound is the least rate with the daemon over the rate without it
// that is good enough.
const Bound = 0.99

// Options say how much is measured.
type Options struct {
	// Program is the daybook whose daemon runs.
	Program string
	// Pairs of rounds, one with the daemon and one without.
	Pairs int
	// Scale divides the calls of a round, 1 or more.
	Scale int
}

// daemonInterval is the daemon's.
const daemonInterval = 5 * time.Second

// measuredLoad is one operation, with the calls of a round: some tenths of a
// second.
type measuredLoad struct {
	name      string
	operation string
	calls     int
	// timed: the disk takes its model's time.
	timed bool
	// bounded: Bound holds for it.
	bounded bool
}

// measuredLoads: an fsync takes what a solid-state disk takes; beside it, for
// comparison, what it is without any disk, where nothing hides a microsecond.
var measuredLoads = []measuredLoad{
	{name: workload.Mkdir, operation: workload.Mkdir, calls: 20_000, bounded: true},
	{name: workload.CreatUnlink, operation: workload.CreatUnlink, calls: 40_000, bounded: true},
	{name: workload.AppendFsync, operation: workload.AppendFsync, calls: 300, timed: true, bounded: true},
	{name: workload.AppendFsync + ", no disk time", operation: workload.AppendFsync, calls: 1500},
}

// diskModel is the model of the disk.
const diskModel = "ssd"

// roundsEach is how often a load is run in each half of a pair; the median
// counts.
const roundsEach = 3

// Result is what the daemon costs the programs on the host.
type Result struct {
	IntervalSeconds float64 `json:"interval_seconds"`
	Rows            []Row   `json:"rows"`
	// Programs' times are without ClockNanoseconds a run, which the
	// kernel's counting adds.
	Programs         []ProgramCost `json:"programs"`
	ClockNanoseconds float64       `json:"clock_nanoseconds"`
	Host             report.Host   `json:"host"`
}

// Row is one operation.
type Row struct {
	Operation string `json:"operation"`
	Calls     int    `json:"calls_per_round"`
	Pairs     int    `json:"pairs"`
	// Bounded: Bound holds for it.
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
func (r Row) Expected() float64 {
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

// rounds runs the loads on one file system.
type rounds struct {
	lab fixture.Lab
	fs  *fixture.FileSystem
	// cgroup is the load's.
	cgroup string
	scale  int
	number int
}

// Run measures the rates with and without the daemon, alternating, and
// then, apart because counting costs too, the time of the BPF programs.
//
// The disk is a simulated one that takes no time, so that the processor's part
// of a call is as large as it can be; but for the loads that wait for a disk,
// which have a solid-state disk's.
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
	// What is cold is warmed.
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

// all runs each load so many times and gives the median seconds of one call.
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

// into appends a round's seconds to those of the rounds before.
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

// one prepares a load in a directory of its own, lets the caller do it, and
// takes away what it made.
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

// Check says whether an operation is slower than the bound for certain; nil:
// no.
func (o Result) Check() error {
	var errs []error
	for _, row := range o.Rows {
		if row.Bounded && row.High < Bound {
			errs = append(errs, fmt.Errorf("%s: %.3f (%.3f to %.3f) of the rate without the daemon, want %.2f", row.Operation, row.Ratio, row.Low, row.High, Bound))
		}
	}
	return errors.Join(errs...)
}
