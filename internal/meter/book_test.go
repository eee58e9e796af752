package meter

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/journal"
)

const (
	fsDev   = 7 << 20
	logDev  = 7<<20 + 1
	root    = journal.RootCgroupID
	alice   = 10
	bob     = 20
	mebi    = 1 << 20
	control = 5.0
)

func unitOf(id uint64) string {
	switch id {
	case root:
		return "/"
	case alice:
		return "/a"
	case bob:
		return "/b"
	}
	return fmt.Sprintf("/c%d", id)
}

func readings(events journal.Events, read, write uint64) Readings {
	return Readings{
		Seconds:    control,
		Disks:      []Disk{{Name: "loop0", Number: "7:0", Dev: fsDev, ReadBytes: read, WriteBytes: write}},
		DiskOf:     map[uint32]uint32{fsDev: fsDev},
		BlockBytes: map[uint32]uint64{fsDev: 4096},
		Events:     events,
		Journal:    journal.Handles{}.Attribute(events),
		UnitOf:     unitOf,
	}
}

func find(t testing.TB, devices []account.Device, cgroup string) account.Container {
	t.Helper()
	for _, c := range devices[0].Containers {
		if c.Cgroup == cgroup {
			return c
		}
	}
	t.Fatalf("no line for %s in %+v", cgroup, devices)
	return account.Container{}
}

// dm-crypt on a disk: the device's bios say what is written, and the disk's requests
// whom the kernel charges.
func TestWhatReachesTheDiskInCopiesIsAccountedThere(t *testing.T) {
	const crypt = 253 << 20
	in := readings(journal.Events{
		Commits: []journal.Commit{{Dev: crypt, JournalDisk: crypt, Tid: 1, BlocksLogged: 2, JournalBytes: 12288, Dirtied: map[uint64]int64{alice: 2}}},
		Writes: []journal.Write{
			{Disk: crypt, Kind: journal.KindJournal, Charged: root, Bytes: 12288},
			{Disk: crypt, Kind: journal.KindMetadata, Charged: root, Of: crypt, Bytes: 4096},
			{Disk: crypt, Kind: journal.KindData, Charged: root, Owner: bob, Bytes: 8192},
			{Disk: crypt, Kind: journal.KindChargedWrite, Charged: root, Bytes: 24576},
			{Disk: fsDev, Kind: journal.KindChargedWrite, Charged: root, Bytes: 24576},
			{Disk: crypt, Kind: journal.KindOutstanding, Charged: alice, Bytes: 9e9},
			{Disk: crypt, Kind: journal.KindBusy, Charged: alice, Bytes: 3e9},
			{Disk: crypt, Kind: journal.KindFlush, Charged: alice, Bytes: 1e9},
			{Disk: fsDev, Kind: journal.KindBusy, Charged: alice, Bytes: 2e9},
		},
	}, 0, 24576)
	in.DiskOf = map[uint32]uint32{crypt: fsDev}
	in.Copied = map[uint32]uint32{crypt: fsDev}
	got := NewBook().Account(in)
	a, b, rest := find(t, got, "/a"), find(t, got, "/b"), find(t, got, "/")
	if a.JournalBytes != 12288 || a.MetadataBytes != 4096 || b.UnchargedBytes != 8192 || rest.Bytes() != 0 {
		t.Errorf("a %+v, b %+v, root %+v", a, b, rest)
	}
	if a.BusySeconds != 2 || a.StackedSeconds != 4 || a.FlushSeconds != 0 || a.RequestSeconds != 0 {
		t.Errorf("the times on the disk and above it: %+v", a)
	}
	if got[0].UnaccountedBytes != 0 || got[0].JournalElsewhereBytes != 0 {
		t.Errorf("%+v", got[0])
	}
}

