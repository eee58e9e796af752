package meter

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/journal"
)

const (
	upper = 9 << 20 // a device on the disks left and right
	left  = 8 << 20
	right = 8<<20 + 16
)

// onTwo are the readings of a file system on a device on two disks.
func onTwo(events journal.Events, upperBytes, leftBytes, rightBytes uint64) Readings {
	in := readings(events, 0, 0)
	in.Disks = []Disk{
		{Name: "md0", Number: "9:0", Dev: upper, WriteBytes: upperBytes},
		{Name: "sda", Number: "8:0", Dev: left, WriteBytes: leftBytes},
		{Name: "sdb", Number: "8:16", Dev: right, WriteBytes: rightBytes},
	}
	in.DiskOf = map[uint32]uint32{upper: upper}
	in.Below = map[uint32][]uint32{upper: {left, right}}
	return in
}

// committed is a commit on the device, half of it alice's and half bob's, of which each
// disk is charged a part.
func committed(bytes, onLeft, onRight uint64) []journal.Write {
	return []journal.Write{
		{Disk: upper, Kind: journal.KindJournal, Charged: root, Bytes: bytes},
		{Disk: upper, Kind: journal.KindChargedWrite, Charged: root, Bytes: bytes},
		{Disk: left, Kind: journal.KindChargedWrite, Charged: root, Bytes: onLeft},
		{Disk: right, Kind: journal.KindChargedWrite, Charged: root, Bytes: onRight},
	}
}

func commitOf(bytes uint64) []journal.Commit {
	return []journal.Commit{{Dev: upper, JournalDisk: upper, BlocksLogged: uint32(bytes / 4096), JournalBytes: bytes,
		DurationSeconds: 0.5, ForcedBy: alice, Dirtied: map[uint64]int64{alice: 10, bob: 30}}}
}

func pageOf(t testing.TB, devices []account.Device, name string) []account.Device {
	t.Helper()
	for _, d := range devices {
		if d.Device == name {
			if d.UnaccountedBytes != 0 {
				t.Errorf("%s: %d bytes are unaccounted", name, d.UnaccountedBytes)
			}
			return []account.Device{d}
		}
	}
	t.Fatalf("no page of %s", name)
	return nil
}

func TestAMirrorsJournalIsOnEachOfItsDisks(t *testing.T) {
	got := NewBook().Account(onTwo(journal.Events{Commits: commitOf(4 * mebi), Writes: committed(4*mebi, 4*mebi, 4*mebi)}, 4*mebi, 4*mebi, 4*mebi))
	for _, name := range []string{"md0", "sda", "sdb"} {
		page := pageOf(t, got, name)
		a, b, r := find(t, page, "/a"), find(t, page, "/b"), find(t, page, "/")
		if a.JournalBytes != mebi || b.JournalBytes != 3*mebi || r.Bytes() != 0 || a.ForcedCommits != 1 {
			t.Errorf("%s: a %+v, b %+v, root %+v", name, a, b, r)
		}
		if page[0].Transactions != 1 || page[0].CommitSeconds != 0.5 || page[0].JournalBytes != 4*mebi {
			t.Errorf("%+v", page[0])
		}
	}
}

func TestAStripesJournalIsWhereItWasCharged(t *testing.T) {
	got := NewBook().Account(onTwo(journal.Events{Commits: commitOf(4 * mebi), Writes: committed(4*mebi, 3*mebi, mebi)}, 4*mebi, 3*mebi, mebi))
	for name, bytes := range map[string]uint64{"sda": 3 * mebi, "sdb": mebi} {
		page := pageOf(t, got, name)
		a, b := find(t, page, "/a"), find(t, page, "/b")
		if a.JournalBytes != bytes/4 || b.JournalBytes != bytes*3/4 || find(t, page, "/").Bytes() != 0 {
			t.Errorf("%s: a %+v, b %+v", name, a, b)
		}
	}
}

// A resynchronisation is charged to the root cgroup, and is nobody's journal.
func TestWhatMdCopiesIsNobodysJournal(t *testing.T) {
	got := NewBook().Account(onTwo(journal.Events{Commits: commitOf(4 * mebi), Writes: committed(4*mebi, 4*mebi, 900*mebi)}, 4*mebi, 4*mebi, 900*mebi))
	page := pageOf(t, got, "sdb")
	if a, b, r := find(t, page, "/a"), find(t, page, "/b"), find(t, page, "/"); a.JournalBytes+b.JournalBytes != 4*mebi || r.Bytes() != 896*mebi {
		t.Errorf("a %+v, b %+v, root %+v", a, b, r)
	}
}

// The root cgroup's own data above is no journal on the disks either.
func TestTheRootCgroupsOwnDataIsNotTheJournal(t *testing.T) {
	writes := append(committed(4*mebi, 8*mebi, 8*mebi), journal.Write{Disk: upper, Kind: journal.KindChargedWrite, Charged: root, Bytes: 12 * mebi})
	got := NewBook().Account(onTwo(journal.Events{Commits: commitOf(4 * mebi), Writes: writes}, 16*mebi, 8*mebi, 8*mebi))
	for _, name := range []string{"sda", "sdb"} {
		page := pageOf(t, got, name)
		if a, b := find(t, page, "/a"), find(t, page, "/b"); a.JournalBytes != mebi/2 || b.JournalBytes != mebi*3/2 {
			t.Errorf("%s: a %+v, b %+v; want half of the journal", name, a, b)
		}
	}
}

