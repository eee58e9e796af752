package experiment

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/volume"
)

const (
	guestPartBytes    = 1536 << 20
	guestJournalBytes = 32 << 20
	// guestOtherBytes is what a file system needs besides the writers' files.
	guestOtherBytes = guestJournalBytes + 80<<20
)

// guestStand is two containers on the guest's disk.
type guestStand struct {
	lab   Lab
	asked GuestVolumesCase
	// settings of the divider, for people.
	settings string
	disk     *stageDisk
	group    *group
	home     string // with all mount points
	tenants  []guestTenant
	undo     []func(ctx context.Context) error
	begin    time.Time
}

// guestTenant is one of the two.
type guestTenant struct {
	name string
	// parent is the cgroup with the weight; load, with the processes, and
	// journal, with the jbd2 thread, are in it.
	parent, load, journal string
	directory             string
	// fileBytes is the length of each writer's file.
	fileBytes int64
}

// buildGuestStand sets it up. On error nothing is left.
func (l Lab) buildGuestStand(ctx context.Context, c GuestVolumesCase) (s *guestStand, err error) {
	s = &guestStand{lab: l, asked: c, begin: time.Now()}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
			s = nil
		}
	}()
	if err := c.check(); err != nil {
		return s, err
	}
	given := c.disk()
	s.settings = settings(nil)
	model, qos := c.cost(given)
	if qos != "" {
		s.settings = fmt.Sprintf("scheduler none, io.cost.model: %s, io.cost.qos: %s", model, qos)
	}
	if s.home, err = os.MkdirTemp("", "daybook-guest-volumes-"); err != nil {
		return s, err
	}
	if s.disk, err = given.open(l.Tree, nil); err != nil {
		return s, err
	}
	if qos != "" {
		if err := s.disk.enableCost(l.Tree, model, qos); err != nil {
			return s, err
		}
	}
	if s.group, err = newGroup(l.Tree); err != nil {
		return s, err
	}
	fileBytes := map[string][2]int64{GuestGrowing: guestGrowingBytes, GuestRewriting: guestRewritingBytes}[c.Load]
	if err := s.addTenant("A", weightA, fileBytes[0]); err != nil {
		return s, err
	}
	if err := s.addTenant("B", weightB, fileBytes[1]); err != nil {
		return s, err
	}
	if c.Arrangement == PlacedOnXFS {
		return s, s.attachVolumes(ctx)
	}
	return s, s.partition(ctx)
}

func (s *guestStand) addTenant(name string, weight uint64, fileBytes int64) error {
	parent, err := s.group.add(name, s.disk.Device, weight)
	if err != nil {
		return err
	}
	if err := s.group.enableIO(parent); err != nil {
		return err
	}
	s.tenants = append(s.tenants, guestTenant{name: name, parent: parent, load: parent + "/container", fileBytes: fileBytes})
	return s.lab.Tree.Make(parent + "/container")
}

// point makes a mount point.
func (s *guestStand) point(name string) (string, error) {
	directory := filepath.Join(s.home, name)
	return directory, os.Mkdir(directory, 0o755)
}

// attachVolumes gives each a full volume of a new pool on an XFS on the disk.
func (s *guestStand) attachVolumes(ctx context.Context) error {
	directory, err := s.point("pool")
	if err != nil {
		return err
	}
	if err := mountXFS(ctx, s.disk.Device.Node(), directory); err != nil {
		return err
	}
	s.undo = append(s.undo, func(ctx context.Context) error { return ext4.Unmount(ctx, directory) })
	pool, err := volume.Open(ctx, filepath.Join(directory, "volumes"), volume.PoolOptions{Create: true, Log: s.lab.Log})
	if err != nil {
		return err
	}
	for n := range s.tenants {
		if err := s.attachVolume(ctx, pool, &s.tenants[n]); err != nil {
			return err
		}
	}
	return nil
}

func (s *guestStand) attachVolume(ctx context.Context, pool *volume.Pool, t *guestTenant) (err error) {
	_, err = pool.Create(ctx, t.name, volume.CreateOptions{
		SizeBytes: guestWriters*uint64(t.fileBytes) + guestOtherBytes, Provision: volume.Full, JournalBytes: guestJournalBytes, NoAtime: true,
	})
	if err != nil {
		return err
	}
	if t.directory, err = s.point(t.name); err != nil {
		return err
	}
	status, err := pool.Attach(ctx, t.name, volume.AttachOptions{Target: t.directory, Cgroup: t.parent})
	if err != nil {
		return err
	}
	s.undo = append(s.undo, func(ctx context.Context) error { return pool.Detach(ctx, t.name) })
	if !status.DirectIO || !status.Placed {
		return fmt.Errorf("volume %s: direct I/O %v, jbd2 thread in its place %v; want both", t.name, status.DirectIO, status.Placed)
	}
	t.journal = status.JournalCgroup
	return nil
}

// partition gives each a partition and places its jbd2 thread by hand.
func (s *guestStand) partition(ctx context.Context) error {
	count := len(s.tenants)
	s.undo = append(s.undo, func(context.Context) error { return removePartitions(s.disk.Device, count) })
	parts, err := makePartitions(s.disk.Device, count, guestPartBytes)
	if err != nil {
		return err
	}
	for n := range s.tenants {
		if err := s.mountPart(ctx, parts[n], &s.tenants[n]); err != nil {
			return err
		}
	}
	return nil
}

func (s *guestStand) mountPart(ctx context.Context, p part, t *guestTenant) (err error) {
	if err := ext4.Make(ctx, p.node, ext4.MakeOptions{JournalBytes: guestJournalBytes}); err != nil {
		return err
	}
	if t.directory, err = s.point(t.name); err != nil {
		return err
	}
	if err := ext4.Mount(p.node, t.directory, ext4.MountOptions{NoAtime: true}); err != nil {
		return err
	}
	s.undo = append(s.undo, func(ctx context.Context) error { return ext4.Unmount(ctx, t.directory) })
	t.journal = t.parent + "/journal"
	return placeJournalThread(s.lab.Tree, p.dev, t.journal)
}

func (s *guestStand) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	var errs []error
	for _, undo := range slices.Backward(s.undo) {
		errs = append(errs, undo(ctx))
	}
	if s.group != nil {
		errs = append(errs, s.group.close())
	}
	if s.disk != nil {
		errs = append(errs, s.disk.close(ctx))
	}
	if s.home != "" && errors.Join(errs...) == nil {
		errs = append(errs, os.RemoveAll(s.home))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("cannot clean up after the experiment: %w", err)
	}
	return nil
}
