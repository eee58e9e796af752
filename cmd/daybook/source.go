package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
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

// sourceOptions say what a live meter observes.
type sourceOptions struct {
	// Device is a disk in any form that blockdev.Lookup takes; "" is every
	// disk with a journalling file system.
	Device string
	// Interval is the length of a sample.
	Interval time.Duration
	// Estimator is "handles" or "syscalls".
	Estimator string
	// Calibration is the file of the syscalls estimator's costs; "" is the
	// one that `daybook calibrate` saves.
	Calibration string
	// Ideal gives configured ideal weights; nil: those found.
	Ideal func(path, name string) (weight uint64, ok bool)
	// Log is told what is worth knowing; nil: standard error.
	Log *slog.Logger
}

// liveSource is the meter with all that it stands on.
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

// openSource starts a live meter.
func openSource(ctx context.Context, o sourceOptions) (account.Source, error) {
	if os.Geteuid() != 0 {
		return nil, unsupportedError{errors.New("cannot see the journal: want root, to load BPF programs; try: sudo daybook …")}
	}
	if o.Device != "" {
		if _, err := blockdev.Lookup(o.Device); err != nil {
			return nil, usageError{fmt.Errorf("--device: %w", err)}
		}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	options := meter.Options{
		Device: o.Device, Interval: o.Interval, Log: o.Log,
		Naming: containers{container.NewResolver(container.Config{})}, Ideal: o.Ideal,
	}
	source := liveSource{}
	if o.Estimator == "syscalls" {
		costs, err := loadCosts(o.Device, o.Calibration)
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
	return source, nil
}

// hostError marks what the host lacks.
func hostError(err error) error {
	if errors.Is(err, journal.ErrUnsupported) || errors.Is(err, cgroup.ErrNoHierarchy) {
		return unsupportedError{err}
	}
	return err
}

// loadCosts reads the calibration file, or those that were saved for the file
// systems on the disk (of all disks, if it is "").
func loadCosts(device, file string) (func(dev uint32) journal.Costs, error) {
	if file != "" {
		table, err := calibrate.Load(file)
		if err != nil {
			return nil, err
		}
		costs := table.Costs()
		return func(uint32) journal.Costs { return costs }, nil
	}
	found, err := meter.Filesystems(device)
	if err != nil {
		return nil, err
	}
	costs := make(map[uint32]journal.Costs)
	for dev, number := range found {
		table, err := calibrate.Load(calibrate.DefaultPath(dev))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		costs[number] = table.Costs()
	}
	if len(costs) == 0 {
		return nil, errors.New("the syscalls estimator has no costs of any file system here: measure them with daybook calibrate DIR")
	}
	return func(dev uint32) journal.Costs { return costs[dev] }, nil
}

// containers tells the meter whose a cgroup is.
type containers struct{ resolver *container.Resolver }

func (c containers) Identify(path string) (top, name, runtime string) {
	identity := c.resolver.Resolve(path)
	return identity.Root, identity.Name, identity.Runtime
}