func TestACheckpointInACallersContextIsReturnedToItsOwner(t *testing.T) {
	got := NewBook().Account(readings(journal.Events{
		Commits: []journal.Commit{{
			Dev: fsDev, JournalDisk: fsDev, BlocksLogged: 256, JournalBytes: mebi, DurationSeconds: 0.25,
			ForcedBy: alice, Dirtied: map[uint64]int64{bob: 200},
		}},
		Writes: []journal.Write{
			{Disk: fsDev, Kind: journal.KindJournal, Charged: root, Bytes: mebi},
			{Disk: fsDev, Kind: journal.KindMetadata, Charged: alice, Of: fsDev, Bytes: 2 * mebi},
			{Disk: fsDev, Kind: journal.KindChargedWrite, Charged: root, Bytes: mebi},
			{Disk: fsDev, Kind: journal.KindChargedWrite, Charged: alice, Bytes: 2 * mebi},
			{Disk: fsDev, Kind: journal.KindChargedRead, Charged: alice, Bytes: 5 * mebi},
		},
	}, 5*mebi, 3*mebi))
	a, b := find(t, got, "/a"), find(t, got, "/b")
	if a.Bytes() != 5*mebi || a.ReturnedBytes != 2*mebi || a.ForcedCommits != 1 {
		t.Errorf("the caller is left with %d bytes, %d returned, %d forced: %+v", a.Bytes(), a.ReturnedBytes, a.ForcedCommits, a)
	}
	if b.JournalBytes != mebi || b.MetadataBytes != 2*mebi || b.Bytes() != 3*mebi {
		t.Errorf("the owner of the metadata: %+v", b)
	}
	if d := got[0]; d.UnaccountedBytes != 0 || d.CommitSeconds != 0.25 || d.Transactions != 1 {
		t.Errorf("device: %+v", d)
	}
}

func TestACommitWhoseStartWasNotSeenHasNoPartInTheMeanTime(t *testing.T) {
	commit := journal.Commit{Dev: fsDev, JournalDisk: fsDev, BlocksLogged: 1, Dirtied: map[uint64]int64{bob: 1}}
	timed := commit
	timed.DurationSeconds = 0.5
	got := NewBook().Account(readings(journal.Events{Commits: []journal.Commit{commit, timed}}, 0, 0))
	if d := got[0]; d.CommitSeconds != 0.5 || d.Transactions != 2 {
		t.Errorf("%d commits, %g s", d.Transactions, d.CommitSeconds)
	}
	got = NewBook().Account(readings(journal.Events{Commits: []journal.Commit{commit}}, 0, 0))
	if d := got[0]; d.CommitSeconds != 0 || d.Transactions != 1 {
		t.Errorf("%d commits, %g s", d.Transactions, d.CommitSeconds)
	}
}

func TestTheTimeOfRequestsIsTheChargedCgroups(t *testing.T) {
	got := NewBook().Account(readings(journal.Events{Writes: []journal.Write{
		{Disk: fsDev, Kind: journal.KindChargedRead, Charged: alice, Bytes: mebi},
		{Disk: fsDev, Kind: journal.KindOutstanding, Charged: alice, Bytes: 38_500_000_000},
		{Disk: fsDev, Kind: journal.KindOutstanding, Charged: alice, Bytes: 1_000_000_000},
		{Disk: fsDev, Kind: journal.KindBusy, Charged: alice, Bytes: 5_000_000_000},
		{Disk: fsDev, Kind: journal.KindFlush, Charged: alice, Bytes: 2_500_000_000},
		{Disk: logDev, Kind: journal.KindOutstanding, Charged: alice, Bytes: 1_000_000_000},
	}}, mebi, 0))
	if a := find(t, got, "/a"); a.RequestSeconds != 39.5 || a.BusySeconds != 5 || a.FlushSeconds != 2.5 || a.Bytes() != mebi {
		t.Errorf("%+v; want 39.5 s, busy for 5 s, and 1 MiB", a)
	}
	if got[0].UnaccountedBytes != 0 {
		t.Errorf("%d bytes are not accounted", got[0].UnaccountedBytes)
	}
}

