package experiment

import (
	"context"
	"errors"
	"fmt"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/volume"
)

// attachVolumes gives each container a volume of a new pool on the disk, its
// jbd2 thread placed under its weight or left where it is.
func (s *stand) attachVolumes(ctx context.Context, provision volume.Provision, placed bool) error {
	pool, err := s.newPool(ctx)
	if err != nil {
		return err
	}
	for _, t := range s.tenants() {
		if err := s.newVolume(ctx, pool, t, provision, placed); err != nil {
			return err
		}
	}
	return nil
}

// newPool makes a file system on the disk and a pool in it.
func (s *stand) newPool(ctx context.Context) (*volume.Pool, error) {
	var directory string
	var err error
	if node := s.disk.Device.Node(); s.on.arrangement.onXFS() {
		directory, err = s.mountNewXFS(ctx, node, "pool")
	} else {
		directory, err = s.mountNew(ctx, node, "pool", 2*standJournalBytes, "")
	}
	if err != nil {
		return nil, err
	}
	return s.openPool(ctx, directory)
}

func (s *stand) newVolume(ctx context.Context, pool *volume.Pool, t *tenant, provision volume.Provision, placed bool) error {
	return s.attachTenant(ctx, pool, t, volume.CreateOptions{SizeBytes: standVolumeBytes, Provision: provision}, placed)
}

// attachDevices gives each container a volume on a partition; their pool, which
// has only their records, is not on the disk.
func (s *stand) attachDevices(ctx context.Context) error {
	parts, err := s.partitions(len(s.tenants()), standPartBytes)
	if err != nil {
		return err
	}
	pool, err := s.openPool(ctx, s.home)
	if err != nil {
		return err
	}
	for n, t := range s.tenants() {
		if err := s.attachTenant(ctx, pool, t, volume.CreateOptions{Device: parts[n].Node}, true); err != nil {
			return err
		}
	}
	return nil
}

func (s *stand) attachTenant(ctx context.Context, pool *volume.Pool, t *tenant, made volume.CreateOptions, placed bool) error {
	made.JournalBytes, made.NoAtime, made.MountOptions = standJournalBytes, true, s.on.mode.mountOption()
	attached := volume.AttachOptions{Placement: volume.PlaceNone}
	if placed {
		attached.Placement, attached.Cgroup = volume.PlaceParent, t.parent
	}
	status, err := s.attachVolume(ctx, pool, t, made, attached)
	if err != nil {
		return err
	}
	if status.LoopDevice == "" {
		t.fileSystem, err = blockdev.ParseDev(status.Attachment.DeviceNumber)
		return err
	}
	if t.loop, err = blockdev.Lookup(status.LoopDevice); err != nil {
		return err
	}
	t.fileSystem = t.loop.Dev
	return nil
}

// PoolJournal is what is left of the pool's own journal under a volume that
// works alone.
type PoolJournal struct {
	Provision volume.Provision `json:"provision"`
	VolumesPhase
}

// poolJournals measures it with a high-fsync writer in a thin and in a full
// volume.
func (l Lab) poolJournals(ctx context.Context, o VolumesOptions, planned plannedPart) (all []PoolJournal, err error) {
	for _, provision := range []volume.Provision{volume.Thin, volume.Full} {
		l.progress("volumes", fmt.Sprintf("%s, the pool's own journal, %s volume", planned.disk, provision), nil)
		one, err := l.poolJournal(ctx, o, planned, provision)
		if err != nil {
			return all, fmt.Errorf("%s volume: %w", provision, err)
		}
		all = append(all, one)
	}
	return all, nil
}

func (l Lab) poolJournal(ctx context.Context, o VolumesOptions, planned plannedPart, provision volume.Provision) (one PoolJournal, err error) {
	s, err := l.newStand(ctx, standOptions{disk: planned.disk, mode: planned.mode, arrangement: PlacedVolumes, slices: shortSlices()})
	if err != nil {
		return one, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.attachVolumes(ctx, provision, true); err != nil {
		return one, err
	}
	u, err := s.subject(ctx, fioLoad)
	if err != nil {
		return one, err
	}
	phase, err := l.volumesPhase(ctx, o, s, u, Alone)
	return PoolJournal{Provision: provision, VolumesPhase: phase}, err
}
