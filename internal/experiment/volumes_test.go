package experiment

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/internal/fio"
	"github.com/daybook-project/daybook/internal/needs"
	"github.com/daybook-project/daybook/internal/synctime"
	"github.com/daybook-project/daybook/volume"
)

func TestVolumesOptionsThatCannotBeAreRefused(t *testing.T) {
	for _, good := range []VolumesOptions{FullVolumes, QuickVolumes} {
		if err := good.Check(); err != nil {
			t.Error(err)
		}
	}
	for name, change := range map[string]func(*VolumesOptions){
		"no disk":              func(o *VolumesOptions) { o.Disks = nil },
		"a disk there is not":  func(o *VolumesOptions) { o.Disks = []string{"floppy"} },
		"a load there is not":  func(o *VolumesOptions) { o.Loads = []string{"oracle"} },
		"no neighbour":         func(o *VolumesOptions) { o.Neighbours = nil },
		"a loud neighbour":     func(o *VolumesOptions) { o.Neighbours = []fio.Neighbour{"loud"} },
		"no time":              func(o *VolumesOptions) { o.Seconds = 0 },
		"samples too short":    func(o *VolumesOptions) { o.Interval = time.Millisecond },
		"longer than a phase":  func(o *VolumesOptions) { o.Interval = time.Hour },
		"an interval below 0":  func(o *VolumesOptions) { o.Interval = -time.Second },
		"a disk and a bad one": func(o *VolumesOptions) { o.Disks = []string{simulatedHDD, ""} },
	} {
		o := FullVolumes
		change(&o)
		if o.Check() == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestAContainerOnALoopDeviceIsAllThatTheDeviceDid(t *testing.T) {
	sample := account.Sample{IntervalSeconds: 2, Devices: []account.Device{
		{Device: "loop0", DiskBytes: 5000, JournalBytes: 100, MetadataBytes: 50, Transactions: 3, Containers: []account.Container{
			{Cgroup: "/x/A/container", ChargedWriteBytes: 700, ChargedReadBytes: 20, JournalBytes: 200, MetadataBytes: 7, UnchargedBytes: 3},
			{Cgroup: "/x/B/container", ChargedWriteBytes: 300},
			{Cgroup: "/", ChargedWriteBytes: 9999},
		}},
		{Device: "loop1", DiskBytes: 1000, JournalBytes: 300, MetadataBytes: 100},
	}}
	s := &stand{
		disk: &stageDisk{Device: blockdev.Disk{Name: "loop0"}},
		a:    &tenant{name: "A", weight: weightA, load: "/x/A/container"},
		b:    &tenant{name: "B", weight: weightB, load: "/x/B/container"},
	}
	own, disk := s.account(sample)
	a, b := lineOf(own, "A"), lineOf(own, "B")
	if a.Bytes() != 930 || a.JournalBytes != 200 || b.Bytes() != 300 || a.TargetShare != 0.7 || disk.DiskBytes != 5000 {
		t.Errorf("without loop devices: A %+v, B %+v, disk %+v", a, b, disk)
	}
	s.a.loop.Name, s.b.loop.Name = "loop1", "loop2" // loop2 did nothing and is not listed
	own, _ = s.account(sample)
	a, b = lineOf(own, "A"), lineOf(own, "B")
	if a.Bytes() != 1000 || a.JournalBytes != 300 || a.MetadataBytes != 100 || b.Bytes() != 0 {
		t.Errorf("with loop devices: A %+v, B %+v", a, b)
	}
	if len(sample.Devices) != 2 || len(own.Devices) != 1 {
		t.Error("the sample itself was changed")
	}
}

// madeUp is a result with every load, in which VA is so many times as good as S.
func madeUp(gain, shareVA, aloneVA float64) VolumesResult {
	phase := func(a Arrangement, n fio.Neighbour, rate, share float64) VolumesPhase {
		sample := account.Sample{IntervalSeconds: 2, Devices: []account.Device{{Device: "disk", Containers: []account.Container{
			{Cgroup: "A", Name: "A", ChargedWriteBytes: uint64(1e6 * share), JournalBytes: 1000},
			{Cgroup: "B", Name: "B", ChargedWriteBytes: uint64(1e6 * (1 - share))},
		}}}}
		return VolumesPhase{
			Arrangement: a, Neighbour: n, Seconds: 4, Rate: rate, ShareA: share,
			SyncA: synctime.Latencies{Calls: 10, MeanSeconds: 1 / rate}, Samples: []account.Sample{sample, sample},
		}
	}
	var result VolumesResult
	for _, load := range []string{fioLoad, mariadbLoad, postgresqlLoad} {
		result.Parts = append(result.Parts, VolumesPart{Disk: simulatedHDD, Load: load, Phases: []VolumesPhase{
			phase(SharedExt4, fio.HighFsync, 100, 0.5), phase(PlacedVolumes, fio.HighFsync, 100*gain, shareVA),
			phase(PlacedVolumes, Alone, 1000*aloneVA, 1), phase(OwnPartitions, Alone, 1000, 1),
		}})
	}
	result.Parts = append(result.Parts, VolumesPart{Disk: simulatedHDD, Load: poolLoad, Pool: []PoolJournal{
		{Provision: volume.Thin, VolumesPhase: phase(PlacedVolumes, Alone, 1e6, 1)},
	}})
	return result
}

func TestVolumesResultsAreHeldAgainstThePapersBounds(t *testing.T) {
	if err := madeUp(4.1, 0.69, 0.97).Check(); err != nil {
		t.Errorf("as good as the paper: %v", err)
	}
	for name, c := range map[string]struct {
		result VolumesResult
		want   string
	}{
		"throughput":  {madeUp(2.7, 0.7, 1), "throughput of VA over S: 2.70"},
		"sync":        {madeUp(3.9, 0.7, 1), "a sync in VA over S: 0.26"},
		"share":       {madeUp(5, 0.66, 1), "points: -4.0"},
		"alone":       {madeUp(5, 0.7, 0.94), "VA over P: 0.940"},
		"no measure":  {madeUp(5, 0.7, 0), "VA over P: 0.000"},
		"share above": {madeUp(5, 0.74, 1), "points: +4.0"},
	} {
		if err := c.result.Check(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v; want %q", name, err, c.want)
		}
	}
}

func TestVolumesResultsAreReported(t *testing.T) {
	result := madeUp(3, 0.7, 1)
	report, err := result.Report()
	if err != nil {
		t.Fatal(err)
	}
	page := string(report.Markdown("make bench-volumes", "volumes.svg"))
	figures, err := result.Figures()
	if err != nil {
		t.Fatal(err)
	}
	if len(figures) != 3 {
		t.Errorf("%d figures; want one for each load but the pool", len(figures))
	}
	for name := range figures {
		if !strings.Contains(page, "("+name+")") {
			t.Errorf("the page does not show %s", name)
		}
	}
	for _, want := range []string{
		"throughput of VA over S | at least 2.8 | 3.00 | yes |", "a sync in VA over S | at most 0.25 | 0.33 | **no** |",
		"| high-fsync, VA | 300.00 | 3.00 | 3.33 |", "| alone, P | 1000.00 |", "| thin | 1.00 | 2.5 |", "## MariaDB, simulated hard disk",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %q:\n%s", want, page)
		}
	}
}

// testStandLab gives what the stands need.
func testStandLab(t *testing.T) Lab {
	t.Helper()
	lab := testLab(t)
	needs.Tool(t, "fio")
	return lab
}

// The two containers' file systems, threads and loads are where the arrangement
// wants them; a load runs; and nothing is left.
func TestEachArrangementIsWhatItSays(t *testing.T) {
	lab := testStandLab(t)
	for _, arrangement := range Arrangements() {
		t.Run(string(arrangement), func(t *testing.T) {
			s, err := lab.buildStand(t.Context(), simulatedHDD, arrangement)
			if err != nil {
				t.Fatal(err)
			}
			closed := false
			defer func() {
				if !closed {
					_ = s.close()
				}
			}()
			shared := s.a.fileSystem == s.b.fileSystem
			if shared != (arrangement == SharedExt4) {
				t.Errorf("one file system for both: %v", shared)
			}
			for _, x := range s.tenants() {
				journal, err := ext4.JournalOf(x.fileSystem)
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
				placed := strings.HasPrefix(at, x.parent+"/") && at != x.load
				if want := arrangement != SharedExt4 && arrangement != OwnVolumes; placed != want || !want && at != "/" {
					t.Errorf("the jbd2 thread of %s is in %s", x.name, at)
				}
				weights, err := lab.Tree.Weights(s.disk.Device.Dev, blockdev.BFQ)
				if err != nil {
					t.Fatal(err)
				}
				if now, err := weights.Get(x.parent); err != nil || now.Effective() != x.weight {
					t.Errorf("the weight of %s is %+v, %v; want %d", x.parent, now, err, x.weight)
				}
				if (x.loop.Name != "") != (arrangement != SharedExt4 && arrangement != OwnPartitions) {
					t.Errorf("%s has the loop device %q", x.name, x.loop.Name)
				}
			}
			u, err := s.subject(t.Context(), fioLoad)
			if err != nil {
				t.Fatal(err)
			}
			o := VolumesOptions{Seconds: 2, Interval: time.Second}
			phase, err := lab.volumesPhase(t.Context(), o, s, u, fio.HighFsync)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%.0f B/s beside %.0f B/s, share %.3f, %+v", phase.Rate, phase.RateB, phase.ShareA, phase.SyncA)
			if phase.Rate <= 0 || phase.RateB <= 0 || phase.ShareA <= 0 || phase.ShareA >= 1 || len(phase.Samples) != 2 {
				t.Errorf("%+v", phase)
			}
			if phase.SyncA.Calls == 0 || phase.SyncB.Calls == 0 || phase.JournalBytesA == 0 || phase.JournalBytesB == 0 {
				t.Errorf("no sync was timed or no journal seen: %+v", phase)
			}
			if (phase.PoolTransactions > 0) != arrangement.hasPoolJournal() {
				t.Errorf("%d commits of a pool", phase.PoolTransactions)
			}
			if err := u.close(); err != nil {
				t.Error(err)
			}
			closed = true
			if err := s.close(); err != nil {
				t.Fatal(err)
			}
			checkNothingLeft(t, s)
		})
	}
}

func checkNothingLeft(t *testing.T, s *stand) {
	t.Helper()
	if _, err := os.Stat(s.home); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s was left: %v", s.home, err)
	}
	if _, err := s.lab.Tree.Lookup(s.group.parent); err == nil {
		t.Errorf("the cgroup %s was left", s.group.parent)
	}
	loops, err := blockdev.Loops()
	if err != nil {
		t.Fatal(err)
	}
	if slices.ContainsFunc(loops, func(l blockdev.Loop) bool { return strings.HasPrefix(l.File, s.home) }) {
		t.Errorf("loop devices were left: %+v", loops)
	}
	parts, err := filepath.Glob("/dev/" + s.disk.Device.Name + "p*")
	if err != nil || len(parts) > 0 {
		t.Errorf("partitions were left: %v, %v", parts, err)
	}
}

