package meter

import (
	"maps"
	"slices"

	"github.com/daybook-project/daybook/internal/journal"
)

// observed are the disks that are observed, and the devices of the file systems on them, by
// their kernel dev_t.
type observed struct{ disks, filesystems map[uint32]bool }

// hasMoreThan reports whether there is a disk or file system that was not there before.
func (o observed) hasMoreThan(before observed) bool {
	more := func(now, then map[uint32]bool) bool {
		return slices.ContainsFunc(slices.Collect(maps.Keys(now)), func(dev uint32) bool { return !then[dev] })
	}
	return more(o.disks, before.disks) || more(o.filesystems, before.filesystems)
}

func keysOf[V any](m map[uint32]V) map[uint32]bool {
	keys := make(map[uint32]bool, len(m))
	for key := range m {
		keys[key] = true
	}
	return keys
}

// sight is what a look for file systems found.
type sight struct {
	before observed
	// late are the disks that were not observed before.
	late map[uint32]bool
	// now has DiskOf, Copied and Below.
	now Readings
}

// dropEarly removes the events from before a disk was observed: what it wrote then is not in its
// counters. Commits of all disks are seen.
func (s sight) dropEarly(events *journal.Events) {
	events.Writes = slices.DeleteFunc(events.Writes, func(w journal.Write) bool { return s.late[w.Disk] })
	events.Commits = slices.DeleteFunc(events.Commits, s.isEarly)
}

// isEarly reports whether the bytes of a commit are in no counter of the disk of its file system.
// If only the disk of an external journal is late, the commit stays: it is the file system's.
func (s sight) isEarly(c journal.Commit) bool {
	disk, known := s.now.DiskOf[c.Dev]
	if c.JournalDisk == 0 { // as before a device is observed that writes copies
		return known && !s.before.filesystems[c.Dev]
	}
	if !s.late[disk] {
		return false
	}
	on, _ := s.now.diskBelow(c.JournalDisk)
	return !s.before.disks[on] || s.now.isBelow(on, disk)
}