func TestDataChargedToTheRootCgroupIsReturnedToItsOwner(t *testing.T) {
	got := NewBook().Account(readings(journal.Events{Writes: []journal.Write{
		{Disk: fsDev, Kind: journal.KindChargedWrite, Charged: root, Bytes: 3 * mebi},
		{Disk: fsDev, Kind: journal.KindData, Charged: root, Owner: bob, Bytes: 2 * mebi},
	}}, 0, 3*mebi))
	if b := find(t, got, "/b"); b.UnchargedBytes != 2*mebi {
		t.Errorf("owner: %+v", b)
	}
	if r := find(t, got, "/"); r.Bytes() != mebi {
		t.Errorf("root is left with %d bytes, want 1 MiB: %+v", r.Bytes(), r)
	}
}

func TestAnExternalJournalIsChargedButNotSubtractedFromTheDisk(t *testing.T) {
	got := NewBook().Account(readings(journal.Events{
		Commits: []journal.Commit{{Dev: fsDev, JournalDisk: logDev, JournalBytes: mebi, Dirtied: map[uint64]int64{alice: 1}}},
		Writes: []journal.Write{
			{Disk: logDev, Kind: journal.KindJournal, Charged: root, Bytes: mebi},
			{Disk: fsDev, Kind: journal.KindChargedWrite, Charged: alice, Bytes: mebi},
		},
	}, 0, mebi))
	d := got[0]
	if d.JournalBytes != mebi || d.JournalElsewhereBytes != mebi || d.UnaccountedBytes != 0 {
		t.Errorf("device: %+v", d)
	}
	if a := find(t, got, "/a"); a.Bytes() != 2*mebi {
		t.Errorf("alice: %+v", a)
	}
}

// The disk of an external journal has a file system of its own, too. Its journal is subtracted from
// the cgroup that the kernel charged for it, and not from that of the other journal's thread, also
// when that journal has logged much before.
func TestAnExternalJournalStaysInItsLineOnADiskWithAnotherJournal(t *testing.T) {
	const otherFs, intervals = 8 << 20, 1000
	book := NewBook()
	own := func() (events journal.Events) {
		events.Commits = []journal.Commit{{Dev: fsDev, JournalDisk: fsDev, JournalBytes: mebi, Dirtied: map[uint64]int64{bob: 1}}}
		events.Writes = []journal.Write{
			{Disk: fsDev, Kind: journal.KindJournal, Charged: root, Bytes: mebi}, {Disk: fsDev, Kind: journal.KindChargedWrite, Charged: root, Bytes: mebi},
		}
		return events
	}
	for range intervals {
		events := journal.Events{
			Commits: []journal.Commit{{Dev: otherFs, JournalDisk: fsDev, JournalBytes: 9 * mebi, Dirtied: map[uint64]int64{alice: 1}}},
			Writes: []journal.Write{
				{Disk: fsDev, Kind: journal.KindJournal, Charged: alice, Bytes: 9 * mebi}, {Disk: fsDev, Kind: journal.KindChargedWrite, Charged: alice, Bytes: 9 * mebi},
			},
		}
		got := book.Account(readings(events, 0, 9*mebi))
		if a := find(t, got, "/a"); a.ChargedWriteBytes != 9*mebi || got[0].UnaccountedBytes != 0 {
			t.Fatalf("the external journal alone: %+v", got)
		}
	}
	events := own()
	got := book.Account(readings(events, 0, mebi))
	if r, b := find(t, got, "/"), find(t, got, "/b"); r.Bytes() != 0 || r.ReturnedBytes != mebi || b.JournalBytes != mebi || got[0].UnaccountedBytes != 0 {
		t.Errorf("the disk's own journal: %+v", got)
	}
	// Nothing is left to be returned by the other one.
	events = own()
	events.Writes = append(events.Writes, journal.Write{Disk: fsDev, Kind: journal.KindChargedWrite, Charged: alice, Bytes: mebi})
	got = book.Account(readings(events, 0, 2*mebi))
	if a := find(t, got, "/a"); a.ChargedWriteBytes != mebi || a.ReturnedBytes != 0 || got[0].UnaccountedBytes != 0 {
		t.Errorf("its own writes: %+v", got)
	}
}

