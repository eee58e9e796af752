package volumes

import (
	"context"
	"errors"
	"fmt"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/volume"
)

// attachVolumes gives each container a volume of a new pool on the disk. If placed, the
// jbd2 thread of each volume moves under the weight of its container.
func (s *pair) attachVolumes(ctx context.Context, provision volume.Provision, placed bool) error {
	pool, err := s.newPool(ctx)
	if err != nil {
		return err
	}
	for _, t := range s.containers() {
		if err := s.newVolume(ctx, pool, t, provision, placed); err != nil {
			return err
		}
	}
	return nil
}

// newPool makes a file system on the disk, and a pool in it.
func (s *pair) newPool(ctx context.Context) (*volume.Pool, error) {
	var directory string
	var err error
	if node := s.Disk.Device.Node(); s.conditions.arrangement.OnXFS() {
		directory, err = s.MountNewXFS(ctx, node, "pool")
	} else {
		directory, err = s.MountNew(ctx, node, "pool", 2*journalBytes, "")
	}
	if err != nil {
		return nil, err
	}
	return s.OpenPool(ctx, directory)
}

func (s *pair) newVolume(ctx context.Context, pool *volume.Pool, t *fixture.Container, provision volume.Provision, placed bool) error {
	return s.attachContainer(ctx, pool, t, volume.CreateOptions{SizeBytes: volumeBytes, Provision: provision}, placed)
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
		if err := s.attachContainer(ctx, pool, t, volume.CreateOptions{Device: parts[n].Node}, true); err != nil {
			return err
		}
	}
	return nil
}

func (s *pair) attachContainer(ctx context.Context, pool *volume.Pool, t *fixture.Container, made volume.CreateOptions, placed bool) error {
	made.JournalBytes, made.NoAtime, made.MountOptions = journalBytes, true, s.conditions.mode.mountOption()
	attached := volume.AttachOptions{Placement: volume.PlaceNone}
	if placed {
		attached.Placement, attached.Cgroup = volume.PlaceParent, t.Parent
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

// PoolJournal is the I/O of the pool's own journal under one volume that has no
// neighbour.
type PoolJournal struct {
	Provision volume.Provision `json:"provision"`
	Phase
}

// poolJournals measures the pool's own journal under a high-fsync writer, in a thin and
// in a full volume.
func poolJournals(ctx context.Context, l fixture.Lab, o Options, planned plannedPart) (all []PoolJournal, err error) {
	for _, provision := range []volume.Provision{volume.Thin, volume.Full} {
		l.Announce("volumes", fmt.Sprintf("%s, the pool's own journal, %s volume", planned.disk, provision), nil)
		one, err := poolJournal(ctx, l, o, planned, provision)
		if err != nil {
			return all, fmt.Errorf("%s volume: %w", provision, err)
		}
		all = append(all, one)
	}
	return all, nil
}

func poolJournal(ctx context.Context, l fixture.Lab, o Options, planned plannedPart, provision volume.Provision) (one PoolJournal, err error) {
	s, err := newPair(ctx, l, conditions{disk: planned.disk, mode: planned.mode, arrangement: fixture.PlacedVolumes, slices: shortSlices()})
	if err != nil {
		return one, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := s.attachVolumes(ctx, provision, true); err != nil {
		return one, err
	}
	u, err := s.subject(ctx, fioLoad)
	if err != nil {
		return one, err
	}
	phase, err := u.runPhase(ctx, o, Alone)
	return PoolJournal{Provision: provision, Phase: phase}, err
}
