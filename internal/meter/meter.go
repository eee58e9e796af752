package meter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/internal/journal"
)

// Options select what is accounted.
type Options struct {
	// Devices limits the account to some disks (name, node, number or a path on
	// it); none means every disk with a mounted ext4.
	Devices []string
	// Interval is the time between samples, at least MinInterval.
	Interval time.Duration
	// Tree is the cgroup hierarchy; nil means the host's.
	Tree *cgroup.Tree
	// Naming maps cgroups to containers; required.
	Naming Naming
	// Estimator attributes the journal; nil means the handles estimator.
	Estimator journal.Estimator
	// Calls, if not nil, collects Events.Calls for the estimator.
	Calls func() ([]journal.Call, uint64, error)
	// Ideal returns a configured ideal weight; nil means the weights of the
	// cgroups when they are first seen.
	Ideal func(path, name string) (weight uint64, ok bool)
	// Promises returns the shares that daybook control configured on a disk; ok
	// is false if the disk is not controlled. It takes precedence over Ideal in
	// target shares. nil means that no disk is controlled.
	Promises func(device string) (promises Promises, ok bool)
	// Waits also measures who waits for the journal, and for whom (package
	// blame).
	Waits bool
	Log   *slog.Logger
}

// Promises are the ideal weights on a disk whose weights in force are corrected
// ones.
type Promises struct {
	// Configured means that only Units have a configured share; otherwise all
	// cgroups do.
	Configured bool
	// Weights are by cgroup, including those above Units.
	Weights map[string]uint64
	Units   map[string]bool
	// Control is the means that enforces the shares.
	Control account.Control
}

// MinInterval is the shortest time between two samples.
const MinInterval = 500 * time.Millisecond

// Meter is a live account.Source.
type Meter struct {
	options Options
	probe   *journal.Probe
	waits   *waits // nil: not measured
	units   *units
	book    *Book
	// only are the disks of Options.Devices that still exist.
	only   []blockdev.Disk
	disks  map[uint32]*openDisk
	diskOf map[uint32]uint32
	names  map[uint32]string
	sizes  map[uint32]uint64
	// copied are devices whose writes reach their disk in copies, and that disk.
	copied map[uint32]uint32
	// below are devices that are accounted themselves, and the several disks below.
	below map[uint32][]uint32
	// journals are the devices of external journals that are counted there, by file
	// system.
	journals map[uint32]uint32
	// mounts has, for each size, the mount from which it was read.
	mounts  map[uint32]uint64
	last    time.Time
	renamed time.Time
	// gathered are the events of the interval so far; nil: none were collected.
	gathered *journal.Events
	// regroup is set when the answers of Options.Ideal change.
	regroup atomic.Bool
	// observed is what the last look for file systems found; unobserved is set if the probe does
	// not know all of it, and unfound while looks during an interval fail.
	observed            observed
	unobserved, unfound bool
	// skips is set while cgroups could not be listed.
	skips bool
	// holds is set once the waits in io.cost are counted.
	holds bool
	// following has the modules whose journals in memory are accounted.
	following map[journal.NVModule]bool
	// present are the paths in the account that is being described.
	present map[string]bool
}

