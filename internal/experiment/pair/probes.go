package pair

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/disktime"
	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/meter"
	"github.com/daybook-project/daybook/internal/synctime"
)

// probes measure a phase of a pair.
type probes struct {
	pair     *pair
	meter    *meter.Meter
	syncs    *synctime.Probe
	requests *disktime.Probe // nil: not measured
}

func (s *pair) openProbes(ctx context.Context, how Measurement) (_ *probes, err error) {
	p := &probes{pair: s}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	// Without a log, which would report the host's other disks.
	if p.meter, err = meter.Open(ctx, meter.Options{Interval: how.Interval, Tree: s.Lab.Tree, Naming: fixture.Naming(nil), Waits: how.Waits}); err != nil {
		return nil, err
	}
	if p.syncs, err = synctime.Open(); err != nil {
		return nil, err
	}
	if how.Waits {
		if p.requests, err = disktime.Open(); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (p *probes) close() error {
	var errs []error
	if p.requests != nil {
		errs = append(errs, p.requests.Close())
	}
	if p.syncs != nil {
		errs = append(errs, p.syncs.Close())
	}
	if p.meter != nil {
		errs = append(errs, p.meter.Close())
	}
	return errors.Join(errs...)
}

// watch waits for the end of the warm-up and then takes the samples.
func (p *probes) watch(ctx context.Context, how Measurement, phase *Phase) error {
	s := p.pair
	if err := fixture.Sleep(ctx, s.warmUp()); err != nil {
		return err
	}
	if _, err := p.meter.Now(ctx); err != nil {
		return err
	}
	placeA, errA := p.watchSyncs(s.a)
	placeB, errB := p.watchSyncs(s.b)
	if err := errors.Join(errA, errB); err != nil {
		return err
	}
	before, err := s.diskTimes(p.requests)
	if err != nil {
		return err
	}
	for range int(time.Duration(how.Seconds) * time.Second / how.Interval) {
		sample, err := p.meter.Next(ctx)
		if err != nil {
			return err
		}
		phase.add(s, sample)
	}
	after, err := s.diskTimes(p.requests)
	if err != nil {
		return err
	}
	phase.Requests, phase.Moves = after.since(before)
	phase.SyncA, errA = p.syncs.Read(placeA)
	phase.SyncB, errB = p.syncs.Read(placeB)
	phase.sum(s)
	return errors.Join(errA, errB)
}

// watchSyncs starts to measure the syncs of a container.
func (p *probes) watchSyncs(t *fixture.Container) (synctime.Place, error) {
	c, err := p.pair.Lab.Tree.Lookup(t.Load)
	if err != nil {
		return synctime.Place{}, err
	}
	place := synctime.Place{Cgroup: c.ID, FileSystem: t.FileSystem}
	return place, p.syncs.Watch(place)
}

// account reduces a sample of all disks to the disk under the containers, with only
// these containers. It also returns the account of the whole disk.
//
// A container with a loop device has all I/O of this device, whichever cgroup the
// kernel charged. Without a loop device it has the I/O of its cgroup.
func (s *pair) account(sample account.Sample) (own account.Sample, disk account.Device) {
	disk = deviceOf(sample, s.Disk.Device.Name)
	device := account.Device{Device: "disk", Dev: disk.Dev, DiskBytes: disk.DiskBytes}
	for _, t := range s.containers() {
		line := account.Container{Cgroup: t.Name, Name: t.Name, TargetShare: float64(t.Weight) / (fixture.WeightA + fixture.WeightB), Weight: t.Weight}
		if t.Loop.Name != "" {
			d := deviceOf(sample, t.Loop.Name)
			line.JournalBytes, line.MetadataBytes = d.JournalBytes, d.MetadataBytes
			line.ChargedWriteBytes = d.DiskBytes - min(d.DiskBytes, d.JournalBytes+d.MetadataBytes)
		} else {
			for _, c := range disk.Containers {
				if c.Cgroup == t.Load {
					line.ChargedReadBytes, line.ChargedWriteBytes = c.ChargedReadBytes, c.ChargedWriteBytes
					line.JournalBytes, line.MetadataBytes, line.UnchargedBytes = c.JournalBytes, c.MetadataBytes, c.UnchargedBytes
				}
			}
		}
		device.Containers = append(device.Containers, line)
	}
	own = sample
	own.Devices = []account.Device{device}
	own.Waiters = waitersIn(sample.Waiters, s.a.Load, s.b.Load)
	return own, disk
}

// waitersIn returns the waiters in these cgroups. A sample has those of the whole host,
// and of another experiment's containers, too.
func waitersIn(all []account.Waiter, cgroups ...string) []account.Waiter {
	var found []account.Waiter
	for _, w := range all {
		if slices.Contains(cgroups, w.Cgroup) {
			found = append(found, w)
		}
	}
	return found
}

// deviceOf returns the account of a device. A device without I/O is not in a sample.
func deviceOf(sample account.Sample, name string) account.Device {
	for _, d := range sample.Devices {
		if d.Device == name {
			return d
		}
	}
	return account.Device{}
}
