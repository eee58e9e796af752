package experiment

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/ext4"
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
		if err := s.attachVolume(ctx, pool, t, provision, placed); err != nil {
			return err
		}
	}
	return nil
}

// newPool makes a file system on the disk and a pool in it.
func (s *stand) newPool(ctx context.Context) (*volume.Pool, error) {
	mountNew := func() (string, error) {
		return s.mountNew(ctx, s.disk.Device.Node(), "pool", 2*standJournalBytes, "")
	}
	if s.on.arrangement == PlacedOnXFS {
		mountNew = func() (string, error) { return s.mountNewXFS(ctx, s.disk.Device.Node(), "pool") }
	}
	directory, err := mountNew()
	if err != nil {
		return nil, err
	}
	return volume.Open(ctx, filepath.Join(directory, "volumes"), volume.PoolOptions{Create: true, Log: s.lab.Log})
}

// mountNewXFS makes an XFS on a device and mounts it below home.
func (s *stand) mountNewXFS(ctx context.Context, node, name string) (directory string, err error) {
	directory = filepath.Join(s.home, name)
	if err := os.Mkdir(directory, 0o755); err != nil {
		return "", err
	}
	if err := mountXFS(ctx, node, directory); err != nil {
		return "", err
	}
	s.undo = append(s.undo, func(ctx context.Context) error { return ext4.Unmount(ctx, directory) })
	return directory, nil
}

// mountXFS makes an XFS on a device and mounts it.
func mountXFS(ctx context.Context, node, directory string) error {
	if output, err := exec.CommandContext(ctx, "mkfs.xfs", "-q", "-f", node).CombinedOutput(); err != nil {
		return fmt.Errorf("mkfs.xfs: %w: %s", err, strings.TrimSpace(string(output)))
	}
	if err := unix.Mount(node, directory, "xfs", unix.MS_NOATIME, ""); err != nil {
		return fmt.Errorf("cannot mount %s on %s (xfs): %w", node, directory, err)
	}
	return nil
}

func (s *stand) attachVolume(ctx context.Context, pool *volume.Pool, t *tenant, provision volume.Provision, placed bool) error {
	_, err := pool.Create(ctx, t.name, volume.CreateOptions{
		SizeBytes: standVolumeBytes, Provision: provision, JournalBytes: standJournalBytes, NoAtime: true,
		MountOptions: s.on.mode.mountOption(),
	})
	if err != nil {
		return err
	}
	t.directory = filepath.Join(s.home, t.name)
	if err := os.Mkdir(t.directory, 0o755); err != nil {
		return err
	}
	options := volume.AttachOptions{Target: t.directory, Placement: volume.PlaceNone}
	if placed {
		options.Placement, options.Cgroup = volume.PlaceParent, t.parent
	}
	status, err := pool.Attach(ctx, t.name, options)
	if err != nil {
		return err
	}
	s.undo = append(s.undo, func(ctx context.Context) error { return pool.Detach(ctx, t.name) })
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
