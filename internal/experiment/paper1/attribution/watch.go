package attribution

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/journal"
	"github.com/daybook-project/daybook/internal/meter"
	"github.com/daybook-project/daybook/internal/workload"
)

// watch is a file system that both estimators and the oracle measure.
type watch struct {
	fileSystem *fileSystem
	meter      *meter.Meter
	// calls is nil if only the handles estimator runs.
	calls *journal.CallProbe
	costs journal.Costs
	// oracle counts the bytes of the external journal; nil without one.
	oracle *blockdev.StatReader
}

// openWatch prepares the file system, on given devices or on simulated disks, and
// starts to measure it.
func openWatch(ctx context.Context, l fixture.Lab, what Options, o fixture.Options) (w *watch, err error) {
	l.Say("preparing a disk")
	prepare := simulated
	if what.On != nil {
		prepare = what.On.fileSystem
	}
	fs, err := prepare(ctx, l.Tree, o)
	if err != nil {
		return nil, err
	}
	w = &watch{fileSystem: fs}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	if fs.journal != nil {
		if w.oracle, err = fs.journal.OpenStat(); err != nil {
			return w, err
		}
	}
	// Samples are taken when the work is done, not by the clock.
	w.meter, err = meter.Open(ctx, meter.Options{
		Devices: []string{fs.disk.Name}, Interval: time.Hour, Tree: l.Tree, Naming: fixture.Naming(nil), Log: l.Log,
	})
	if err == nil && what.CalibrationRuns > 0 {
		w.calls, err = journal.OpenCalls()
	}
	return w, err
}

func (w *watch) close() error {
	var errs []error
	if w.calls != nil {
		errs = append(errs, w.calls.Close())
	}
	if w.meter != nil {
		errs = append(errs, w.meter.Close())
	}
	if w.oracle != nil {
		errs = append(errs, w.oracle.Close())
	}
	return errors.Join(append(errs, w.fileSystem.close())...)
}

// seen is the measurement of some work.
type seen struct {
	// truthBytes reached the journal device; 0 without one.
	truthBytes uint64
	device     account.Device
	// syscalls are the other estimator's bytes, by cgroup id.
	syscalls map[uint64]uint64
}

// see does the work, with a write-out before it and after it.
func (w *watch) see(ctx context.Context, work func() error) (s seen, err error) {
	if err := fixture.WriteOut(w.fileSystem.directory); err != nil {
		return s, err
	}
	if _, err := w.collect(ctx); err != nil {
		return s, err
	}
	before, err := w.truth()
	if err != nil {
		return s, err
	}
	if err := work(); err != nil {
		return s, err
	}
	if err := fixture.WriteOut(w.fileSystem.directory); err != nil {
		return s, err
	}
	after, err := w.truth()
	if err != nil {
		return s, err
	}
	s, err = w.collect(ctx)
	s.truthBytes = after - before
	return s, err
}

func (w *watch) truth() (uint64, error) {
	if w.oracle == nil {
		return 0, nil
	}
	stat, err := w.oracle.Read()
	return stat.WriteBytes, err
}

// collect ends an interval of both estimators.
func (w *watch) collect(ctx context.Context) (s seen, err error) {
	sample, err := w.meter.Now(ctx)
	if err != nil {
		return s, err
	}
	if len(sample.Devices) != 1 {
		return s, fmt.Errorf("the account has %d disks, want the one of %s", len(sample.Devices), w.fileSystem.directory)
	}
	s.device = sample.Devices[0]
	lost := s.device.LostEvents
	var calls []journal.Call
	if w.calls != nil {
		var lostCalls uint64
		if calls, lostCalls, err = w.calls.Collect(); err != nil {
			return s, err
		}
		lost += lostCalls
	}
	if lost > 0 {
		return s, fmt.Errorf("the BPF programs lost %d events, so the accuracy is unknown", lost)
	}
	dev := w.fileSystem.disk.Dev
	s.syscalls = journal.Estimate(calls, w.costs)[dev.Kernel()]
	return s, nil
}

// container is a private cgroup with a working directory.
type container struct {
	name, cgroup, directory string
	id                      uint64
}

func (w *watch) container(name string) (container, error) {
	path, err := w.fileSystem.group.Add(name, w.fileSystem.disk, 0)
	if err != nil {
		return container{}, err
	}
	found, err := w.fileSystem.tree.Lookup(path)
	return container{name: name, cgroup: path, directory: filepath.Join(w.fileSystem.directory, name), id: found.ID}, err
}

// start starts a load in the container; it waits for Go.
func (w *watch) start(c container, spec workload.Spec) (*workload.Child, error) {
	return workload.Start(spec, w.fileSystem.group.Directory(c.cgroup))
}

// do prepares or does jobs in the container, in a new process.
func (w *watch) do(ctx context.Context, c container, spec workload.Spec) (workload.Result, error) {
	load, err := w.start(c, spec)
	if err != nil {
		return workload.Result{}, err
	}
	if err := load.Go(); err != nil {
		_, stopErr := load.Stop()
		return workload.Result{}, errors.Join(err, stopErr)
	}
	return load.Wait(ctx)
}

// line returns the container's line in the account.
func (s seen) line(c container) account.Container {
	for _, line := range s.device.Containers {
		if line.Cgroup == c.cgroup {
			return line
		}
	}
	return account.Container{}
}
