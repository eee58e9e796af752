package pair

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/blockdev/blockdevtest"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/database"
	"github.com/daybook-project/daybook/internal/disksim"
	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/experiment/fixture/fixturetest"
	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/internal/fio"
	"github.com/daybook-project/daybook/internal/needs"
	"github.com/daybook-project/daybook/vm/vmtest"
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

// newLab returns the environment of the fixtures.
func newLab(t *testing.T) fixture.Lab {
	t.Helper()
	lab := fixturetest.New(t)
	needs.Tool(t, "fio")
	return lab
}

// The two containers' file systems, threads and loads are as the arrangement
// requires; a load runs; and nothing is left.
func TestEachArrangementIsAsDescribed(t *testing.T) {
	lab := newLab(t)
	for _, arrangement := range fixture.Arrangements() {
		t.Run(string(arrangement), func(t *testing.T) {
			before := queues(t)
			s, err := buildPair(t.Context(), lab, Conditions{Disk: HDD, DataMode: Ordered, Arrangement: arrangement, Slicing: ShortSlices()})
			if err != nil {
				t.Fatal(err)
			}
			closed := false
			defer func() {
				if !closed {
					_ = s.Close()
				}
			}()
			checkSlices(t, s)
			shared := s.a.FileSystem == s.b.FileSystem
			if shared != (arrangement == fixture.SharedExt4) {
				t.Errorf("one file system for both: %v", shared)
			}
			for _, x := range s.containers() {
				if mode := modeInForce(t, x.FileSystem); mode != Ordered {
					t.Errorf("the file system of %s is in the mode %s", x.Name, mode)
				}
				journal, err := ext4.JournalOf(x.FileSystem)
				if err != nil {
					t.Fatal(err)
				}
				pid, err := ext4.JournalThread(journal.Name)
				if err != nil {
					t.Fatal(err)
				}
				at, err := lab.Tree.Of(pid)
				if err != nil {
					t.Fatal(err)
				}
				placed := strings.HasPrefix(at, x.Parent+"/") && at != x.Load
				if want := arrangement != fixture.SharedExt4 && arrangement != fixture.OwnVolumes; placed != want || !want && at != "/" {
					t.Errorf("the jbd2 thread of %s is in %s", x.Name, at)
				}
				weights, err := lab.Tree.Weights(s.Disk.Device.Dev, blockdev.BFQ)
				if err != nil {
					t.Fatal(err)
				}
				if now, err := weights.Get(x.Parent); err != nil || now.Effective() != x.Weight {
					t.Errorf("the weight of %s is %+v, %v; want %d", x.Parent, now, err, x.Weight)
				}
				hasLoop := arrangement != fixture.SharedExt4 && arrangement != fixture.OwnPartitions && !arrangement.OnDevices()
				if (x.Loop.Name != "") != hasLoop {
					t.Errorf("%s has the loop device %q", x.Name, x.Loop.Name)
				}
			}
			t.Run("under load", func(t *testing.T) {
				// A journal for both, one for each with the pool's besides, and control.
				if !slices.Contains([]fixture.Arrangement{fixture.SharedExt4, fixture.PlacedVolumes, fixture.ControlledOnDevices}, arrangement) {
					vmtest.Long(t)
				}
				aPhaseIsMeasured(t, s)
			})
			closed = true
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			checkNothingLeft(t, s, before)
		})
	}
}

