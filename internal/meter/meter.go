package meter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
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
	// regroup is set when the answers of Options.Ideal change.
	regroup atomic.Bool
	// skips is set while cgroups could not be listed.
	skips bool
	// following has the modules whose journals in memory are accounted.
	following map[journal.NVModule]bool
	// present are the paths in the account that is being described.
	present map[string]bool
}

type openDisk struct {
	disk   blockdev.Disk
	reader *blockdev.StatReader
	before blockdev.Stat
	// weights are those on this disk.
	weights *weightCache
	// identity distinguishes it from another disk that gets its name and
	// number.
	identity string
	// volume is the Daybook volume on it; "" for other disks. note is account.Device's.
	volume, note string
}

// know reads the properties of the disk that has the name and number now. It
// does nothing while that is the same disk.
func (d *openDisk) know(tree *cgroup.Tree) error {
	identity, err := d.disk.Identity()
	if err != nil || identity == d.identity {
		return err
	}
	d.identity, d.weights, d.volume, d.note = identity, newWeightCache(tree, d.disk), volumeOn(d.disk), noteOn(d.disk)
	return nil
}

// Open starts metering: it attaches the probe and takes the first readings.
// Errors about missing features of the host wrap journal.ErrUnsupported or
// cgroup.ErrNoHierarchy.
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
		tree, err := cgroup.Find()
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
	if err := m.waits.collect(); err != nil {
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
	timer := time.NewTimer(time.Until(m.last.Add(m.options.Interval)))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return account.Sample{}, ctx.Err()
	case <-timer.C:
	}
	return m.Now(ctx)
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
	if err := m.waits.collect(); err != nil {
		return account.Sample{}, err
	}
	events, err := m.probe.Collect()
	if err != nil {
		return account.Sample{}, err
	}
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
	if sample.Waiters, sample.WaitsLost, err = m.waiters(ctx, events); err != nil {
		return account.Sample{}, err
	}
	m.last = now
	m.renamed = m.units.rename(now, m.renamed)
	for i := range sample.Devices {
		m.describe(&sample.Devices[i])
	}
	// Find file systems that were mounted meanwhile, for the next interval.
	return sample, m.findDisks()
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

func (m *Meter) readDisks() ([]Disk, error) {
	var out []Disk
	for dev, d := range m.disks {
		now, err := d.reader.Read()
		if err == nil {
			err = d.disk.Present()
		}
		if err == nil {
			err = d.know(m.options.Tree)
		}
		if errors.Is(err, blockdev.ErrGone) {
			if gone := m.lose(d.disk, err); gone != nil {
				return nil, gone
			}
			_ = d.reader.Close()
			delete(m.disks, dev)
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, Disk{
			Name: d.disk.Name, Number: d.disk.Dev.String(), Dev: dev,
			ReadBytes:  now.ReadBytes - d.before.ReadBytes,
			WriteBytes: now.WriteBytes - d.before.WriteBytes,
		})
		d.before = now
	}
	return out, nil
}

// lose stops observing a disk that is gone. It returns an error if no observed
// disk is left.
func (m *Meter) lose(disk blockdev.Disk, gone error) error {
	m.only = slices.DeleteFunc(m.only, func(d blockdev.Disk) bool { return d == disk })
	if len(m.options.Devices) > 0 && len(m.only) == 0 {
		return gone
	}
	m.options.Log.Warn("a disk is gone", "disk", disk.Name)
	return nil
}

// asked reports whether the account has a page of a disk. A device is read, too, if it is
// on several disks of which one is asked for.
func (m *Meter) asked(disk string) bool {
	return len(m.options.Devices) == 0 || slices.ContainsFunc(m.only, func(d blockdev.Disk) bool { return d.Name == disk })
}

// observes reports whether the account includes the disk of a file system, or one of the
// several disks below it.
func (m *Meter) observes(fs filesystem) bool {
	return len(m.options.Devices) == 0 || slices.Contains(m.only, fs.disk) ||
		slices.ContainsFunc(fs.below, func(d blockdev.Disk) bool { return slices.Contains(m.only, d) })
}

