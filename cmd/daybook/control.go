package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/container"
	"github.com/daybook-project/daybook/internal/control"
	"github.com/daybook-project/daybook/internal/control/law"
	"github.com/daybook-project/daybook/internal/interrupt"
	"github.com/daybook-project/daybook/internal/top"
)

// controlFlags are the flags of control; they override the configuration file.
type controlFlags struct {
	config, law, stateDir    string
	checkConfig              string
	actuator                 string
	devices                  []string
	estimator, calibration   string
	metrics                  string
	record                   recordFlags
	pools                    poolFlags
	interval                 time.Duration
	dryRun, logJSON, verbose bool
}

func newControlCommand() *cobra.Command {
	var f controlFlags
	cmd := &cobra.Command{
		Use:   "control [--config FILE] [--device DEV …]",
		Short: "Correct I/O weights until shares match, with the journal counted",
		Long: `Control measures what each container cost the disk (charged I/O, journal, metadata
written in place, uncharged data) and corrects the cgroups' weights until the shares
match the ideal weights. The law "feedback" corrects ten times in an interval, the law
"paper" once. If a container has a write limit of yours, control reduces it by
the container's journal and metadata, which the limit does not count (limits: correct).

Control checks whether weights hold the shares. If they do not, control logs it, sets
the tunables of BFQ that help (tunables: auto), and then enforces the shares by limits
(io.max, blkio.throttle) until weights hold them again. On a scheduler without weights
(none, mq-deadline, kyber) control always uses limits.

The ideal weights are those of the configuration, else the current ones of the cgroups.
Control saves the original settings before the first change. It restores them at the
end (Ctrl-C, SIGTERM, SIGQUIT) and at the next start after a kill -9; so does "daybook
restore". SIGHUP reads the configuration again; an invalid one has no effect.

The configuration is YAML. All keys are optional, but it or --device must name a disk:

  interval: 5s               # 1s to 1h
  devices: [sda]             # one or several; a single one also as device: sda
  actuator: auto             # or weights, or limits
  law: feedback              # or paper
  state_dir: /var/lib/daybook
  tunables: auto             # of BFQ, restored at the end; or none, or a map, such as
                             # {low_latency: 0, strict_guarantees: 1, timeout_sync: 40}
  limits: correct            # or keep
  metadata: auto             # who writes metadata in place: early (control), kernel, or
                             # auto: early only where io.cost divides the disk
  containers:                # none: every cgroup that does I/O there
    - match: web-*           # container name or cgroup path; * does not cross /
      weight: 300            # default: unchanged

Control waits for disks of the configuration that are missing, and controls the others
meanwhile. Those of --device must be there. Where jbd2 is not loaded, control waits for
the first mount of an ext4, also with --device. With --dry-run it waits for neither.

With --check-config control prints each error as FILE:LINE: ERROR, and rules that have
no effect as notes. The exit code is 0 without errors, 1 with errors, and 2 if the file
cannot be read. Without --check-config, a file with errors ends control with 2.`,
		Example: `  # Check a configuration on any host
  daybook control --check-config shares.yaml

  # Print the changes without making them
  daybook control --config shares.yaml --device sda --dry-run

  # Run until Ctrl-C
  daybook control --config shares.yaml --device sda

  # Enforce the weights that the cgroups already have, on two disks
  daybook control --device sda --device sdb

  # After a kill -9
  daybook restore`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("check-config") {
				return checkConfig(cmd, f.checkConfig)
			}
			if err := refuseEmpty(cmd, "config", "law", "actuator", "state-dir", "calibration", "metrics", "record", "pool"); err != nil {
				return err
			}
			if err := checkEstimator(f.estimator, f.calibration); err != nil {
				return err
			}
			if cmd.Flags().Changed("interval") {
				if err := control.CheckInterval(f.interval); err != nil {
					return usageError{fmt.Errorf("--interval: %w", err)}
				}
			}
			return f.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.config, "config", "", "configuration `FILE` (default: keep all current weights)")
	flags.StringVar(&f.checkConfig, "check-config", "", "check the configuration `FILE`, print all its errors, and exit; needs no root and no disk")
	flags.StringArrayVar(&f.devices, "device", nil, "disk to control: a name such as sda, a node, major:minor, or a mount point; for a logical volume or md, the disks below it; may be repeated")
	flags.DurationVar(&f.interval, "interval", 0, "interval between corrections, 1s to 1h (default 5s, the commit interval of jbd2)")
	flags.StringVar(&f.law, "law", "", "control law: feedback (default) or paper")
	flags.StringVar(&f.actuator, "actuator", "", "means that enforces the shares: auto (default), weights or limits")
	flags.StringVar(&f.stateDir, "state-dir", "", "`DIR` for the original settings (default "+control.DefaultStateDir+")")
	flags.BoolVar(&f.dryRun, "dry-run", false, "print the changes without making them")
	flags.StringVar(&f.estimator, "estimator", "handles", "how journal bytes are attributed: handles or syscalls")
	flags.StringVar(&f.calibration, "calibration", "", "calibration `FILE` of the syscalls estimator")
	flags.StringVar(&f.metrics, "metrics", "", "serve Prometheus metrics on `ADDR`: a port on 127.0.0.1, or an address written in full")
	f.record.add(cmd)
	f.pools.add(cmd)
	flags.BoolVar(&f.logJSON, "log-json", false, "log as JSON lines")
	flags.BoolVar(&f.verbose, "verbose", false, "log more")
	completeDisks(cmd, "device")
	completeWith(cmd, "law", law.FeedbackLaw, law.PaperLaw)
	completeWith(cmd, "actuator", control.ActuatorAuto, control.ActuatorWeights, control.ActuatorLimits)
	completeWith(cmd, "estimator", "handles", "syscalls")
	return cmd
}

