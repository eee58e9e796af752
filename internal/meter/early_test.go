package meter

import (
	"slices"
	"testing"

	"github.com/daybook-project/daybook/internal/journal"
)

// What a disk wrote before it was observed is not in its counters. What is on disks that were
// observed stays.
func TestEventsFromBeforeADiskIsObservedAreDropped(t *testing.T) {
	const known, other, late, crypt, stack = 8 << 20, 8<<20 + 16, 8<<20 + 32, 253 << 20, 9 << 20
	const fs, part = known + 1, late + 2
	for name, test := range map[string]struct {
		disks, filesystems []uint32 // that were found before
		now                Readings
		late               uint32
		commit             journal.Commit
		dropped            bool
	}{
		"a late disk": {
			[]uint32{known}, nil, Readings{DiskOf: map[uint32]uint32{part: late}}, late,
			journal.Commit{Dev: part, JournalDisk: late}, true,
		},
		"a late device on several disks, whose journal was seen below": {
			[]uint32{known, other}, []uint32{fs},
			Readings{DiskOf: map[uint32]uint32{fs: known, stack: stack}, Below: map[uint32][]uint32{stack: {known, other}}}, stack,
			journal.Commit{Dev: stack, JournalDisk: other}, true,
		},
		"another file system on such a disk": {
			[]uint32{known, other}, []uint32{fs},
			Readings{DiskOf: map[uint32]uint32{fs: known, stack: stack}, Below: map[uint32][]uint32{stack: {known, other}}}, stack,
			journal.Commit{Dev: fs, JournalDisk: known}, false,
		},
		"a late disk, with its journal on one that was observed": {
			[]uint32{known}, nil, Readings{DiskOf: map[uint32]uint32{part: late}}, late,
			journal.Commit{Dev: part, JournalDisk: known}, false,
		},
		"the same, on a device that writes copies": {
			[]uint32{known}, nil,
			Readings{DiskOf: map[uint32]uint32{part: late}, Copied: map[uint32]uint32{crypt: known}}, late,
			journal.Commit{Dev: part, JournalDisk: crypt}, false,
		},
		"a known file system, with its journal on a late disk": {
			[]uint32{known}, []uint32{fs}, Readings{DiskOf: map[uint32]uint32{fs: known, part: late}}, late,
			journal.Commit{Dev: fs, JournalDisk: late}, false,
		},
		"a found device that writes copies to a disk that was observed": {
			[]uint32{known}, []uint32{fs},
			Readings{DiskOf: map[uint32]uint32{fs: known, crypt: known}, Copied: map[uint32]uint32{crypt: known}}, 0,
			journal.Commit{Dev: crypt, BlocksLogged: 1}, true,
		},
		"a known device that writes copies": {
			[]uint32{known}, []uint32{crypt},
			Readings{DiskOf: map[uint32]uint32{crypt: known}, Copied: map[uint32]uint32{crypt: known}}, 0,
			journal.Commit{Dev: crypt, BlocksLogged: 1}, false,
		},
		"a file system that is not observed": {
			[]uint32{known}, []uint32{fs}, Readings{DiskOf: map[uint32]uint32{fs: known}}, 0,
			journal.Commit{Dev: part, BlocksLogged: 1}, false,
		},
	} {
		found := sight{before: observed{disks: setOf(test.disks), filesystems: setOf(test.filesystems)}, late: map[uint32]bool{}, now: test.now}
		if test.late != 0 {
			found.late[test.late] = true
		}
		events := journal.Events{Commits: []journal.Commit{test.commit}, Writes: []journal.Write{{Disk: late}, {Disk: known}, {Disk: stack}}}
		found.dropEarly(&events)
		if dropped := len(events.Commits) == 0; dropped != test.dropped {
			t.Errorf("%s: the commit is dropped: %t", name, dropped)
		}
		for _, disk := range []uint32{late, known, stack} {
			kept := slices.ContainsFunc(events.Writes, func(w journal.Write) bool { return w.Disk == disk })
			if kept == (disk == test.late) {
				t.Errorf("%s: the writes of disk %#x are kept: %t", name, disk, kept)
			}
		}
	}
}

func setOf(list []uint32) map[uint32]bool {
	set := make(map[uint32]bool)
	for _, dev := range list {
		set[dev] = true
	}
	return set
}
