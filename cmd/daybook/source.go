package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"time"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/calibrate"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/container"
	"github.com/daybook-project/daybook/internal/journal"
	"github.com/daybook-project/daybook/internal/meter"
)

// sourceOptions select what a live meter observes.
type sourceOptions struct {
	// Devices are disks in any form that blockdev.Lookup accepts; none means
	// every disk with a journalling file system.
	Devices []string
	// Interval is the length of a sample.
	Interval time.Duration
	// Estimator is "handles" or "syscalls".
	Estimator string
	// Calibration is the file with the costs of the syscalls estimator; "" is
	// the file that `daybook calibrate` saves.
	Calibration string
	// Ideal returns the configured ideal weights; nil means the current
	// weights.
	Ideal func(path, name string) (weight uint64, ok bool)
	// Promises are those of daybook control, see meter.Options; nil means those
	// that another process recorded.
	Promises func(device string) (meter.Promises, bool)
	// Naming names containers; nil means by the state files of runtimes.
	Naming meter.Naming
	// Waits also measures who waits for the journal.
	Waits bool
	// Log gets the messages; nil means standard error.
	Log *slog.Logger
}

// liveSource is the meter with everything that it needs.
type liveSource struct {
	*meter.Meter
	calls *journal.CallProbe // nil with the handles estimator
}

func (s liveSource) Close() error {
	err := s.Meter.Close()
	if s.calls != nil {
		err = errors.Join(err, s.calls.Close())
	}
	return err
}

// check fails if a meter cannot be started, whatever the kernel loads later.
func (o sourceOptions) check() error {
	if os.Geteuid() != 0 {
		return unsupportedError{errors.New("cannot see the journal: want root, to load BPF programs; try: sudo daybook …")}
	}
	for _, device := range o.Devices {
		if _, err := blockdev.Lookup(device); err != nil {
			return usageError{fmt.Errorf("--device: %w", err)}
		}
	}
	if _, err := cgroup.FindOfHost(); err != nil {
		return hostError(err)
	}
	return nil
}

// openSource starts a live meter.
func openSource(ctx context.Context, o sourceOptions) (account.Source, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if o.Log == nil {
		o.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	if o.Naming == nil {
		o.Naming = containers{container.NewResolver(container.Config{})}
	}
	options := meter.Options{
		Devices: o.Devices, Interval: o.Interval, Log: o.Log,
		Naming: o.Naming, Ideal: o.Ideal, Promises: o.Promises,
		Waits: o.Waits,
	}
	source := liveSource{}
	var recorded *recordedPromises
	if o.Promises == nil {
		recorded = newRecordedPromises(o.Log)
		options.Ideal, options.Promises = recorded.ideal, recorded.of
	}
	if o.Estimator == "syscalls" {
		costs, err := loadCosts(o.Devices, o.Calibration)
		if err != nil {
			return nil, usageError{err}
		}
		source.calls, err = journal.OpenCalls()
		if err != nil {
			return nil, hostError(err)
		}
		options.Estimator = journal.Syscalls{Costs: costs}
		options.Calls = source.calls.Collect
	}
	var err error
	source.Meter, err = meter.Open(ctx, options)
	if err != nil {
		if source.calls != nil {
			err = errors.Join(err, source.calls.Close())
		}
		return nil, hostError(err)
	}
	if recorded != nil {
		recorded.changed = source.Regroup
	}
	return source, nil
}

// hostError converts an error into an unsupportedError if the host lacks a
// feature.
func hostError(err error) error {
	if errors.Is(err, journal.ErrUnsupported) || errors.Is(err, cgroup.ErrNoHierarchy) || errors.Is(err, cgroup.ErrPartial) {
		return unsupportedError{err}
	}
	return err
}

// loadCosts reads the calibration file, or the saved costs of the file systems
// on the disks (of all disks, if devices is empty).
func loadCosts(devices []string, file string) (func(dev uint32) journal.Costs, error) {
	if file != "" {
		table, err := calibrate.Load(file)
		if err != nil {
			return nil, err
		}
		costs := table.Costs()
		return func(uint32) journal.Costs { return costs }, nil
	}
	if len(devices) == 0 {
		devices = []string{""}
	}
	var found []meter.Mounted
	for _, device := range devices {
		mounted, err := meter.Filesystems(device)
		if err != nil {
			return nil, err
		}
		found = append(found, mounted...)
	}
	saved := savedCosts{costs: make(map[meter.Mounted]journal.Costs)}
	some := false
	for _, mounted := range found {
		costs, err := saved.of(mounted)
		if err != nil {
			return nil, err
		}
		some = some || costs != nil
	}
	if !some {
		return nil, errors.New("the syscalls estimator has no costs of any file system here: measure them with daybook calibrate DIR")
	}
	return saved.now, nil
}

// savedCosts are those of the file systems that are mounted. Another file system
// that is mounted later from the same device has its own costs.
type savedCosts struct {
	costs map[meter.Mounted]journal.Costs
}

// now returns the costs of the file system that is mounted from a device; nil
// if none were measured.
func (s savedCosts) now(dev uint32) journal.Costs {
	mounted, ok := meter.MountedFrom(dev)
	if !ok {
		return nil
	}
	costs, err := s.of(mounted)
	if err != nil {
		return nil // as if it was not measured; only at the start is a damaged file an error
	}
	return costs
}

func (s savedCosts) of(mounted meter.Mounted) (journal.Costs, error) {
	if costs, known := s.costs[mounted]; known {
		return costs, nil
	}
	maps.DeleteFunc(s.costs, func(m meter.Mounted, _ journal.Costs) bool { return m.Dev == mounted.Dev })
	table, err := calibrate.Load(calibrate.DefaultPath(mounted.Dev))
	if err == nil {
		s.costs[mounted] = table.Costs()
		return s.costs[mounted], nil
	}
	s.costs[mounted] = nil
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return nil, err
}

// containers maps a cgroup to its container.
type containers struct{ resolver *container.Resolver }

func (c containers) Identify(path string) (top, name, runtime string) {
	identity := c.resolver.Resolve(path)
	return identity.Root, identity.Name, identity.RuntimeLabel()
}