// findDisks lists the mounted file systems and observes their disks.
func (m *Meter) findDisks() error {
	found, err := mountedFilesystems("/sys")
	if err != nil {
		return err
	}
	for _, module := range journal.NVModules {
		m.follow(module, slices.ContainsFunc(found, func(fs filesystem) bool { return fs.driver == string(module) }))
	}
	clear(m.diskOf)
	clear(m.names)
	m.below = make(map[uint32][]uint32)
	wanted := make(map[uint32]blockdev.Disk)
	copied := make(map[uint32]uint32)
	changed := false
	for _, fs := range found {
		if !m.observes(fs) {
			continue
		}
		dev := fs.dev.Kernel()
		m.diskOf[dev] = fs.disk.Dev.Kernel()
		m.names[dev] = fs.name
		wanted[fs.disk.Dev.Kernel()] = fs.disk
		if fs.below != nil {
			m.below[fs.disk.Dev.Kernel()] = numbers(fs.below)
		}
		if fs.copied != 0 {
			copied[fs.copied] = fs.disk.Dev.Kernel()
		}
		if m.mounts[dev] != fs.mount {
			m.mounts[dev] = fs.mount
			m.sizes[dev], m.journals[dev] = fs.facts()
			changed = true
		}
	}
	for dev := range m.mounts {
		if _, mounted := m.diskOf[dev]; !mounted {
			delete(m.mounts, dev)
			delete(m.sizes, dev)
			delete(m.journals, dev)
		}
	}
	for _, disk := range m.only {
		wanted[disk.Dev.Kernel()] = disk
	}
	for dev, disk := range wanted {
		if m.disks[dev] != nil {
			continue
		}
		reader, err := disk.OpenStat()
		if errors.Is(err, blockdev.ErrGone) {
			if gone := m.lose(disk, err); gone != nil {
				return gone
			}
			continue
		}
		if err != nil {
			return err
		}
		open := &openDisk{disk: disk, reader: reader}
		if open.before, err = reader.Read(); err == nil {
			err = open.know(m.options.Tree)
		}
		if err != nil {
			err = errors.Join(err, reader.Close())
			if !errors.Is(err, blockdev.ErrGone) {
				return err
			}
			if gone := m.lose(disk, err); gone != nil {
				return gone
			}
			continue
		}
		m.disks[dev] = open
		changed = true
	}
	for dev, d := range m.disks {
		if _, ok := wanted[dev]; !ok {
			_ = d.reader.Close()
			delete(m.disks, dev)
			changed = true
		}
	}
	changed = changed || !maps.Equal(copied, m.copied)
	m.copied = copied
	if !changed {
		return nil
	}
	observed := slices.Collect(maps.Keys(copied))
	for dev := range m.disks {
		observed = append(observed, dev)
	}
	slices.Sort(observed)
	var journals []uint32
	for _, dev := range m.journals {
		if dev != 0 {
			journals = append(journals, dev)
		}
	}
	return m.probe.Observe(observed, journals...)
}

// numbers are the kernel's numbers of disks.
func numbers(disks []blockdev.Disk) []uint32 {
	list := make([]uint32, len(disks))
	for i, disk := range disks {
		list[i] = disk.Dev.Kernel()
	}
	return list
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

// describe adds names, weights and targets to the account of a device, and the
// idle containers, so that they are shown.
func (m *Meter) describe(device *account.Device) {
	clear(m.present)
	for _, c := range device.Containers {
		m.present[c.Cgroup] = true
	}
	m.units.alive(func(path string) {
		if m.present[path] {
			return
		}
		who := m.units.byPath[path]
		if _, ideal := m.ideal(path, who.name); ideal || who.runtime != "" {
			m.present[path] = true
			device.Containers = append(device.Containers, account.Container{Cgroup: path})
		}
	})
	var weights *weightCache
	for _, d := range m.disks {
		if d.disk.Name == device.Device {
			weights, device.Volume, device.Note = d.weights, d.volume, d.note
		}
	}
	weights.begin(len(device.Containers))
	promises, promised := m.promises(device.Device)
	if promised {
		device.Control = &promises.Control
	}
	var sum float64 // of the configured weights
	for i := range device.Containers {
		c := &device.Containers[i]
		c.Name = c.Cgroup
		if who, ok := m.units.byPath[c.Cgroup]; ok {
			c.Name, c.Runtime = who.name, who.runtime
		}
		if c.Cgroup == account.RootCgroup || c.Cgroup == EndedCgroups {
			continue
		}
		c.Weight = weights.get(c.Cgroup)
		if promised {
			continue
		}
		if weight, ok := m.ideal(c.Cgroup, c.Name); ok {
			c.TargetShare = float64(weight)
			sum += c.TargetShare
		}
	}
	if sum > 0 && m.options.Promises == nil {
		// The shares of the configured weights, as one level.
		for i := range device.Containers {
			device.Containers[i].TargetShare /= sum
		}
		return
	}
	// Otherwise the shares of the tree of weights, as configured or as first
	// found.
	weight := func(path string) float64 {
		if w := promises.Weights[path]; w > 0 {
			return float64(w)
		}
		if promises.Configured {
			return 1 // alone on its level
		}
		return weights.first(path)
	}
	paths := make([]string, 0, len(device.Containers))
	for _, c := range device.Containers {
		if c.Cgroup == account.RootCgroup || c.Cgroup == EndedCgroups || promises.Configured && !promises.Units[c.Cgroup] {
			continue
		}
		paths = append(paths, c.Cgroup)
	}
	targets := targetShares(paths, weight)
	for i := range device.Containers {
		device.Containers[i].TargetShare = targets[device.Containers[i].Cgroup]
	}
}

func (m *Meter) promises(device string) (Promises, bool) {
	if m.options.Promises == nil {
		return Promises{}, false
	}
	return m.options.Promises(device)
}

func (m *Meter) ideal(path, name string) (uint64, bool) {
	if m.options.Ideal == nil {
		return 0, false
	}
	return m.options.Ideal(path, name)
}