// reloadPatience is how long a reload waits for a configuration that is a pipe: meanwhile nothing
// is corrected.
const reloadPatience = 5 * time.Second

// reload gets the configuration again.
func (f *controlFlags) reload(ctx context.Context, patience time.Duration) (control.Config, error) {
	reading, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	config, err := f.load(reading, readAgain(control.ReadConfig))
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		err = fmt.Errorf("cannot read the configuration again: nothing wrote all of %s within %v", f.config, patience)
	}
	return config, err
}

// load gets the configuration from read and applies the flags over it.
func (f *controlFlags) load(ctx context.Context, read func(io.Reader, string) (control.Config, error)) (control.Config, error) {
	config := control.DefaultConfig()
	if f.config != "" {
		var err error
		if config, err = readConfiguration(ctx, f.config, read); err != nil {
			return config, err
		}
	}
	if len(f.devices) > 0 {
		config.Devices = f.devices
	}
	if f.interval != 0 {
		config.Interval = f.interval
	}
	if f.law != "" {
		if _, err := law.NewLaw(f.law, law.BFQRange); err != nil {
			return config, fmt.Errorf("--law: %w", err)
		}
		config.Law = f.law
	}
	if f.actuator != "" {
		if err := control.CheckActuator(f.actuator); err != nil {
			return config, fmt.Errorf("--actuator: %w", err)
		}
		config.Actuator = f.actuator
	}
	if f.stateDir != "" {
		if err := control.CheckStateDir(f.stateDir); err != nil {
			return config, fmt.Errorf("--state-dir: %w", err)
		}
		config.StateDir = f.stateDir
	}
	if len(config.Devices) == 0 {
		return config, errors.New("no disk is named: which disk? use --device, such as --device sda, or devices: in the configuration")
	}
	return config, nil
}

func (f *controlFlags) log(stderr io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{}
	if f.verbose {
		options.Level = slog.LevelDebug
	}
	if f.logJSON {
		return slog.New(slog.NewJSONHandler(stderr, options))
	}
	return slog.New(slog.NewTextHandler(stderr, options))
}

