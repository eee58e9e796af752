package guestvolumes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/volume"
)

const (
	partitionBytes = 1536 << 20
	journalBytes   = 32 << 20
	// otherBytes is the space for everything but the writers' files.
	otherBytes = journalBytes + 80<<20
)

// pair is two containers on the guest's disk.
type pair struct {
	fixture.Base
	asked Case
	// settings are the settings of the divider, as text.
	settings   string
	containers []container
	begin      time.Time
}

// container is one of the two.
type container struct {
	*fixture.Container
	// requests is the cgroup whose requests reach the disk: load, or that of a server.
	requests string
	// fileBytes is the length of each writer's file.
	fileBytes int64
	// writers is the number of its writers, and blockBytes the size of one write.
	writers, blockBytes int
}

// buildPair makes a pair and its file systems. On error nothing is left.
func buildPair(ctx context.Context, l fixture.Lab, c Case) (s *pair, err error) {
	s = &pair{Base: fixture.Base{Lab: l}, asked: c, begin: time.Now()}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
			s = nil
		}
	}()
	if err := c.check(); err != nil {
		return s, err
	}
	given := c.disk()
	s.settings = fixture.Settings(nil)
	model, qos := c.cost(given)
	if qos != "" {
		s.settings = fmt.Sprintf("scheduler none, io.cost.model: %s, io.cost.qos: %s", model, qos)
	}
	if s.Home, err = os.MkdirTemp("", "daybook-guest-volumes-"); err != nil {
		return s, err
	}
	if s.Disk, err = given.Open(l.Tree, nil); err != nil {
		return s, err
	}
	if qos != "" {
		if err := s.Disk.EnableCost(l.Tree, model, qos); err != nil {
			return s, err
		}
	}
	a, b, err := s.NewPair()
	if err != nil {
		return s, err
	}
	fileBytes := map[string][2]int64{Growing: growingBytes, Rewriting: rewritingBytes, Waiting: growingBytes}[c.Load]
	for n, t := range []*fixture.Container{a, b} {
		s.containers = append(s.containers, container{Container: t, requests: t.Load, fileBytes: fileBytes[n], writers: writers, blockBytes: blockBytes})
	}
	if c.Load == Waiting {
		s.containers[0].writers, s.containers[0].blockBytes = 1, waitingBlockBytes
	}
	switch c.Arrangement {
	case fixture.PlacedOnXFS:
		return s, s.attachVolumes(ctx)
	case MappedOnXFS:
		return s, s.mapImages(ctx)
	case ServedOnXFS:
		return s, s.serveImages(ctx)
	}
	return s, s.partition(ctx)
}

// poolOnXFS makes a pool on an XFS on the disk.
func (s *pair) poolOnXFS(ctx context.Context) (*volume.Pool, error) {
	directory, err := s.MountNewXFS(ctx, s.Disk.Device.Node(), "pool")
	if err != nil {
		return nil, err
	}
	return s.OpenPool(ctx, directory)
}

// attachVolumes gives each container a full volume of a new pool, on XFS on the disk.
func (s *pair) attachVolumes(ctx context.Context) error {
	pool, err := s.poolOnXFS(ctx)
	if err != nil {
		return err
	}
	for n := range s.containers {
		if err := s.newVolume(ctx, pool, &s.containers[n]); err != nil {
			return err
		}
	}
	return nil
}

func (s *pair) newVolume(ctx context.Context, pool *volume.Pool, t *container) error {
	status, err := s.AttachVolume(ctx, pool, t.Container, fullVolume(*t), volume.AttachOptions{Cgroup: t.Parent})
	if err != nil {
		return err
	}
	if !status.DirectIO || !status.Placed || status.JournalCgroup != t.Journal() {
		return fmt.Errorf("volume %s: direct I/O %v, jbd2 thread placed %v in %s; want both, in %s", t.Name, status.DirectIO, status.Placed, status.JournalCgroup, t.Journal())
	}
	return nil
}

// partition gives each container a partition, and places its jbd2 thread by hand.
func (s *pair) partition(ctx context.Context) error {
	parts, err := s.Partitions(len(s.containers), partitionBytes)
	if err != nil {
		return err
	}
	for n, t := range s.containers {
		if err := s.MountPlaced(ctx, t.Container, parts[n], journalBytes, ""); err != nil {
			return err
		}
	}
	return nil
}
