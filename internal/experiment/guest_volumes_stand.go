package experiment

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

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
	footing
	asked GuestVolumesCase
	// settings of the divider, for people.
	settings string
	tenants  []guestTenant
	begin    time.Time
}

// guestTenant is one of the two.
type guestTenant struct {
	*tenant
	// journal, the cgroup with the jbd2 thread, is in parent, as load is.
	journal string
	// fileBytes is the length of each writer's file.
	fileBytes int64
}

// buildGuestStand sets it up. On error nothing is left.
func (l Lab) buildGuestStand(ctx context.Context, c GuestVolumesCase) (s *guestStand, err error) {
	s = &guestStand{footing: footing{lab: l}, asked: c, begin: time.Now()}
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
	t, err := s.newTenant(name, weight)
	if err != nil {
		return err
	}
	s.tenants = append(s.tenants, guestTenant{tenant: t, fileBytes: fileBytes})
	return nil
}

// attachVolumes gives each a full volume of a new pool on an XFS on the disk.
func (s *guestStand) attachVolumes(ctx context.Context) error {
	directory, err := s.mountNewXFS(ctx, s.disk.Device.Node(), "pool")
	if err != nil {
		return err
	}
	pool, err := s.openPool(ctx, directory)
	if err != nil {
		return err
	}
	for n := range s.tenants {
		if err := s.newVolume(ctx, pool, &s.tenants[n]); err != nil {
			return err
		}
	}
	return nil
}

func (s *guestStand) newVolume(ctx context.Context, pool *volume.Pool, t *guestTenant) error {
	made := volume.CreateOptions{
		SizeBytes: guestWriters*uint64(t.fileBytes) + guestOtherBytes, Provision: volume.Full, JournalBytes: guestJournalBytes, NoAtime: true,
	}
	status, err := s.attachVolume(ctx, pool, t.tenant, made, volume.AttachOptions{Cgroup: t.parent})
	if err != nil {
		return err
	}
	if !status.DirectIO || !status.Placed {
		return fmt.Errorf("volume %s: direct I/O %v, jbd2 thread in its place %v; want both", t.name, status.DirectIO, status.Placed)
	}
	t.journal = status.JournalCgroup
	return nil
}

// partition gives each a partition and places its jbd2 thread by hand.
func (s *guestStand) partition(ctx context.Context) error {
	parts, err := s.partitions(len(s.tenants), guestPartBytes)
	if err != nil {
		return err
	}
	for n := range s.tenants {
		t := &s.tenants[n]
		if t.directory, err = s.mountNew(ctx, parts[n].Node, t.name, guestJournalBytes, ""); err != nil {
			return err
		}
		t.journal = t.parent + "/journal"
		if err := placeJournalThread(s.lab.Tree, parts[n].Dev, t.journal); err != nil {
			return err
		}
	}
	return nil
}