func (f *controlFlags) run(ctx context.Context, stdout, stderr io.Writer) (err error) {
	config, err := f.load(ctx, control.ReadConfig)
	if err != nil {
		return usageError{err}
	}
	hangups, stop := interrupt.Reload()
	defer stop()
	log := f.log(stderr)
	observers, err := openObservers(f.record, f.pools, f.metrics, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, observers.close()) }()
	load := func() (control.Config, error) { return f.reload(ctx, reloadPatience) }
	do := func(ctx context.Context, config control.Config, load func() (control.Config, error), accept func()) error {
		return f.control(ctx, config, load, accept, observers, hangups, stdout, log)
	}
	if f.dryRun || os.Geteuid() != 0 {
		return do(ctx, config, load, func() {})
	}
	if _, err := cgroup.FindOfHost(); err != nil { // no disk that comes would change that
		return unsupportedError{err}
	}
	k := &keeper{
		config: config, modules: hostModules, reloads: hangups, load: load, control: do, observers: observers, log: log,
		restore: func(stateDir string) { restoreEarlier(stateDir, log) },
		usable: func(config control.Config) error {
			_, err := openControlled(config)
			return err
		},
	}
	if len(f.devices) == 0 { // one that the command line names is more likely a mistake
		k.disks = &diskWatch{observers: observers, log: log, pause: absentPause}
	}
	return k.run(ctx)
}

// restoreEarlier restores what an earlier run has changed on any disk: control restores on those that
// it controls, and others may never come.
func restoreEarlier(stateDir string, log *slog.Logger) {
	restored, err := restoreAll(stateDir, "")
	for _, outcome := range restored.Devices {
		log.Info("restored what an earlier run had changed", "device", outcome.Device, "restored", len(outcome.Restored))
	}
	if err = withoutBusy(err); err != nil {
		log.Warn("cannot restore all that an earlier run had changed", "error", err)
	}
}

// withoutBusy leaves out of joined errors the disks that another process controls: what it has
// changed there is its own.
func withoutBusy(err error) error {
	joined, several := err.(interface{ Unwrap() []error })
	if !several {
		return err
	}
	var left []error
	for _, one := range joined.Unwrap() {
		if busy := (*control.BusyError)(nil); !errors.As(one, &busy) {
			left = append(left, one)
		}
	}
	return errors.Join(left...)
}

// control controls the disks of a configuration until ctx ends.
func (f *controlFlags) control(ctx context.Context, config control.Config, load func() (control.Config, error), accept func(), observers *observers, hangups <-chan os.Signal, stdout io.Writer, log *slog.Logger) error {
	disks, err := openControlled(config)
	if err != nil {
		return err
	}
	var promises livePromises
	var current atomic.Pointer[control.Config]
	current.Store(&config)
	options := control.Options{
		Disks: disks, RunDir: control.DefaultRunDir,
		Config: config, OpenHost: openStateHost, Reload: hangups, Load: load,
		Accept: func(next control.Config) { current.Store(&next); accept() },
		DryRun: f.dryRun, Log: log, Recording: f.record.path,
		Name: containerNames(), OnIdeals: promises.set, OnEnd: promises.end,
		OpenSource: func(devices []string, interval time.Duration) (account.Source, error) {
			observers.expect(interval)
			source, err := openSource(ctx, sourceOptions{Devices: devices, Promises: promises.of, Interval: interval, Estimator: f.estimator, Calibration: f.calibration, Log: log,
				Ideal: func(path, name string) (uint64, bool) {
					weight, matched := current.Load().Ideal(path, name)
					return weight, matched && weight > 0
				}})
			return observedSource{source, observers}, err
		},
	}
	if f.dryRun {
		options.OnInterval = func(d control.Decision) { printDecision(stdout, d) }
	}
	return control.Run(ctx, options)
}