func TestMetadataFollowsItsCommitForAWhile(t *testing.T) {
	book := NewBook()
	book.Account(readings(journal.Events{Commits: []journal.Commit{
		{Dev: fsDev, JournalDisk: fsDev, BlocksLogged: 100, Dirtied: map[uint64]int64{alice: 1, bob: 3}},
	}}, 0, 0))
	got := book.Account(readings(journal.Events{Writes: []journal.Write{
		{Disk: fsDev, Kind: journal.KindMetadata, Charged: root, Of: fsDev, Bytes: 4 * mebi},
		{Disk: fsDev, Kind: journal.KindChargedWrite, Charged: root, Bytes: 4 * mebi},
	}}, 0, 4*mebi))
	if a, b := find(t, got, "/a"), find(t, got, "/b"); a.MetadataBytes != mebi || b.MetadataBytes != 3*mebi {
		t.Errorf("metadata %d and %d, want 1 and 3 MiB", a.MetadataBytes, b.MetadataBytes)
	}
}

// Another file system on the same device number, recreated or on another disk,
// has another instance.
func TestAFileSystemDoesNotInheritTheMetadataOfAnEarlierOne(t *testing.T) {
	book := NewBook()
	commit := func(instance uint32, by uint64) journal.Commit {
		return journal.Commit{Dev: fsDev, Instance: instance, JournalDisk: fsDev, BlocksLogged: 100, Dirtied: map[uint64]int64{by: 1}}
	}
	write := func(instance uint32) journal.Write {
		return journal.Write{Disk: fsDev, Kind: journal.KindMetadata, Charged: root, Of: fsDev, OfInstance: instance, Bytes: mebi}
	}
	charged := journal.Write{Disk: fsDev, Kind: journal.KindChargedWrite, Charged: root, Bytes: 2 * mebi}
	book.Account(readings(journal.Events{Commits: []journal.Commit{commit(7, alice)}}, 0, 0))
	// These are the last writes of the first file system, and the first writes
	// of the second.
	got := book.Account(readings(journal.Events{
		Commits: []journal.Commit{commit(8, bob)}, Writes: []journal.Write{write(7), write(8), charged}}, 0, 2*mebi))
	if a, b := find(t, got, "/a"), find(t, got, "/b"); a.MetadataBytes != mebi || b.MetadataBytes != mebi {
		t.Errorf("metadata %d and %d, want 1 MiB each", a.MetadataBytes, b.MetadataBytes)
	}
	got = book.Account(readings(journal.Events{Writes: []journal.Write{write(8), write(8), charged}}, 0, 2*mebi))
	if b := find(t, got, "/b"); b.MetadataBytes != 2*mebi || len(book.dirtied) != 1 {
		t.Errorf("metadata %d, want 2 MiB; %d file systems are remembered, want the one that is mounted", b.MetadataBytes, len(book.dirtied))
	}
	in := readings(journal.Events{Writes: []journal.Write{write(8), write(8), charged}}, 0, 2*mebi)
	in.DiskOf = nil
	got = book.Account(in)
	if r := find(t, got, "/"); r.ChargedWriteBytes != 2*mebi || len(book.dirtied) != 0 {
		t.Errorf("nothing is mounted, but root is left with %d bytes of 2 MiB, and %d file systems are remembered", r.ChargedWriteBytes, len(book.dirtied))
	}
}