// Open starts metering: it attaches the probe and takes the first readings.
// Errors about missing features of the host wrap journal.ErrUnsupported,
// cgroup.ErrNoHierarchy or cgroup.ErrPartial.
func Open(ctx context.Context, o Options) (*Meter, error) {
	if o.Interval < MinInterval {
		return nil, fmt.Errorf("an interval of %v is too short: want at least %v", o.Interval, MinInterval)
	}
	if o.Naming == nil {
		return nil, errors.New("the meter needs a function that names cgroups")
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	m := &Meter{
		options:   o,
		book:      NewBook(),
		disks:     make(map[uint32]*openDisk),
		diskOf:    make(map[uint32]uint32),
		names:     make(map[uint32]string),
		sizes:     make(map[uint32]uint64),
		journals:  make(map[uint32]uint32),
		mounts:    make(map[uint32]uint64),
		following: make(map[journal.NVModule]bool),
		present:   make(map[string]bool),
	}
	for _, device := range o.Devices {
		disk, err := blockdev.Lookup(device)
		if err != nil {
			return nil, err
		}
		m.only = append(m.only, accountedDisk(disk))
	}
	if m.options.Tree == nil {
		tree, err := cgroup.FindOfHost()
		if err != nil {
			return nil, err
		}
		m.options.Tree = tree
	}
	m.units = newUnits(m.options.Tree, o.Naming, o.Ideal)
	probe, err := journal.Open()
	if err != nil {
		return nil, err
	}
	m.probe = probe
	m.warnMissing(probe.Missing())
	if probe.FunctionsHidden() {
		o.Log.Warn("the kernel hides the addresses of its functions: Daybook observes each submitted write, and the account is less exact. Grant CAP_SYSLOG, and set kernel.kptr_restrict to less than 2")
	}
	if m.options.Estimator == nil {
		m.options.Estimator = journal.Handles{BlockBytes: func(dev uint32) uint64 { return m.sizes[dev] }}
	}
	err = nil
	if o.Waits {
		err = m.openWaits()
	}
	if err == nil {
		err = m.begin(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

func (m *Meter) begin(ctx context.Context) error {
	if err := m.findDisks(); err != nil {
		return err
	}
	if err := m.units.refresh(ctx); err != nil {
		return err
	}
	if err := m.waits.begin(); err != nil {
		return err
	}
	if _, err := m.probe.Collect(); err != nil {
		return err
	}
	m.last = time.Now()
	m.renamed = m.last
	return nil
}

// Close detaches the probe.
func (m *Meter) Close() error {
	var errs []error
	for _, d := range m.disks {
		errs = append(errs, d.reader.Close())
	}
	errs = append(errs, m.waits.close())
	if m.probe != nil {
		errs = append(errs, m.probe.Close())
	}
	return errors.Join(errs...)
}

// Statistics returns the run counts and times of the probe's BPF programs while
// the kernel counted (journal.CountPrograms).
func (m *Meter) Statistics() ([]journal.ProgramStatistics, error) { return m.probe.Statistics() }

// Next waits for the end of the interval and accounts it. A disk that is gone is
// skipped. If all of Options.Devices are gone, the error wraps blockdev.ErrGone.
func (m *Meter) Next(ctx context.Context) (account.Sample, error) {
	for {
		left := time.Until(m.last.Add(m.options.Interval))
		timer := time.NewTimer(min(left, gatherInterval))
		select {
		case <-ctx.Done():
			timer.Stop()
			return account.Sample{}, ctx.Err()
		case <-timer.C:
		}
		if left <= gatherInterval {
			return m.Now(ctx)
		}
		if err := m.step(); err != nil {
			return account.Sample{}, err
		}
	}
}

// step gathers the events of a long interval, and looks for file systems that were mounted
// meanwhile. If that fails, the next step looks again: the figures so far are worth more.
func (m *Meter) step() error {
	before := m.observed
	if err := m.looked(m.findMore()); err != nil {
		return err
	}
	return m.gatherFound(before)
}

// looked logs the error of a look for file systems once, and returns it if all disks are gone.
func (m *Meter) looked(err error) error {
	if errors.Is(err, blockdev.ErrGone) {
		return err
	}
	if err != nil && !m.unfound {
		m.options.Log.Warn("cannot find file systems that were mounted meanwhile; Daybook looks again regularly", "error", err)
	}
	m.unfound = err != nil
	return nil
}

// gatherInterval limits the memory: the commits, and the waits, of so much time are kept
// one by one. So often it also looks for file systems that were mounted during a longer
// interval. It is a variable for tests.
var gatherInterval = 10 * time.Second

// gather collects the events since the last call, and adds them to those of the interval.
func (m *Meter) gather() error {
	if err := m.waits.collect(); err != nil {
		return err
	}
	events, err := m.probe.Collect()
	if err != nil {
		return err
	}
	if err := m.divideWaits(events); err != nil {
		return err
	}
	if m.gathered != nil {
		events = m.gathered.Combine(events)
	}
	m.gathered = &events
	return nil
}

// SetInterval changes the time between samples, starting with the current one.
// It must not be called while Next runs.
func (m *Meter) SetInterval(interval time.Duration) {
	m.options.Interval = max(interval, MinInterval)
}

// Regroup reports that the answers of Options.Ideal changed. From the current
// interval on, cgroups are accounted under their new paths. It may be called
// while Next runs.
func (m *Meter) Regroup() { m.regroup.Store(true) }

// Now ends the interval at once.
func (m *Meter) Now(ctx context.Context) (account.Sample, error) {
	if m.regroup.Swap(false) {
		m.units.regroup()
		m.book.move(m.units.top)
	}
	if err := m.units.refresh(ctx); err != nil {
		return account.Sample{}, err
	}
	if err := m.gather(); err != nil {
		return account.Sample{}, err
	}
	events := *m.gathered
	m.gathered = nil
	if m.options.Calls != nil {
		calls, lost, err := m.options.Calls()
		if err != nil {
			return account.Sample{}, err
		}
		events.Calls = calls
		events.Lost += lost
	}
	if err := m.units.meet(ctx, events); err != nil {
		return account.Sample{}, err
	}
	now := time.Now()
	readings := Readings{
		Seconds: now.Sub(m.last).Seconds(),
		DiskOf:  m.diskOf,
		Copied:  m.copied,
		Below:   m.below,
		NameOf:  m.names,
		MemoryCounters: func(name string) map[string]uint64 {
			counters, _ := ext4.MemoryStatistics(name) // unmounted meanwhile
			return counters
		},
		BlockBytes: m.sizes,
		Events:     events,
		Journal:    m.options.Estimator.Attribute(events),
		UnitOf:     m.units.of,
		Known:      m.units.known,
	}
	var err error
	if readings.Disks, err = m.readDisks(); err != nil {
		return account.Sample{}, err
	}
	sample := account.Sample{
		Time:            now.Round(0),
		IntervalSeconds: readings.Seconds,
		Estimator:       m.options.Estimator.Name(),
		OwnersForgotten: events.OwnersForgotten,
		CgroupsSkipped:  m.skipped(),
		Devices:         slices.DeleteFunc(m.book.Account(readings), func(d account.Device) bool { return !m.asked(d.Device) }),
	}
	if sample.Waiters, err = m.waiters(ctx); err != nil {
		return account.Sample{}, err
	}
	if m.waits != nil {
		sample.WaitsLost, sample.WaitEventsMissed = m.waits.lost, m.waits.missed
		m.waits.lost, m.waits.missed = 0, 0
	}
	m.last = now
	renamed, moved := m.units.rename(now, m.renamed)
	if m.renamed = renamed; moved {
		m.book.move(m.units.top)
	}
	for i := range sample.Devices {
		m.describe(&sample.Devices[i])
	}
	m.observeHolds()
	// Find file systems that were mounted meanwhile, for the next interval.
	before := m.observed
	if err := m.looked(m.findDisks()); err != nil || !m.observed.hasMoreThan(before) {
		return sample, err
	}
	return sample, m.gatherFound(before)
}

// skipped returns the number of cgroups that could not be listed, and logs when
// there are some.
func (m *Meter) skipped() uint64 {
	skipped := m.units.lister.Skipped()
	if skipped > 0 && !m.skips {
		m.options.Log.Warn("some cgroups have no line of their own: they cannot be listed, because they are nested too deep or there are too many", "cgroups", skipped)
	}
	m.skips = skipped > 0
	return skipped
}

// follow accounts the journals of a module while one is mounted.
func (m *Meter) follow(module journal.NVModule, mounted bool) {
	if mounted == m.following[module] {
		return
	}
	m.following[module] = mounted
	missing, err := m.probe.FollowNVJournal(module, mounted)
	if err != nil {
		m.options.Log.Warn("journals in memory are not accounted", "module", string(module), "error", err)
	}
	m.warnMissing(missing)
	m.waits.follow(m, module, mounted)
}

func (m *Meter) warnMissing(tracepoints []string) {
	for _, tracepoint := range tracepoints {
		m.options.Log.Warn("the kernel lacks a tracepoint; the account is coarser", "tracepoint", tracepoint)
	}
}
