package guestvolumes

import (
	"context"
	"path/filepath"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/ublk"
	"github.com/daybook-project/daybook/volume"
)

// ServedOnXFS is a full volume for each container in a pool on XFS, as in
// fixture.PlacedOnXFS, but served by a process of the container (ublk) in place of a loop
// device. One thread does all I/O of a volume, and the process has a cgroup beside the
// container's: so BFQ has a queue for each volume that never changes its cgroup. The
// jbd2 threads are moved by hand. Daybook offers no such volume.
const ServedOnXFS fixture.Arrangement = "U"

func (s *pair) serveImages(ctx context.Context) error {
	pool, err := s.poolOnXFS(ctx)
	if err != nil {
		return err
	}
	for n := range s.containers {
		t := &s.containers[n]
		if _, err := pool.Create(ctx, t.Name, fullVolume(*t)); err != nil {
			return err
		}
		t.requests = t.Parent + "/server"
		if err := s.Lab.Tree.Make(t.requests); err != nil {
			return err
		}
		server, err := ublk.Start(filepath.Join(pool.Dir(), "volumes", t.Name, "image"), s.Group.Directory(t.requests))
		if err != nil {
			return err
		}
		s.AtEnd(func(context.Context) error { return server.Stop() })
		disk, err := blockdev.Lookup(server.Node)
		if err != nil {
			return err
		}
		// The volume's own file system is made again, as on the other devices.
		if err := s.MountPlaced(ctx, t.Container, blockdev.Partition{Node: server.Node, Dev: disk.Dev}, journalBytes, ""); err != nil {
			return err
		}
	}
	return nil
}

// fullVolume is what a container's volume is made with.
func fullVolume(t container) volume.CreateOptions {
	return volume.CreateOptions{
		SizeBytes: writers*uint64(t.fileBytes) + otherBytes, Provision: volume.Full, JournalBytes: journalBytes, NoAtime: true,
	}
}
