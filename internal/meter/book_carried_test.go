package meter

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/journal"
)

// thread is the cgroup of a jbd2 thread that was placed.
const thread = 30

// placed are the events of an interval in which the jbd2 thread writes blocks of its journal, in its
// cgroup, and commits of alice end that have all blocks since the last end.
func placed(written, ended uint64) journal.Events {
	var events journal.Events
	if written > 0 {
		events.Writes = []journal.Write{
			{Disk: fsDev, Kind: journal.KindJournal, Charged: thread, Bytes: written},
			{Disk: fsDev, Kind: journal.KindChargedWrite, Charged: thread, Bytes: written},
		}
	}
	if ended > 0 {
		events.Commits = []journal.Commit{{Dev: fsDev, JournalDisk: fsDev, BlocksLogged: 1, JournalBytes: ended, Dirtied: map[uint64]int64{alice: 1}}}
	}
	return events
}

// line is that of a cgroup, or an empty one.
func line(device account.Device, cgroup string) account.Container {
	for _, c := range device.Containers {
		if c.Cgroup == cgroup {
			return c
		}
	}
	return account.Container{Cgroup: cgroup}
}

func TestACommitThatEndsInALaterIntervalIsCountedOnce(t *testing.T) {
	book := NewBook()
	var disk, lines uint64
	for n, step := range []struct {
		written, ended, own uint64 // own is data of the thread's cgroup
		line, returned      uint64 // of the thread's cgroup
		rest                uint64 // what it returns later
	}{
		{written: 80, line: 80},
		{written: 20, ended: 100, returned: 20, rest: 80},
		{written: 50, ended: 50, returned: 50, rest: 80}, // it returns what it has, and keeps the rest
		{rest: 80}, // nothing is charged
		{written: 90, line: 10, returned: 80},
		{written: 30, ended: 120, returned: 30, rest: 90},
		{own: 60, returned: 60, rest: 30},
		{own: 60, line: 30, returned: 30},
		{written: 70, ended: 70, own: 10, line: 10, returned: 70},
	} {
		events := placed(step.written, step.ended)
		if step.own > 0 {
			events.Writes = append(events.Writes, journal.Write{Disk: fsDev, Kind: journal.KindChargedWrite, Charged: thread, Bytes: step.own})
		}
		device := book.Account(readings(events, 0, step.written+step.own))[0]
		at, owner := line(device, "/c30"), line(device, "/a")
		if at.ChargedWriteBytes != step.line || at.ReturnedBytes != step.returned || owner.JournalBytes != step.ended || device.JournalBytes != step.ended {
			t.Errorf("interval %d: the thread's cgroup has %d and returns %d, the owner has %d, want %+v", n, at.ChargedWriteBytes, at.ReturnedBytes, owner.JournalBytes, step)
		}
		disk += device.DiskBytes
		for _, c := range device.Containers {
			lines += c.Bytes()
		}
		if rest := book.carried[fsDev]["/c30"]; rest != step.rest {
			t.Errorf("after interval %d it still has to return %d bytes, want %d", n, rest, step.rest)
		}
		if want := int64(disk) - int64(lines) + int64(step.rest); want != 0 {
			t.Errorf("after interval %d the disk has %d bytes, all lines %d, of which %d are to be returned", n, disk, lines, step.rest)
		}
	}
	if lines != disk {
		t.Errorf("all lines have %d bytes in all, the disk %d", lines, disk)
	}
}