// Bytes logged in memory are in no total of the disk. Blocks written in place
// count in whole blocks for the cgroups that logged them.
func TestAJournalInMemoryCostsTheDiskOnlyItsCheckpoints(t *testing.T) {
	book := NewBook()
	in := readings(journal.Events{
		Logs: []journal.Log{
			{Dev: fsDev, Cgroup: alice, Bytes: 9 * mebi, Blocks: 100, Handles: 50, Commits: 3, Forced: 3},
			{Dev: fsDev, Cgroup: bob, Bytes: mebi, Blocks: 300, Handles: 7},
			{Dev: fsDev, Cgroup: root, Commits: 2},
			{Dev: logDev, Cgroup: bob, Bytes: mebi, Blocks: 1, Handles: 1}, // on a disk that is not observed
		},
		Writes: []journal.Write{
			{Disk: fsDev, Kind: journal.KindMetadata, Charged: root, Of: fsDev, Bytes: 4 * mebi},
			{Disk: fsDev, Kind: journal.KindChargedWrite, Charged: root, Bytes: 4 * mebi},
		},
	}, 0, 4*mebi)
	in.NameOf = map[uint32]string{fsDev: "loop0"}
	in.MemoryCounters = func(name string) map[string]uint64 {
		return map[string]map[string]uint64{"loop0": {"used_lines": 70, "ring_lines": 100, "checkpoint_lag": 4, "commits": 900}}[name]
	}
	got := book.Account(in)
	d := got[0]
	want := account.MemoryJournal{Filesystem: "loop0", LoggedBytes: 10 * mebi, Handles: 57, Commits: 5, UsedLines: 70, RingLines: 100, LagTransactions: 4}
	if len(d.MemoryJournals) != 1 || d.MemoryJournals[0] != want || d.JournalBytes != 0 || d.UnaccountedBytes != 0 || d.Transactions != 0 {
		t.Errorf("device: %+v", d)
	}
	a, b, r := find(t, got, "/a"), find(t, got, "/b"), find(t, got, "/")
	if a.MemoryJournalBytes != 9*mebi || a.MemoryJournalHandles != 50 || a.ForcedCommits != 3 || a.MetadataBytes != mebi || a.Bytes() != mebi {
		t.Errorf("alice: %+v", a)
	}
	if b.MemoryJournalBytes != mebi || b.MetadataBytes != 3*mebi || b.ForcedCommits != 0 || r.Bytes() != 0 || r.ForcedCommits != 0 {
		t.Errorf("bob: %+v, root: %+v", b, r)
	}
	if d := book.Account(readings(journal.Events{}, 0, 0))[0]; d.MemoryJournals != nil {
		t.Errorf("idle: %+v", d)
	}
}

// A volume is a loop device with direct I/O: its pages reach the underlying
// disk unchanged. The journal's part was charged there to the cgroup of its
// thread.
func TestAVolumesPagesOnTheUnderlyingDiskAreTheVolumes(t *testing.T) {
	const volume, thread = 7<<20 + 5, 30
	events := journal.Events{
		Commits: []journal.Commit{
			{Dev: fsDev, JournalDisk: fsDev, BlocksLogged: 10, Dirtied: map[uint64]int64{bob: 1}},
			{Dev: volume, JournalDisk: volume, BlocksLogged: 10, Dirtied: map[uint64]int64{alice: 1}},
		},
		Writes: []journal.Write{
			{Disk: fsDev, Kind: journal.KindMetadata, Charged: thread, Of: volume, Bytes: 4 * mebi}, // its journal
			{Disk: fsDev, Kind: journal.KindMetadata, Charged: root, Of: volume, Bytes: 2 * mebi},   // its metadata, in place
			{Disk: fsDev, Kind: journal.KindMetadata, Charged: root, Of: fsDev, Bytes: mebi},        // the pool's own
			{Disk: fsDev, Kind: journal.KindChargedWrite, Charged: thread, Bytes: 4 * mebi},
			{Disk: fsDev, Kind: journal.KindChargedWrite, Charged: root, Bytes: 3 * mebi},
		},
	}
	in := readings(events, 0, 7*mebi)
	in.Disks = append(in.Disks, Disk{Name: "loop5", Number: "7:5", Dev: volume})
	in.DiskOf[volume] = volume
	got := NewBook().Account(in)
	if c := find(t, got, "/c30"); c.ChargedWriteBytes != 4*mebi || c.ReturnedBytes != 0 {
		t.Errorf("the cgroup of the jbd2 thread: %+v", c)
	}
	if a, b := find(t, got, "/a"), find(t, got, "/b"); a.MetadataBytes != 2*mebi || b.MetadataBytes != mebi {
		t.Errorf("metadata in place %d and %d, want 2 MiB of the writer in the volume, 1 MiB of the writer in the pool", a.MetadataBytes, b.MetadataBytes)
	}
	if got[0].UnaccountedBytes != 0 {
		t.Errorf("unaccounted: %d", got[0].UnaccountedBytes)
	}

	// With only the underlying disk, the writer in the volume is unknown.
	got = NewBook().Account(readings(events, 0, 7*mebi))
	if c, r, b := find(t, got, "/c30"), find(t, got, "/"), find(t, got, "/b"); c.ChargedWriteBytes != 4*mebi || r.ChargedWriteBytes != 2*mebi || b.MetadataBytes != mebi {
		t.Errorf("alone: thread %+v, root %+v, bob %+v", c, r, b)
	}
	if got[0].UnaccountedBytes != 0 {
		t.Errorf("alone, unaccounted: %d", got[0].UnaccountedBytes)
	}
}

func TestWhateverWasReadTheAccountAddsUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		book := NewBook()
		ids := rapid.SampledFrom([]uint64{root, alice, bob, 30, 40})
		for range rapid.IntRange(1, 4).Draw(t, "intervals") {
			var events journal.Events
			charged := make(map[uint64]uint64)
			var disk uint64
			add := func(kind journal.Kind, from, owner, bytes uint64) {
				events.Writes = append(events.Writes, journal.Write{Disk: fsDev, Kind: kind, Charged: from, Owner: owner, Bytes: bytes})
			}
			for range rapid.IntRange(0, 6).Draw(t, "writes") {
				from, bytes := ids.Draw(t, "from"), rapid.Uint64Range(1, 1<<40).Draw(t, "bytes")
				charged[from] += bytes
				disk += bytes
				kind := rapid.SampledFrom([]journal.Kind{journal.KindMetadata, journal.KindJournal, journal.KindData, 0}).Draw(t, "kind")
				switch kind {
				case journal.KindJournal:
					add(kind, from, 0, bytes)
					dirtied := map[uint64]int64{}
					for range rapid.IntRange(0, 3).Draw(t, "handles") {
						dirtied[ids.Draw(t, "dirtier")] += rapid.Int64Range(-5, 1000).Draw(t, "blocks")
					}
					events.Commits = append(events.Commits, journal.Commit{
						Dev: fsDev, JournalDisk: fsDev, BlocksLogged: uint32(bytes / 4096), JournalBytes: bytes, Dirtied: dirtied})
				case journal.KindMetadata:
					add(kind, from, 0, bytes)
					events.Writes[len(events.Writes)-1].Of = rapid.SampledFrom([]uint32{0, fsDev, logDev, 8 << 20}).Draw(t, "of")
				case journal.KindData:
					charged[from] -= bytes
					charged[root] += bytes
					add(kind, root, from, bytes)
				}
			}
			for id, bytes := range charged {
				add(journal.KindChargedWrite, id, 0, bytes)
			}
			device := book.Account(readings(events, 0, disk))[0]
			if device.UnaccountedBytes != 0 {
				t.Fatalf("%d bytes unaccounted of %d: %+v", device.UnaccountedBytes, disk, device)
			}
			var share float64
			for _, c := range device.Containers {
				share += c.Share
			}
			if disk > 0 && (share < 0.999999 || share > 1.000001) {
				t.Fatalf("shares add up to %v", share)
			}
		}
	})
}
