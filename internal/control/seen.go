package control

import (
	"maps"

	"github.com/daybook-project/daybook/internal/account"
)

// seenContainers are what the samples said of cgroups.
type seenContainers struct {
	names map[string]string
	// active have done I/O; they count where the configuration names none.
	active map[string]bool
}

func newSeenContainers() seenContainers {
	return seenContainers{map[string]string{}, map[string]bool{}}
}

// note enters those of a sample.
func (s seenContainers) note(containers []account.Container) {
	for _, container := range containers {
		if container.Name != "" && container.Name != container.Cgroup {
			s.names[container.Cgroup] = container.Name
		}
		if container.Cgroup != account.RootCgroup && container.Bytes() > 0 {
			s.active[container.Cgroup] = true
		}
	}
}

// forget removes the cgroups that are gone.
func (s seenContainers) forget(exists map[string]uint64) {
	gone := func(path string) bool { _, ok := exists[path]; return !ok }
	maps.DeleteFunc(s.names, func(path, _ string) bool { return gone(path) })
	maps.DeleteFunc(s.active, func(path string, _ bool) bool { return gone(path) })
}

// seenScheduler is the disk's scheduler as it was at the last look.
type seenScheduler struct {
	// name is "" if it has no tunables.
	name string
	// inode is Host.SchedulerInode before the look; 0: not known.
	inode uint64
}

// look records the inode before a look; 0 if it is not known now.
func (s *seenScheduler) look(inode uint64) {
	if inode != 0 {
		s.inode = inode
	}
}

// chosenAgain reports whether the scheduler was chosen again since the last look. It is not known
// without both inodes.
func (s *seenScheduler) chosenAgain(inode uint64) (again, known bool) {
	return inode != s.inode, inode != 0 && s.inode != 0
}
