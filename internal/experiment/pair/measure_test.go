package pair

import (
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/database"
	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/fio"
)

// Another experiment on the host has containers of the same names.
func TestWaitersOfOtherExperimentsDoNotCount(t *testing.T) {
	all := []account.Waiter{{Cgroup: "/other-2/A/container"}, {Cgroup: "/x-1/A/container", Calls: 3}, {Cgroup: "/"}, {Cgroup: "/x-1/B/container", Calls: 4}}
	if got := waitersIn(all, "/x-1/A/container", "/x-1/B/container"); len(got) != 2 || got[0].Calls != 3 || got[1].Calls != 4 {
		t.Errorf("%+v", got)
	}
}

func TestAContainerOnALoopDeviceHasAllItsIO(t *testing.T) {
	sample := account.Sample{IntervalSeconds: 2, Devices: []account.Device{
		{Device: "loop0", DiskBytes: 5000, JournalBytes: 100, MetadataBytes: 50, Transactions: 3, Containers: []account.Container{
			{Cgroup: "/x/A/container", ChargedWriteBytes: 700, ChargedReadBytes: 20, JournalBytes: 200, MetadataBytes: 7, UnchargedBytes: 3},
			{Cgroup: "/x/B/container", ChargedWriteBytes: 300},
			{Cgroup: "/", ChargedWriteBytes: 9999},
		}},
		{Device: "loop1", DiskBytes: 1000, JournalBytes: 300, MetadataBytes: 100},
	}}
	s := &pair{
		Base: fixture.Base{Disk: &fixture.Disk{Device: blockdev.Disk{Name: "loop0"}}},
		a:    &fixture.Container{Name: "A", Weight: fixture.WeightA, Load: "/x/A/container"},
		b:    &fixture.Container{Name: "B", Weight: fixture.WeightB, Load: "/x/B/container"},
	}
	own, disk := s.account(sample)
	a, b := own.Container("A"), own.Container("B")
	if a.Bytes() != 930 || a.JournalBytes != 200 || b.Bytes() != 300 || a.TargetShare != 0.7 || disk.DiskBytes != 5000 {
		t.Errorf("without loop devices: A %+v, B %+v, disk %+v", a, b, disk)
	}
	s.a.Loop.Name, s.b.Loop.Name = "loop1", "loop2" // loop2 did nothing and is not listed
	own, _ = s.account(sample)
	a, b = own.Container("A"), own.Container("B")
	if a.Bytes() != 1000 || a.JournalBytes != 300 || a.MetadataBytes != 100 || b.Bytes() != 0 {
		t.Errorf("with loop devices: A %+v, B %+v", a, b)
	}
	if len(sample.Devices) != 2 || len(own.Devices) != 1 {
		t.Error("the sample itself was changed")
	}
}

// On a shared ext4 with ordered data, the syncs of A wait as long as a neighbour
// rewrites its files.
func TestAPhaseEndsAndIsMeasuredThoughASyncStarves(t *testing.T) {
	lab := newLab(t)
	s, err := buildPair(t.Context(), lab, Conditions{Disk: HDD, DataMode: Ordered, Arrangement: fixture.SharedExt4, Slicing: ShortSlices()})
	if err != nil {
		t.Fatal(err)
	}
	closesAtEnd(t, s)
	u, err := s.subject(t.Context(), Fio)
	if err != nil {
		t.Fatal(err)
	}
	o := Measurement{Seconds: 4, Interval: time.Second}
	started := time.Now()
	phase, err := u.runPhase(t.Context(), o, fio.NoFsync)
	if err != nil {
		t.Fatal(err)
	}
	watched := warmUpLoads + time.Duration(o.Seconds)*time.Second
	if took := time.Since(started); took > watched+starvedPatience+stopMargin {
		t.Errorf("the phase took %v, of which %v were watched", took, watched)
	}
	// After the end of the neighbour, the disk has no delays.
	if most := hddModel().BandwidthBytesPerSecond; phase.Rate > most {
		t.Errorf("A wrote %.0f B/s, with %d syncs; the disk can do %.0f", phase.Rate, phase.SyncA.Calls, most)
	}
}

func TestTransactionsThatStarvedAreNotCounted(t *testing.T) {
	for transactions, want := range map[uint64]float64{0: 0, 5: 0, 8: 0, 968: 80} {
		if got := inTime(database.Result{Seconds: 22, Transactions: transactions}, 12); got != want {
			t.Errorf("%d transactions, of 8 clients in 12 s that took 22: %v/s, want %v", transactions, got, want)
		}
	}
}

// stopMargin is the maximum time for the end of a neighbour, on a disk without delays.
const stopMargin = 5 * time.Minute

// The kernel enforces the limit on the cgroup of the writers; afterwards the old
// limit is restored.
func TestTheLimitOfANeighbourIsEnforcedAndRemoved(t *testing.T) {
	lab := newLab(t)
	s, err := buildPair(t.Context(), lab, Conditions{Disk: HDD, DataMode: Ordered, Arrangement: fixture.OwnPartitions, Slicing: ShortSlices()})
	if err != nil {
		t.Fatal(err)
	}
	closesAtEnd(t, s)
	dev := s.Disk.Device.Dev
	before := cgroup.Limit{WriteIOPS: 5000}
	if err := lab.Tree.SetLimit(s.b.Load, dev, before); err != nil {
		t.Fatal(err)
	}
	wants := func(when string, want cgroup.Limit) {
		t.Helper()
		if now, err := lab.Tree.Limits(s.b.Load, dev); err != nil || now != want {
			t.Errorf("%s: %+v, %v; want %+v", when, now, err, want)
		}
	}
	for _, n := range []fio.Neighbour{fio.HighFsync, Limited} {
		stop, err := s.startNeighbour(n, NeighbourWriters)
		if err != nil {
			t.Fatal(err)
		}
		limited := before
		if n == Limited {
			limited.WriteBps = LimitedBytesPerSecond
		}
		wants("while "+string(n)+" writes", limited)
		time.Sleep(warmUpLoads + 2*time.Second)
		result, err := stop()
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %.0f B/s", n, result.BytesPerSecond())
		// A busy host can make a writer without a limit slow: the best of several counts.
		for more := 0; n != Limited && result.BytesPerSecond() < 2*LimitedBytesPerSecond && more < 4; more++ {
			if err := s.clear(); err != nil {
				t.Fatal(err)
			}
			if stop, err = s.startNeighbour(n, NeighbourWriters); err != nil {
				t.Fatal(err)
			}
			time.Sleep(warmUpLoads + 4*time.Second)
			if result, err = stop(); err != nil {
				t.Fatal(err)
			}
			t.Logf("%s again: %.0f B/s", n, result.BytesPerSecond())
		}
		// The disk has no delays here; I/O that started in the warm-up
		// counts at its end.
		if held := result.BytesPerSecond() < 2*LimitedBytesPerSecond; held != (n == Limited) || result.WrittenBytes == 0 {
			t.Errorf("%s: %+v", n, result)
		}
		wants("after "+string(n), before)
		if err := s.clear(); err != nil {
			t.Fatal(err)
		}
	}
}