// What was submitted in one interval and completed in the next is charged then, to those
// that logged it.
func TestTheJournalBelowMayComeLater(t *testing.T) {
	book := NewBook()
	book.Account(onTwo(journal.Events{Commits: commitOf(4 * mebi), Writes: committed(4*mebi, 0, 4*mebi)}, 4*mebi, 0, 4*mebi))
	later := onTwo(journal.Events{Writes: committed(0, 4*mebi, 0)}, 0, 4*mebi, 0)
	later.Seconds = 0.01
	got := book.Account(later)
	page := pageOf(t, got, "sda")
	if b := find(t, page, "/b"); b.JournalBytes < 29*mebi/10 || b.JournalBytes > 3*mebi {
		t.Errorf("%+v; want nearly 3 MiB", b)
	}
	later.Events, later.Seconds = journal.Events{Writes: committed(0, 4*mebi, 0)}, 60
	if page := pageOf(t, book.Account(later), "sda"); page[0].JournalBytes > 4096 {
		t.Errorf("a minute later %+v", page[0])
	}
}

func TestMetadataBelowIsReturnedFromWhoeverIsCharged(t *testing.T) {
	events := journal.Events{Commits: commitOf(4 * mebi), Writes: append(committed(4*mebi, 4*mebi, 4*mebi),
		journal.Write{Disk: upper, Kind: journal.KindMetadata, Charged: alice, Of: upper, Bytes: 4 * mebi},
		journal.Write{Disk: upper, Kind: journal.KindChargedWrite, Charged: alice, Bytes: 4 * mebi},
		journal.Write{Disk: left, Kind: journal.KindMetadata, Charged: alice, Of: upper, Bytes: 4 * mebi},
		journal.Write{Disk: left, Kind: journal.KindChargedWrite, Charged: alice, Bytes: 4 * mebi},
	)}
	page := pageOf(t, NewBook().Account(onTwo(events, 8*mebi, 8*mebi, 4*mebi)), "sda")
	if a, b := find(t, page, "/a"), find(t, page, "/b"); a.Bytes() != 2*mebi || b.MetadataBytes != 3*mebi || b.JournalBytes != 3*mebi {
		t.Errorf("a %+v, b %+v", a, b)
	}
}

func TestBelowEverythingAddsUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		book := NewBook()
		for range rapid.IntRange(1, 4).Draw(t, "intervals") {
			bytes := rapid.Uint64Range(0, 1<<32).Draw(t, "journal")
			onLeft, onRight := rapid.Uint64Range(0, bytes).Draw(t, "left"), rapid.Uint64Range(0, 2*bytes).Draw(t, "right")
			in := onTwo(journal.Events{Commits: commitOf(bytes), Writes: committed(bytes, onLeft, onRight)}, bytes, onLeft, onRight)
			in.Seconds = rapid.Float64Range(0.1, 60).Draw(t, "seconds")
			for _, d := range book.Account(in) {
				if d.UnaccountedBytes != 0 {
					t.Fatalf("%s: %d bytes are unaccounted", d.Device, d.UnaccountedBytes)
				}
			}
		}
	})
}

// With --device of a disk below, the device above is read, and has no page.
func TestADeviceAboveAnAskedDiskIsReadButNotShown(t *testing.T) {
	sda, sdb, md := blockdev.Disk{Name: "sda"}, blockdev.Disk{Name: "sdb"}, blockdev.Disk{Name: "md0"}
	on := filesystem{disk: md, below: []blockdev.Disk{sda, sdb}}
	one := &Meter{options: Options{Devices: []string{"sda"}}, only: []blockdev.Disk{sda}}
	above := &Meter{options: Options{Devices: []string{"md0"}}, only: []blockdev.Disk{md}}
	if !one.observes(on) || one.asked("md0") || !one.asked("sda") || one.observes(filesystem{disk: sdb}) {
		t.Error("of sda: want the file system on md0, and no page of md0")
	}
	if !above.observes(on) || !above.asked("md0") || above.asked("sda") || above.observes(filesystem{disk: sda}) {
		t.Error("of md0: want its page alone")
	}
	if all := new(Meter); !all.observes(on) || !all.asked("md0") || !all.asked("sda") {
		t.Error("without devices: want all")
	}
}

func TestTheTimeOfADeviceOnTwoDisksIsOnEachOfThem(t *testing.T) {
	const second = 1_000_000_000
	got := NewBook().Account(onTwo(journal.Events{Writes: []journal.Write{
		{Disk: upper, Kind: journal.KindBusy, Charged: alice, Bytes: 3 * second},
		{Disk: upper, Kind: journal.KindFlush, Charged: alice, Bytes: second},
		{Disk: left, Kind: journal.KindBusy, Charged: alice, Bytes: second / 2},
	}}, 0, 0, 0))
	for name, want := range map[string]account.Container{
		"md0": {BusySeconds: 3, FlushSeconds: 1}, "sda": {BusySeconds: 0.5, StackedSeconds: 4}, "sdb": {StackedSeconds: 4},
	} {
		a := find(t, pageOf(t, got, name), "/a")
		if a.BusySeconds != want.BusySeconds || a.FlushSeconds != want.FlushSeconds || a.StackedSeconds != want.StackedSeconds {
			t.Errorf("%s: %+v, want %+v", name, a, want)
		}
	}
}