// Several file systems on a disk, whose threads are in different cgroups, commit over the ends of
// intervals.
func TestOverTimeEachByteIsCountedOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const other = 7<<20 + 9
		threads := map[uint32]uint64{fsDev: rapid.SampledFrom([]uint64{root, thread, alice}).Draw(t, "thread"), other: thread}
		book := NewBook()
		open := map[uint32]uint64{}
		kernel, got := map[string]uint64{}, map[string]uint64{}
		var disk, lines, journals, ended uint64
		account := func(events journal.Events, charged map[uint64]uint64) {
			var written uint64
			for id, bytes := range charged {
				events.Writes = append(events.Writes, journal.Write{Disk: fsDev, Kind: journal.KindChargedWrite, Charged: id, Bytes: bytes})
				kernel[unitOf(id)] += bytes
				written += bytes
			}
			in := readings(events, 0, written)
			in.DiskOf[other] = fsDev
			device := book.Account(in)[0]
			disk += device.DiskBytes
			journals += device.JournalBytes
			for _, c := range device.Containers {
				lines += c.Bytes()
				got[c.Cgroup] += c.ChargedWriteBytes + c.ReturnedBytes
				if c.Bytes() > 1<<50 || c.ReturnedBytes > 1<<50 {
					t.Fatalf("a negative number: %+v", c)
				}
			}
			for path, bytes := range kernel {
				if got[path] != bytes {
					t.Fatalf("%s has and returns %d bytes, but the kernel charged it with %d", path, got[path], bytes)
				}
			}
			var rest uint64
			for _, bytes := range book.carried[fsDev] {
				rest += bytes
			}
			if lines != disk+rest {
				t.Fatalf("all lines have %d bytes, of which %d are to be returned, and the disk %d", lines, rest, disk)
			}
		}
		for range rapid.IntRange(1, 12).Draw(t, "intervals") {
			var events journal.Events
			charged := map[uint64]uint64{}
			for range rapid.IntRange(0, 5).Draw(t, "steps") {
				fs := rapid.SampledFrom([]uint32{fsDev, other}).Draw(t, "fs")
				bytes := rapid.Uint64Range(1, 1<<20).Draw(t, "bytes")
				switch rapid.SampledFrom([]string{"block", "block", "end", "data", "home"}).Draw(t, "what") {
				case "block":
					charged[threads[fs]] += bytes
					open[fs] += bytes
					events.Writes = append(events.Writes, journal.Write{Disk: fsDev, Kind: journal.KindJournal, Charged: threads[fs], Bytes: bytes})
				case "end":
					if open[fs] == 0 {
						continue
					}
					ended += open[fs]
					events.Commits = append(events.Commits, journal.Commit{Dev: fs, JournalDisk: fsDev, BlocksLogged: 1, JournalBytes: open[fs], Dirtied: map[uint64]int64{alice: 1, bob: 2}})
					open[fs] = 0
				case "data":
					charged[rapid.SampledFrom([]uint64{root, alice, thread}).Draw(t, "who")] += bytes
				case "home":
					charged[alice] += bytes
					events.Writes = append(events.Writes, journal.Write{Disk: fsDev, Kind: journal.KindMetadata, Charged: alice, Of: fsDev, Bytes: bytes})
				}
			}
			account(events, charged)
		}
		account(journal.Events{}, map[uint64]uint64{root: 1 << 30, alice: 1 << 30, thread: 1 << 30})
		if lines != disk || journals != ended {
			t.Fatalf("at last all lines have %d bytes and the disk %d; the journal has %d and the commits that ended %d", lines, disk, journals, ended)
		}
	})
}

func TestWhatACgroupHasToReturnIsForgottenWithTheCgroupOrTheDisk(t *testing.T) {
	book := NewBook()
	straddle := func(bytes uint64) {
		book.Account(readings(placed(bytes, 0), 0, bytes))
		book.Account(readings(placed(0, bytes), 0, 0))
	}
	straddle(100)
	in := readings(journal.Events{}, 0, 0)
	in.Known = func(path string) bool { return path == "/c30" }
	if book.Account(in); book.carried[fsDev]["/c30"] != 100 {
		t.Errorf("%v is carried, want 100", book.carried)
	}
	if devices := book.Account(in); len(devices[0].Containers) != 1 {
		t.Errorf("idle cgroups have lines: %+v", devices[0].Containers)
	}
	in.Known = func(string) bool { return false }
	if book.Account(in); len(book.carried[fsDev]) != 0 {
		t.Errorf("%v is carried for a removed cgroup", book.carried)
	}
	straddle(maxCarriedBytes + 1)
	if book.carried[fsDev]["/c30"] != maxCarriedBytes {
		t.Errorf("%v is carried, want the most that may be", book.carried)
	}
	in.Disks = nil
	if book.Account(in); len(book.carried) != 0 {
		t.Errorf("%v is carried without the disk", book.carried)
	}
}
