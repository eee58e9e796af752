package volumes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/disksim"
	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/volume"
)

// conditions are the parameters of a pair.
type conditions struct {
	disk        string // one of Disks
	mode        DataMode
	arrangement fixture.Arrangement
	slices      slicing
}

// pair is two containers on one disk in one arrangement.
type pair struct {
	fixture.Base
	conditions conditions
	// a has the measured load, b is its neighbour.
	a, b *fixture.Container
}

const (
	diskBytes = 4 << 30
	// Of each container.
	volumeBytes    = 1280 << 20
	journalBytes   = 64 << 20
	partitionBytes = 1536 << 20
)

// Further simulated disks, for predictions of advise.
const (
	slowHDD  = "slow-hdd"
	quickHDD = "quick-hdd"
)

// modelOf returns the model of a simulated disk.
func modelOf(disk string) disksim.Parameters {
	p := hddModel()
	switch disk {
	case slowHDD:
		p.BandwidthBytesPerSecond, p.FlushSeconds = 40e6, 0.001
		p.TrackToTrackSeekSeconds, p.FullStrokeSeekSeconds = 0.001, 0.012
	case quickHDD:
		p.BandwidthBytesPerSecond, p.FlushSeconds = 80e6, 0.002
		p.TrackToTrackSeekSeconds, p.FullStrokeSeekSeconds = 0.0008, 0.01
	}
	return p
}

// hddModel is the model of the simulated disk. describeDisk describes it or the
// plain disk.
func hddModel() disksim.Parameters {
	return disksim.Parameters{
		BandwidthBytesPerSecond: 60e6,
		FullStrokeSeekSeconds:   0.008,
		TrackToTrackSeekSeconds: 0.0005,
		FlushSeconds:            0.0005,
		HostSlackSeconds:        0.002,
		Rotational:              true,
	}
}

func describeDisk(disk string) string {
	if disk == plainDisk {
		return "a loop device on a file of the host's disk"
	}
	p := modelOf(disk)
	return fmt.Sprintf("simulated: %.0f MB/s, seek %.1f to %.0f ms, flush %.1f ms",
		p.BandwidthBytesPerSecond/1e6, p.TrackToTrackSeekSeconds*1e3, p.FullStrokeSeekSeconds*1e3, p.FlushSeconds*1e3)
}

// buildPair makes a pair and its file systems, with a disk without delays; setInstant
// switches them on. On error nothing is left.
func buildPair(ctx context.Context, l fixture.Lab, on conditions) (s *pair, err error) {
	s, err = newPair(ctx, l, on)
	if err != nil {
		return nil, err
	}
	switch on.arrangement {
	case fixture.SharedExt4:
		err = s.share(ctx)
	case fixture.OwnVolumes, fixture.PlacedVolumes, fixture.PlacedOnXFS, fixture.ControlledOnXFS:
		err = s.attachVolumes(ctx, volume.Full, on.arrangement != fixture.OwnVolumes)
	case fixture.OnDevices, fixture.ControlledOnDevices:
		err = s.attachDevices(ctx)
	case fixture.OwnPartitions, fixture.LoopedPartitions:
		err = s.partition(ctx)
	default:
		err = fmt.Errorf("no arrangement %q", on.arrangement)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// newPair makes the disk and the cgroups.
func newPair(ctx context.Context, l fixture.Lab, on conditions) (s *pair, err error) {
	s = &pair{Base: fixture.Base{Lab: l}, conditions: on}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
			s = nil
		}
	}()
	if s.Home, err = fixture.MakeHome(); err != nil {
		return s, err
	}
	// Servers run as another user, and their data is below it.
	if err := os.Chmod(s.Home, 0o711); err != nil {
		return s, err
	}
	options := fixture.Options{SizeBytes: diskBytes, Parameters: modelOf(on.disk), Tunables: on.slices.tunables}
	if on.disk == plainDisk {
		if options.Given, err = s.plainDisk(); err != nil {
			return s, err
		}
	}
	if s.Disk, err = fixture.OpenDisk(ctx, l.Tree, "experiment-"+strconv.Itoa(os.Getpid()), options); err != nil {
		return s, err
	}
	if err = s.HoldQueue(on.slices.queue()); err != nil {
		return s, err
	}
	if on.slices.crowded {
		if err = s.crowd(); err != nil {
			return s, err
		}
	}
	if s.Group, err = fixture.NewGroup(l.Tree); err != nil {
		return s, err
	}
	s.a, err = s.NewContainer("A", fixture.WeightA)
	if err == nil {
		s.b, err = s.NewContainer("B", fixture.WeightB)
	}
	return s, err
}

// plainDisk is a loop device over a file.
func (s *pair) plainDisk() (*fixture.GivenDisk, error) {
	image := filepath.Join(s.Home, "disk")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		return nil, err
	}
	if err := os.Truncate(image, diskBytes); err != nil {
		return nil, err
	}
	loop, err := blockdev.Attach(image, blockdev.AttachOptions{DirectIO: true})
	if err != nil {
		return nil, err
	}
	s.Loop = &loop
	return &fixture.GivenDisk{Node: loop.Path(), Divider: fixture.BFQ}, nil
}

func (s *pair) containers() []*fixture.Container { return []*fixture.Container{s.a, s.b} }

// share makes one ext4 for both containers.
func (s *pair) share(ctx context.Context) error {
	directory, err := s.MountNew(ctx, s.Disk.Device.Node(), "shared", 2*journalBytes, s.conditions.mode.mountOption())
	if err != nil {
		return err
	}
	for _, t := range s.containers() {
		t.Directory, t.FileSystem = filepath.Join(directory, t.Name), s.Disk.Device.Dev
		if err := os.Mkdir(t.Directory, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// partition makes a partition for each container and moves its jbd2 thread.
func (s *pair) partition(ctx context.Context) error {
	parts, err := s.Partitions(len(s.containers()), partitionBytes)
	if err != nil {
		return err
	}
	for n, t := range s.containers() {
		t.FileSystem = parts[n].Dev
		if s.conditions.arrangement == fixture.LoopedPartitions {
			loop, err := blockdev.Attach(parts[n].Node, blockdev.AttachOptions{DirectIO: true})
			if err != nil {
				return err
			}
			s.AtEnd(loop.Detach)
			t.Loop, t.FileSystem, parts[n].Node = loop.Disk, loop.Dev, loop.Path()
		}
		if t.Directory, err = s.MountNew(ctx, parts[n].Node, t.Name, journalBytes, s.conditions.mode.mountOption()); err != nil {
			return err
		}
		if err := fixture.PlaceJournalThread(s.Lab.Tree, t.FileSystem, t.Parent+"/journal"); err != nil {
			return err
		}
	}
	return nil
}

// setInstant switches the delays of a simulated disk.
func (s *pair) setInstant(instant bool) error { return s.Disk.SetInstant(instant) }

// writeOut writes out the dirty data of all its file systems.
func (s *pair) writeOut() error {
	for _, t := range s.containers() {
		if err := fixture.WriteOut(t.Directory); err != nil {
			return err
		}
	}
	return nil
}