// aPhaseIsMeasured runs a load on both containers: both sync, and all I/O is counted.
func aPhaseIsMeasured(t *testing.T, s *pair) {
	t.Helper()
	u, err := s.subject(t.Context(), Fio)
	if err != nil {
		t.Fatal(err)
	}
	o := Measurement{Seconds: 4, Interval: 2 * time.Second}
	var phase Phase
	// B has the smaller share, and its sixteen writers' syncs end together: on
	// a disk that other tests load, too, there may be seconds between them.
	for phase, err = u.runPhase(t.Context(), o, fio.HighFsync); err == nil && phase.SyncB.Calls == 0 && o.Seconds < 64; {
		o.Seconds *= 2
		phase, err = u.runPhase(t.Context(), o, fio.HighFsync)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%.0f B/s beside %.0f B/s, share %.3f, syncs of A %+v, of B %+v", phase.Rate, phase.RateB, phase.ShareA, phase.SyncA, phase.SyncB)
	if phase.Rate <= 0 || phase.RateB <= 0 || phase.ShareA <= 0 || phase.ShareA >= 1 || len(phase.Samples) != o.Seconds/2 {
		t.Errorf("%+v", phase)
	}
	if phase.SyncA.Calls == 0 || phase.SyncB.Calls == 0 || phase.JournalBytesA == 0 || phase.JournalBytesB == 0 {
		t.Errorf("no sync was timed or no journal seen: %+v", phase)
	}
	if (phase.PoolTransactions > 0) != s.conditions.Arrangement.HasPoolJournal() {
		t.Errorf("%d commits of a pool", phase.PoolTransactions)
	}
	if err := u.close(); err != nil {
		t.Error(err)
	}
}

// modeInForce returns the data mode that the kernel reports for a mounted ext4.
func modeInForce(t *testing.T, dev blockdev.Dev) DataMode {
	t.Helper()
	link, err := os.Readlink("/sys/dev/block/" + dev.String())
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("/proc/fs/ext4/" + filepath.Base(link) + "/options")
	if err != nil {
		t.Fatal(err)
	}
	if slices.Contains(strings.Fields(string(text)), "dioread_nolock") {
		return Unwritten
	}
	return Ordered
}

// queues returns the settings that each loop device keeps when it gets another file.
func queues(t *testing.T) map[string]map[string]string {
	t.Helper()
	_, err := disksim.Recover(t.Context(), "")
	if err := errors.Join(err, fixture.RemoveLeftovers()); err != nil {
		t.Fatal(err)
	}
	// The next disk gets the number of this one, which may be a new device.
	image := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(image, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	spare, err := blockdev.Attach(image, blockdev.AttachOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := spare.Detach(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	disks, err := filepath.Glob("/sys/block/loop*")
	if err != nil {
		t.Fatal(err)
	}
	of := make(map[string]map[string]string)
	for _, disk := range disks {
		of[filepath.Base(disk)] = make(map[string]string)
		for _, attribute := range []string{"scheduler", "max_sectors_kb", "nr_requests"} {
			text, err := os.ReadFile(filepath.Join(disk, "queue", attribute))
			if err != nil {
				t.Fatal(err)
			}
			of[filepath.Base(disk)][attribute] = strings.TrimSpace(string(text))
		}
	}
	return of
}

// checkSlices checks that the disk has short slices.
func checkSlices(t *testing.T, s *pair) {
	t.Helper()
	for name, want := range map[string]string{"timeout_sync": "12", "max_budget": "512", "low_latency": "0", "strict_guarantees": "1"} {
		if value, err := s.Disk.Device.Tunable(name); err != nil || value != want {
			t.Errorf("%s is %q, %v; want %s", name, value, err, want)
		}
	}
	blockdevtest.WantQueue(t, s.Disk.Device, map[string]string{"max_sectors_kb": "512", "nr_requests": "256"})
}

func checkNothingLeft(t *testing.T, s *pair, before map[string]map[string]string) {
	t.Helper()
	queue, known := before[s.Disk.Device.Name]
	if !known {
		t.Errorf("%s is new", s.Disk.Device.Name)
	}
	blockdevtest.WantQueue(t, s.Disk.Device, queue)
	if _, err := os.Stat(s.Home); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s was left: %v", s.Home, err)
	}
	if _, err := s.Lab.Tree.Lookup(s.Group.Parent); err == nil {
		t.Errorf("the cgroup %s was left", s.Group.Parent)
	}
	loops, err := blockdev.Loops()
	if err != nil {
		t.Fatal(err)
	}
	if slices.ContainsFunc(loops, func(l blockdev.Loop) bool { return strings.HasPrefix(l.File, s.Home) }) {
		t.Errorf("loop devices were left: %+v", loops)
	}
	parts, err := filepath.Glob("/dev/" + s.Disk.Device.Name + "p*")
	if err != nil || len(parts) > 0 {
		t.Errorf("partitions were left: %v, %v", parts, err)
	}
}

func TestAPlainDiskIsALoopDeviceUnderBFQ(t *testing.T) {
	lab := newLab(t)
	before := queues(t)
	s, err := buildPair(t.Context(), lab, Conditions{Disk: Plain, DataMode: Unwritten, Arrangement: fixture.PlacedVolumes, Slicing: ShortSlices()})
	if err != nil {
		t.Fatal(err)
	}
	scheduler, err := s.Disk.Device.Scheduler()
	direct, directErr := s.Disk.Device.DirectIO()
	if err != nil || directErr != nil || scheduler.Current != blockdev.BFQ || !direct {
		t.Errorf("scheduler %s, direct I/O %v: %v, %v", scheduler.Current, direct, err, directErr)
	}
	checkSlices(t, s)
	if mode := modeInForce(t, s.a.FileSystem); mode != Unwritten {
		t.Errorf("the volume's ext4 is in the mode %s", mode)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	checkNothingLeft(t, s, before)
}

func TestACrowdReadsAndKeepsTheSlices(t *testing.T) {
	lab := newLab(t)
	before := loopReads(t) // the loop device is not known yet
	s, err := newPair(t.Context(), lab, Conditions{Disk: HDD, DataMode: Ordered, Arrangement: fixture.OwnPartitions, Slicing: CrowdedBefore()})
	if err != nil {
		t.Fatal(err)
	}
	closesAtEnd(t, s)
	checkSlices(t, s)
	name := s.Disk.Device.Name
	if reads := loopReads(t)[name] - before[name]; reads < crowdReaders*crowdReads {
		t.Errorf("%s has read %d times, want at least the crowd's %d", name, reads, crowdReaders*crowdReads)
	}
}

// loopReads returns the number of reads of each loop device, from /sys/block/DISK/stat.
func loopReads(t *testing.T) map[string]int {
	t.Helper()
	files, err := filepath.Glob("/sys/block/loop*/stat")
	if err != nil {
		t.Fatal(err)
	}
	reads := make(map[string]int)
	for _, file := range files {
		text, err := os.ReadFile(file)
		words := strings.Fields(string(text))
		if err != nil || len(words) == 0 {
			t.Fatalf("%s: %q, %v", file, text, err)
		}
		if reads[filepath.Base(filepath.Dir(file))], err = strconv.Atoi(words[0]); err != nil {
			t.Fatal(err)
		}
	}
	return reads
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

// closesAtEnd removes a fixture when the test ends.
func closesAtEnd(t *testing.T, s *pair) {
	t.Helper()
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
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
