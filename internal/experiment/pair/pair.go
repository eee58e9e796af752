package pair

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/volume"
)

// Conditions are the parameters of a pair.
type Conditions struct {
	Disk        string
	DataMode    DataMode
	Arrangement fixture.Arrangement
	Slicing     Slicing
	// Provision is that of volumes in a pool; "": full.
	Provision volume.Provision
}

// pair is two containers on one disk in one arrangement.
type pair struct {
	fixture.Base
	conditions Conditions
	// a has the measured load, b is its neighbour.
	a, b *fixture.Container
}

const (
	diskBytes = 4 << 30
	// Of each container.
	volumeBytes    = 1280 << 20
	journalBytes   = 64 << 20
	partitionBytes = 1536 << 20

	// PartitionShare is the part of the disk that a partition has.
	PartitionShare = float64(partitionBytes) / diskBytes
)

// buildPair makes a pair and its file systems, with a disk without delays; setInstant
// switches them on. On error nothing is left.
func buildPair(ctx context.Context, l fixture.Lab, on Conditions) (s *pair, err error) {
	s, err = newPair(ctx, l, on)
	if err != nil {
		return nil, err
	}
	switch on.Arrangement {
	case fixture.SharedExt4:
		whole := blockdev.Partition{Node: s.Disk.Device.Node(), Dev: s.Disk.Device.Dev}
		err = s.MountShared(ctx, whole, 2*journalBytes, on.DataMode.mountOption(), s.containers()...)
	case fixture.OwnVolumes, fixture.PlacedVolumes, fixture.PlacedOnXFS, fixture.ControlledOnXFS:
		err = s.attachVolumes(ctx)
	case fixture.OnDevices, fixture.ControlledOnDevices:
		err = s.attachDevices(ctx)
	case fixture.OwnPartitions, fixture.LoopedPartitions:
		err = s.partition(ctx)
	default:
		err = fmt.Errorf("no arrangement %q", on.Arrangement)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// newPair makes the disk and the cgroups.
func newPair(ctx context.Context, l fixture.Lab, on Conditions) (s *pair, err error) {
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
	options := fixture.Options{SizeBytes: diskBytes, Parameters: model(on.Disk), Tunables: on.Slicing.tunables}
	if on.Disk == Plain {
		if options.Given, err = s.plainDisk(); err != nil {
			return s, err
		}
	}
	if s.Disk, err = fixture.OpenDisk(ctx, l.Tree, "experiment-"+strconv.Itoa(os.Getpid()), options); err != nil {
		return s, err
	}
	if err = s.HoldQueue(on.Slicing.queue()); err != nil {
		return s, err
	}
	if on.Slicing.crowded {
		if err = s.crowd(); err != nil {
			return s, err
		}
	}
	s.a, s.b, err = s.NewPair()
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

// partition makes a partition for each container and moves its jbd2 thread.
func (s *pair) partition(ctx context.Context) error {
	parts, err := s.Partitions(len(s.containers()), partitionBytes)
	if err != nil {
		return err
	}
	for n, t := range s.containers() {
		if s.conditions.Arrangement == fixture.LoopedPartitions {
			loop, err := blockdev.Attach(parts[n].Node, blockdev.AttachOptions{DirectIO: true})
			if err != nil {
				return err
			}
			s.AtEnd(loop.Detach)
			t.Loop, parts[n] = loop.Disk, blockdev.Partition{Node: loop.Path(), Dev: loop.Dev}
		}
		if err := s.MountPlaced(ctx, t, parts[n], journalBytes, s.conditions.DataMode.mountOption()); err != nil {
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
