package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/serve"
	"github.com/daybook-project/daybook/internal/serve/endpoint"
)

const (
	minInterval = time.Second
	maxInterval = 24 * time.Hour
)

// observeFlags are the flags of the commands that only observe.
type observeFlags struct {
	source sourceOptions
	// waits: where jbd2 is not loaded, it waits for that.
	waits  bool
	record recordFlags
	pools  poolFlags
}

func (f *observeFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.DurationVar(&f.source.Interval, "interval", 5*time.Second, "length of a sample, 1s to 24h; jbd2 commits every 5s")
	flags.StringArrayVar(&f.source.Devices, "device", nil, "observe only this disk: a name such as sda, a node, major:minor, or a mount point; may be repeated")
	flags.StringVar(&f.source.Estimator, "estimator", "handles", "how journal bytes are attributed: handles (exact by transaction) or syscalls (calls times calibrated costs)")
	flags.StringVar(&f.source.Calibration, "calibration", "", "calibration `FILE` of the syscalls estimator (default: the one that daybook calibrate saved)")
	flags.BoolVar(&f.source.Waits, "waits", false, "also measure who waits for the journal, as daybook blame does")
	f.record.add(cmd)
	f.pools.add(cmd)
	complete := func(flag string, values func() []string) {
		// The only possible error is a flag that does not exist.
		_ = cmd.RegisterFlagCompletionFunc(flag, func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return values(), cobra.ShellCompDirectiveNoFileComp
		})
	}
	complete("estimator", func() []string { return []string{"handles", "syscalls"} })
	complete("interval", func() []string { return []string{"1s", "5s", "10s", "1m"} })
	completeDisks(cmd, "device")
}

func diskNames() []string {
	paths, err := filepath.Glob("/sys/block/*")
	if err != nil {
		return nil
	}
	for i, path := range paths {
		paths[i] = filepath.Base(path)
	}
	return paths
}

// check rejects values that the meter does not accept.
func (f *observeFlags) check() error {
	o := f.source
	if o.Interval < minInterval || o.Interval > maxInterval {
		return usageError{fmt.Errorf("--interval is %v; want %v to %v", o.Interval, minInterval, maxInterval)}
	}
	return checkEstimator(o.Estimator, o.Calibration)
}

// checkEstimator checks --estimator and --calibration.
func checkEstimator(estimator, calibration string) error {
	switch estimator {
	case "handles":
		if calibration != "" {
			return usageError{errors.New("--calibration is for --estimator syscalls; the handles estimator counts and needs none")}
		}
	case "syscalls":
	default:
		return usageError{fmt.Errorf("--estimator is %q; want handles or syscalls", estimator)}
	}
	return nil
}

// observers pass each sample to a recording and to the metrics.
type observers struct {
	recording *recording // nil: none
	metrics   *serve.Metrics
	server    *serve.Server
}

// openObservers opens a recording unless its path is "", and a metrics server
// unless its address is "".
func openObservers(record recordFlags, pools poolFlags, address string, log *slog.Logger) (*observers, error) {
	o := &observers{}
	if err := record.needed(); err != nil {
		return nil, err
	}
	if address != "" {
		listen, err := endpoint.Parse(address)
		if err != nil {
			return nil, usageError{err}
		}
		o.metrics = serve.NewMetrics(serve.DefaultMaxContainers)
		if o.server, err = serve.Start(listen, buildVersion(), log, o.metrics, pools.collector()); err != nil {
			return nil, err
		}
	}
	if record.path != "" {
		var err error
		if o.recording, err = openRecording(record, o.metrics, log); err != nil {
			return nil, errors.Join(err, o.close())
		}
	}
	return o, nil
}

// expect says how long the next samples take.
func (o *observers) expect(interval time.Duration) {
	if o.metrics != nil {
		o.metrics.Expect(interval)
	}
}

// expectNone says that no samples come for now.
func (o *observers) expectNone() {
	if o.metrics != nil {
		o.metrics.ExpectNone()
	}
}

// lack says how many disks to control are missing.
func (o *observers) lack(disks int) {
	if o.metrics != nil {
		o.metrics.SetMissingDisks(disks)
	}
}

// observe passes a sample on. Its errors never stop the program.
func (o *observers) observe(s account.Sample) {
	if o.metrics != nil {
		o.metrics.Observe(s)
	}
	if o.recording != nil {
		o.recording.record(s)
	}
}

func (o *observers) close() error {
	var err error
	if o.recording != nil {
		err = o.recording.close()
	}
	if o.server != nil {
		err = errors.Join(err, o.server.Close())
	}
	return err
}

// withSource opens the observers first and then the live meter, so that a wrong
// address is reported before BPF programs are loaded. Then it calls do. log
// gets the messages meanwhile; nil means standard error.
func (f *observeFlags) withSource(ctx context.Context, address string, log *slog.Logger, do func(account.Source, *observers) error) (err error) {
	if err := f.check(); err != nil {
		return err
	}
	if log == nil {
		log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	o, err := openObservers(f.record, f.pools, address, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.close()) }()
	if f.waits {
		if err := f.source.check(); err != nil {
			return err
		}
		if err := hostModules.whenLoaded(ctx, log, o.expectNone); err != nil {
			return err
		}
	}
	o.expect(f.source.Interval)
	source, err := openSource(ctx, f.source)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	return do(source, o)
}
