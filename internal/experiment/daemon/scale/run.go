package scale

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"time"

	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/experiment/report"
	"github.com/daybook-project/daybook/internal/meter"
	"github.com/daybook-project/daybook/internal/workload"
)

// Bounds of the daemon with Options.Cgroups cgroups.
const (
	Cgroups = 1000
	// IntervalBound is the maximum processor time of one interval.
	IntervalBound = 20 * time.Millisecond
	// ResidentBound is the maximum of the peak resident memory.
	ResidentBound = 64 << 20
)

// Options configure the measurement.
type Options struct {
	// Program is the daybook program that runs as the daemon.
	Program string
	// Cgroups is the number of cgroups to make, 1 to 10,000.
	Cgroups int
	// Interval of the daemon, and the number of measured intervals.
	Interval  time.Duration
	Intervals int
}

// Result is the daemon's own processor time and memory.
type Result struct {
	Cgroups int `json:"cgroups"`
	// Active is the number of cgroups that did I/O in one interval.
	Active          int     `json:"active_cgroups"`
	IntervalSeconds float64 `json:"interval_seconds"`
	Intervals       int     `json:"intervals"`
	// CPUSeconds is the mean processor time of an interval, MaxCPUSeconds the
	// maximum.
	CPUSeconds    float64 `json:"cpu_seconds_per_interval"`
	MaxCPUSeconds float64 `json:"max_cpu_seconds_per_interval"`
	// StartCPUSeconds is the processor time of the start: loading BPF programs,
	// and setting the weight of each cgroup.
	StartCPUSeconds float64 `json:"start_cpu_seconds"`
	ResidentBytes   uint64  `json:"resident_bytes"`
	PeakBytes       uint64  `json:"peak_resident_bytes"`
	// MapBytes is the kernel memory of its BPF maps.
	MapBytes uint64      `json:"bpf_map_bytes"`
	Host     report.Host `json:"host"`
}

// roundSeconds is the time in which the load visits each cgroup once. It is
// shorter than an interval, so that all are active in each.
const roundSeconds = 2.5

// Run makes cgroups, does I/O in all of them and measures the daemon that
// controls them, from outside its process.
func Run(ctx context.Context, l fixture.Lab, o Options) (result Result, err error) {
	if o.Cgroups < 1 || o.Cgroups > 10_000 || o.Intervals < 1 || o.Interval < meter.MinInterval {
		return result, fmt.Errorf("%d cgroups, %d intervals of %v: want 1 to 10000, 1 or more, and at least %v",
			o.Cgroups, o.Intervals, o.Interval, meter.MinInterval)
	}
	l.Say(fmt.Sprintf("making %d cgroups", o.Cgroups))
	fs, err := fixture.MakeFileSystem(ctx, l.Tree, fixture.Options{SizeBytes: fixture.DiskBytes, JournalBytes: fixture.JournalBytes})
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, fs.Close()) }()
	for n := range o.Cgroups {
		if _, err := fs.Group.Add(fmt.Sprintf("c%04d", n), fs.Disk.Device, 0); err != nil {
			return result, err
		}
	}
	load, err := workload.Start(workload.Spec{EachCgroup: &workload.EachCgroup{
		Under: fs.Group.Directory(fs.Group.Parent), In: fs.Directory, PerSecond: float64(o.Cgroups) / roundSeconds,
	}}, fs.Group.Directory(fs.Group.Parent))
	if err != nil {
		return result, err
	}
	defer func() {
		_, stopErr := load.Stop()
		err = errors.Join(err, stopErr)
	}()
	if err := load.Go(); err != nil {
		return result, err
	}
	result = Result{Cgroups: o.Cgroups, IntervalSeconds: o.Interval.Seconds(), Intervals: o.Intervals, Host: report.ThisHost()}
	if err := watchDaemon(ctx, l, fs, o, &result); err != nil {
		return result, err
	}
	result.Active, err = countActive(ctx, l, fs, o)
	return result, err
}

// watchDaemon measures a daemon after its start and its first interval.
func watchDaemon(ctx context.Context, l fixture.Lab, fs *fixture.FileSystem, o Options, result *Result) (err error) {
	d, err := fixture.StartDaemon(o.Program, fs.Disk.Device.Name, fs.Group.Parent+"/*", o.Interval)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Stop()) }()
	if err := d.AwaitCalm(ctx); err != nil {
		return err
	}
	begin, err := d.CPUTime()
	if err != nil {
		return err
	}
	result.StartCPUSeconds = begin.Seconds()
	var used []float64
	next := time.Now()
	for n := range o.Intervals + 1 {
		l.Say(fmt.Sprintf("interval %d of %d", n, o.Intervals))
		next = next.Add(o.Interval)
		if err := d.Pause(ctx, time.Until(next), next.Add(fixture.DaemonPatience)); err != nil {
			return err
		}
		now, err := d.CPUTime()
		if err != nil {
			return err
		}
		if n > 0 { // the first one warms up
			used = append(used, (now - begin).Seconds())
		}
		begin = now
	}
	for _, seconds := range used {
		result.CPUSeconds += seconds / float64(len(used))
	}
	result.MaxCPUSeconds = slices.Max(used)
	m, err := d.Memory()
	result.ResidentBytes, result.PeakBytes, result.MapBytes = m.ResidentBytes, m.PeakBytes, m.MapBytes
	return err
}

// countActive returns the number of cgroups that did I/O in an interval. It uses
// a separate meter, so that the daemon has no additional work.
func countActive(ctx context.Context, l fixture.Lab, fs *fixture.FileSystem, o Options) (active int, err error) {
	m, err := meter.Open(ctx, meter.Options{
		Devices: []string{fs.Disk.Device.Name}, Interval: o.Interval, Tree: l.Tree, Naming: fixture.Naming(nil), Log: l.Log,
	})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	if _, err := m.Next(ctx); err != nil {
		return 0, err
	}
	if err := fixture.WriteOut(fs.Directory); err != nil {
		return 0, err
	}
	sample, err := m.Now(ctx)
	if err != nil {
		return 0, err
	}
	for _, device := range sample.Devices {
		for _, c := range device.Containers {
			if path.Dir(c.Cgroup) == fs.Group.Parent && c.Bytes() > 0 {
				active++
			}
		}
	}
	return active, nil
}

// Check returns an error for each exceeded bound, and if not all cgroups were active, or nil.
func (s Result) Check() error {
	var errs []error
	if s.Active < s.Cgroups {
		errs = append(errs, fmt.Errorf("%d of %d cgroups did I/O in an interval: the bounds are for as many as there are", s.Active, s.Cgroups))
	}
	if s.CPUSeconds > IntervalBound.Seconds() {
		errs = append(errs, fmt.Errorf("one interval takes %.1f ms of processor time, want at most %v", 1e3*s.CPUSeconds, IntervalBound))
	}
	return errors.Join(append(errs, s.checkMemory())...)
}

func (s Result) checkMemory() error {
	if s.PeakBytes > ResidentBound {
		return fmt.Errorf("%.1f MiB resident, want at most %d", float64(s.PeakBytes)/(1<<20), ResidentBound>>20)
	}
	return nil
}
