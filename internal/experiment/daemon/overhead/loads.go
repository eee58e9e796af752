package overhead

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"

	"github.com/daybook-project/daybook/internal/blame"
	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/journal"
	"github.com/daybook-project/daybook/internal/workload"
)

// load is one operation, with the number of calls in a window.
type load struct {
	name      string
	operation string
	calls     int
	// timed means that the disk has the delays of its model.
	timed bool
	// typical means that the cost is that of the lower quartile of calls, and not
	// the mean.
	typical bool
}

const noDiskTime = ", no disk time"

// hostLoads take some 60 ms a window. An fsync is measured with the delays of a
// solid-state disk, and without disk delays, which could hide the programs' cost.
var hostLoads = []load{
	{name: workload.Mkdir, operation: workload.Mkdir, calls: 2000},
	{name: workload.Creat, operation: workload.Creat, calls: 2500},
	{name: workload.AppendFsync, operation: workload.AppendFsync, calls: 40, timed: true},
	{name: workload.AppendFsync + noDiskTime, operation: workload.AppendFsync, calls: 150},
}

// guestLoads have fewer calls, because emulated instructions are slow and the count of a
// typical call hardly varies. The guest's disk takes no time.
var guestLoads = []load{
	{name: workload.Mkdir, operation: workload.Mkdir, calls: 400, typical: true},
	{name: workload.Creat, operation: workload.Creat, calls: 400, typical: true},
	{name: workload.AppendFsync + noDiskTime, operation: workload.AppendFsync, calls: 100, typical: true},
}

// probe has the programs whose cost is measured.
type probe interface {
	Pause() (resume func() error, err error)
	Placeholders() (*journal.Placeholders, error)
	Statistics() ([]journal.ProgramStatistics, error)
	Close() error
}

// windows runs loads on one file system, while the programs of a probe are attached
// or detached.
type windows struct {
	lab   fixture.Lab
	fs    *fixture.FileSystem
	probe probe
	// empty are programs that do nothing, on the tracepoints of probe; nil: not
	// measured.
	empty *journal.Placeholders
	// cgroup is the cgroup of the load.
	cgroup string
	loads  []load
	scale  int
	number int
}

// open attaches the probe of blame, or one that observes the disk of fs.
func open(l fixture.Lab, fs *fixture.FileSystem, loads []load, e Extent) (w *windows, err error) {
	if len(e.Operations) > 0 {
		loads = slices.DeleteFunc(slices.Clone(loads), func(l load) bool { return !slices.Contains(e.Operations, l.operation) })
		if len(loads) == 0 {
			return nil, fmt.Errorf("no operation of %q is measured here", e.Operations)
		}
	}
	w = &windows{lab: l, fs: fs, loads: loads, scale: e.Scale}
	if w.cgroup, err = fs.Group.Add("load", fs.Disk.Device, 0); err != nil {
		return nil, err
	}
	if e.Waits {
		w.probe, err = blame.Open()
		return w, err
	}
	attribution, err := journal.Open()
	if err != nil {
		return nil, err
	}
	w.probe = attribution
	if err := observe(attribution, fs); err != nil {
		return nil, errors.Join(err, w.probe.Close())
	}
	return w, nil
}

// observe observes the disk of a file system that the programs have seen at work: within
// a second of the first commit a probe knows all that it uses of the file system.
func observe(p *journal.Probe, fs *fixture.FileSystem) error {
	file := fs.Path("first")
	err := os.WriteFile(file, nil, 0o600)
	if err == nil {
		err = errors.Join(fixture.WriteOut(fs.Directory), os.Remove(file))
	}
	if err != nil {
		return err
	}
	return p.Observe([]uint32{fs.Disk.Device.Dev.Kernel()})
}

func (w *windows) calls(load load) int { return max(1, load.calls/w.scale) }

// one prepares a load in a new directory, calls around to run it, and removes
// its files.
func (w *windows) one(ctx context.Context, load load, around func(do func() (workload.Result, error)) error) error {
	w.number++
	job := workload.Job{Operation: load.operation, In: w.fs.Path(strconv.Itoa(w.number)), Count: w.calls(load), Typical: load.typical}
	if err := workload.Prepare(ctx, job); err != nil {
		return err
	}
	child, err := workload.Start(workload.Spec{Jobs: []workload.Job{job}}, w.fs.Group.Directory(w.cgroup))
	if err != nil {
		return err
	}
	ended := false
	err = fixture.WriteOut(w.fs.Directory)
	if err == nil {
		err = around(func() (result workload.Result, err error) {
			if load.timed {
				if err := w.fs.Disk.SetInstant(false); err != nil {
					return result, err
				}
				defer func() { err = errors.Join(err, w.fs.Disk.SetInstant(true)) }()
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
	return fixture.WriteOut(w.fs.Directory)
}

// perCall returns the nanoseconds of one call in a window.
func (w *windows) perCall(ctx context.Context, load load) (nanoseconds float64, err error) {
	err = w.one(ctx, load, func(do func() (workload.Result, error)) error {
		done, err := do()
		if err == nil {
			nanoseconds = 1e9 * done.CallSeconds / float64(done.Calls)
			if load.typical {
				nanoseconds = 1e9 * done.TypicalCallSeconds
			}
		}
		return err
	})
	return nanoseconds, err
}
