package pair

import (
	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/fio"
)

// Neighbours that are defined by more than their way to sync.
const (
	// Alone is the neighbour that does nothing.
	Alone fio.Neighbour = "alone"
	// Limited is a high-fsync writer in a container with a limit on its writes
	// to the disk.
	Limited fio.Neighbour = "limited"
)

// LimitedBytesPerSecond is that limit.
const LimitedBytesPerSecond = 4_000_000

// Neighbours lists all neighbours, the quietest first.
func Neighbours() []fio.Neighbour {
	return append(append([]fio.Neighbour{Alone}, fio.Neighbours()...), Limited)
}

// syncs returns how a writing neighbour syncs.
func syncs(n fio.Neighbour) fio.Neighbour {
	if n == Limited {
		return fio.HighFsync
	}
	return n
}

// limit limits a container's writes to the disk, and returns a function that
// restores the old limit. The limit is on the cgroup of the processes, because on
// v1 the kernel's throttling is not hierarchical.
func (s *pair) limit(t *fixture.Container) (restore func() error, err error) {
	tree, dev := s.Lab.Tree, s.Disk.Device.Dev
	before, err := tree.Limits(t.Load, dev)
	if err != nil {
		return nil, err
	}
	limited := before
	limited.WriteBps = LimitedBytesPerSecond
	return func() error { return tree.SetLimit(t.Load, dev, before) }, tree.SetLimit(t.Load, dev, limited)
}
