package pair

import (
	"cmp"
	"context"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/volume"
)

// attachVolumes gives each container a volume of a new pool on the disk.
func (s *pair) attachVolumes(ctx context.Context) error {
	pool, err := s.newPool(ctx)
	if err != nil {
		return err
	}
	for _, t := range s.containers() {
		made := volume.CreateOptions{SizeBytes: volumeBytes, Provision: cmp.Or(s.conditions.Provision, volume.Full)}
		if err := s.attachContainer(ctx, pool, t, made); err != nil {
			return err
		}
	}
	return nil
}

// newPool makes a file system on the disk, and a pool in it.
func (s *pair) newPool(ctx context.Context) (*volume.Pool, error) {
	var directory string
	var err error
	if node := s.Disk.Device.Node(); s.conditions.Arrangement.OnXFS() {
		directory, err = s.MountNewXFS(ctx, node, "pool")
	} else {
		directory, err = s.MountNew(ctx, node, "pool", 2*journalBytes, "")
	}
	if err != nil {
		return nil, err
	}
	return s.OpenPool(ctx, directory)
}

// attachDevices gives each container a volume on a partition. Their pool has only their
// records and is not on the disk.
func (s *pair) attachDevices(ctx context.Context) error {
	parts, err := s.Partitions(len(s.containers()), partitionBytes)
	if err != nil {
		return err
	}
	pool, err := s.OpenPool(ctx, s.Home)
	if err != nil {
		return err
	}
	for n, t := range s.containers() {
		if err := s.attachContainer(ctx, pool, t, volume.CreateOptions{Device: parts[n].Node}); err != nil {
			return err
		}
	}
	return nil
}

// attachContainer makes and attaches a container's volume. Its jbd2 thread moves under the
// weight of the container, but in the arrangement OwnVolumes.
func (s *pair) attachContainer(ctx context.Context, pool *volume.Pool, t *fixture.Container, made volume.CreateOptions) error {
	made.JournalBytes, made.NoAtime, made.MountOptions = journalBytes, true, s.conditions.DataMode.mountOption()
	attached := volume.AttachOptions{Placement: volume.PlaceParent, Cgroup: t.Parent}
	if s.conditions.Arrangement == fixture.OwnVolumes {
		attached = volume.AttachOptions{Placement: volume.PlaceNone}
	}
	status, err := s.AttachVolume(ctx, pool, t, made, attached)
	if err != nil {
		return err
	}
	if status.LoopDevice == "" {
		t.FileSystem, err = blockdev.ParseDev(status.Attachment.DeviceNumber)
		return err
	}
	if t.Loop, err = blockdev.Lookup(status.LoopDevice); err != nil {
		return err
	}
	t.FileSystem = t.Loop.Dev
	return nil
}