// openControlled opens the disks of a configuration and their actuators. A disk that
// cannot be controlled is an error, and so is a weight that its weight file does not take.
func openControlled(config control.Config) ([]control.Disk, error) {
	if os.Geteuid() != 0 {
		return nil, unsupportedError{errors.New("cannot control weights: want root; try: sudo daybook control …")}
	}
	tree, err := cgroup.FindOfHost()
	if err != nil {
		return nil, unsupportedError{err}
	}
	var disks []control.Disk
	for _, device := range config.Devices {
		below, err := disksBelow(device, disks)
		if isAbsent(err) {
			err = absentError{err}
		}
		if err != nil {
			return nil, usageError{fmt.Errorf("cannot control %s: %w", device, err)} // named by --device or in the configuration
		}
		for _, found := range below {
			disk, err := openDisk(tree, found, config)
			if err != nil {
				return nil, err
			}
			disks = append(disks, disk)
		}
	}
	return disks, nil
}

// disksBelow are the disks of a device that are not among those named already; an error
// if all are.
func disksBelow(device string, named []control.Disk) ([]blockdev.Disk, error) {
	found, err := blockdev.LookupForWriting(device)
	if err != nil {
		return nil, err
	}
	below, err := control.PhysicalDisks(found)
	if err != nil {
		return nil, err
	}
	fresh := slices.DeleteFunc(slices.Clone(below), func(disk blockdev.Disk) bool {
		return slices.ContainsFunc(named, func(d control.Disk) bool { return d.Device == disk.Name })
	})
	if len(fresh) == 0 {
		return nil, fmt.Errorf("%s is the disk %s, which is named already", device, below[0].Name)
	}
	return fresh, nil
}

// openDisk opens one disk with its actuators.
func openDisk(tree *cgroup.Tree, found blockdev.Disk, config control.Config) (control.Disk, error) {
	disk, err := control.OpenDisk(tree, found, config.Actuator)
	if errors.Is(err, cgroup.ErrNoWeights) {
		return disk, unsupportedError{err}
	}
	if err != nil {
		return disk, err
	}
	if err := config.CheckWeights(disk.Host.Weights.File(), disk.Host.Weights.Range()); err != nil {
		return disk, usageError{err}
	}
	return disk, nil
}

// containerNames returns a function that names the topmost cgroups of
// containers: a rule for a name must not match the cgroups inside.
func containerNames() func(cgroup string) string {
	resolver := container.NewResolver(container.Config{})
	return func(cgroup string) string {
		identity := resolver.Resolve(cgroup)
		if identity.Root != cgroup {
			return ""
		}
		return identity.Name
	}
}

// observedSource also passes each sample to the recording and the metrics.
type observedSource struct {
	account.Source
	observers *observers
}

// SetInterval passes the interval on to a source that supports it.
func (s observedSource) SetInterval(interval time.Duration) {
	s.observers.expect(interval)
	if source, ok := s.Source.(interface{ SetInterval(time.Duration) }); ok {
		source.SetInterval(interval)
	}
}

// Regroup passes the call on to a source that supports it.
func (s observedSource) Regroup() {
	if source, ok := s.Source.(interface{ Regroup() }); ok {
		source.Regroup()
	}
}

func (s observedSource) Next(ctx context.Context) (account.Sample, error) {
	sample, err := s.Source.Next(ctx)
	if err == nil {
		s.observers.observe(sample)
	}
	return sample, err
}

func printDecision(w io.Writer, d control.Decision) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "%s %.1f s\tshare\ttarget\tideal\tweight\twould be\n", d.Device, d.Seconds)
	for _, m := range d.Weights {
		fmt.Fprintf(table, "%s\t%.1f %%\t%.1f %%\t%d\t%d\t%d\n", top.Safe(m.Cgroup), 100*m.Share, 100*m.TargetShare, m.Ideal, m.Before, m.After)
	}
	for _, l := range d.Limits {
		what := "write limit"
		if l.Read {
			what = "read limit"
		}
		fmt.Fprintf(table, "%s\t%s\t\t%d\t%d\t%d bytes/s\n", top.Safe(l.Cgroup), what, l.Original, l.Before, l.After)
	}
	_ = table.Flush() // a closed pipe ends the program with SIGPIPE
}