func TestAPlainDiskIsALoopDeviceUnderBFQ(t *testing.T) {
	lab := testStandLab(t)
	s, err := lab.buildStand(t.Context(), plainDisk, PlacedVolumes)
	if err != nil {
		t.Fatal(err)
	}
	scheduler, err := s.disk.Device.Scheduler()
	direct, directErr := s.disk.Device.DirectIO()
	if err != nil || directErr != nil || scheduler.Current != blockdev.BFQ || !direct {
		t.Errorf("scheduler %s, direct I/O %v: %v, %v", scheduler.Current, direct, err, directErr)
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	checkNothingLeft(t, s)
}

func TestWhatAKilledExperimentLeftIsSweptAway(t *testing.T) {
	needs.Root(t)
	// The number of a process that has ended: no process has number 2^22 + 1.
	home, err := os.MkdirTemp("", standPrefix+"4194305-")
	if err != nil {
		t.Fatal(err)
	}
	image := filepath.Join(home, "disk")
	if err := os.WriteFile(image, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	loop, err := blockdev.Attach(image, blockdev.AttachOptions{})
	if err != nil {
		t.Fatal(err)
	}
	mine, err := os.MkdirTemp("", standPrefix+"1-") // process 1 lives
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(mine) })
	if err := sweepStands(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(home); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s was left: %v", home, err)
	}
	if file, err := loop.BackingFile(); err == nil && file == image {
		t.Errorf("%s still has %s", loop.Name, file)
	}
	if _, err := os.Stat(mine); err != nil {
		t.Errorf("what a living process has was taken away: %v", err)
	}
}
