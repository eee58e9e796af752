package experiment

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/database"
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
		"no round":             func(o *VolumesOptions) { o.Rounds = 0 },
		"no time":              func(o *VolumesOptions) { o.Seconds = 0 },
		"samples too short":    func(o *VolumesOptions) { o.Interval = time.Millisecond },
		"longer than a phase":  func(o *VolumesOptions) { o.Interval = time.Hour },
		"an interval below 0":  func(o *VolumesOptions) { o.Interval = -time.Second },
		"a disk and a bad one": func(o *VolumesOptions) { o.Disks = []string{simulatedHDD, ""} },
		"no arrangement":       func(o *VolumesOptions) { o.Arrangements = nil },
		"one there is not":     func(o *VolumesOptions) { o.Arrangements = []Arrangement{"X"} },
		"a database under control": func(o *VolumesOptions) {
			o.Loads, o.Arrangements = []string{mariadbLoad}, []Arrangement{ControlledOnXFS}
		},
		"no data mode":        func(o *VolumesOptions) { o.DataModes = nil },
		"a mode there is not": func(o *VolumesOptions) { o.DataModes = []DataMode{"journal"} },
		"a part there is not": func(o *VolumesOptions) { o.Disks, o.Loads = []string{plainDisk}, []string{fioLoad} },
		"a neighbour not in it": func(o *VolumesOptions) {
			o.Loads, o.Neighbours = []string{postgresqlLoad}, []fio.Neighbour{fio.LowFsync}
		},
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
		footing: footing{disk: &stageDisk{Device: blockdev.Disk{Name: "loop0"}}},
		a:       &tenant{name: "A", weight: weightA, load: "/x/A/container"},
		b:       &tenant{name: "B", weight: weightB, load: "/x/B/container"},
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

func TestOptionsChooseOfThePlan(t *testing.T) {
	o := FullVolumes
	o.Loads, o.Neighbours = []string{mariadbLoad, poolLoad}, []fio.Neighbour{fio.LowFsync, Limited}
	var asked []string
	for _, p := range volumesPlan() {
		if o.asks(p) {
			asked = append(asked, p.String()+": "+strings.Join(texts(o.beside(p)), " "))
		}
	}
	want := []string{"hdd, mariadb, ordered: low-fsync limited", "hdd, mariadb, unwritten: low-fsync limited", "hdd, pool, ordered: ", "plain, mariadb, ordered: limited"}
	if !slices.Equal(asked, want) {
		t.Errorf("%q asked for; want %q", asked, want)
	}
	o.DataModes = []DataMode{Unwritten}
	for _, p := range volumesPlan() {
		if want := p.load == mariadbLoad && p.mode == Unwritten; o.asks(p) != want {
			t.Errorf("with unwritten alone, %s is asked for: %v", p, o.asks(p))
		}
	}
}

// madeUp is a result with every load, in which VA and VX are so many times as
// good as S.
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
	add := func(load string, mode DataMode) {
		part := VolumesPart{Disk: simulatedHDD, Load: load, DataMode: mode}
		for _, n := range []fio.Neighbour{fio.HighFsync, Limited} {
			part.Phases = append(part.Phases, phase(SharedExt4, n, 100, 0.5), phase(PlacedVolumes, n, 100*gain, shareVA), phase(PlacedOnXFS, n, 100*gain, shareVA),
				phase(OnDevices, n, 400, 0.71), phase(LoopedPartitions, n, 450, 0.7), phase(OwnPartitions, n, 500, 0.7))
		}
		part.Phases = append(part.Phases, phase(PlacedVolumes, Alone, 1000*aloneVA, 1), phase(PlacedOnXFS, Alone, 1000*aloneVA, 1), phase(OwnPartitions, Alone, 1000, 1))
		result.Parts = append(result.Parts, part)
	}
	add(fioLoad, Ordered)
	add(mariadbLoad, Ordered)
	add(mariadbLoad, Unwritten)
	add(postgresqlLoad, Ordered)
	trial := phase(OwnPartitions, fio.HighFsync, 2e6, 0.7)
	trial.DiskBytes = 12e6
	result.Parts = append(result.Parts,
		VolumesPart{Disk: simulatedHDD, Load: slicesLoad, DataMode: Ordered, Slices: []SliceTrial{{Settings: shortSlices().String(), Load: fioLoad, VolumesPhase: trial}}},
		VolumesPart{Disk: simulatedHDD, Load: poolLoad, DataMode: Ordered, Pool: []PoolJournal{{Provision: volume.Thin, VolumesPhase: phase(PlacedVolumes, Alone, 1e6, 1)}}})
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
		"throughput":    {madeUp(2.7, 0.7, 1), "MariaDB beside high-fsync: throughput over S, VX: 2.70"},
		"under a limit": {madeUp(2.7, 0.7, 1), "MariaDB beside limited: throughput over S, VA: 2.70"},
		"sync":          {madeUp(3.9, 0.7, 1), "a sync over S, VA: 0.26"},
		"share":         {madeUp(5, 0.66, 1), "points, VA: -4.0"},
		"alone":         {madeUp(5, 0.7, 0.94), "over P, VX: 0.94"},
		"controlled":    {controlled(0.66), "points, VC: -4.0"},
		"no measure":    {madeUp(5, 0.7, 0), "over P, VA: 0.00"},
		"share above":   {madeUp(5, 0.74, 1), "points, VA: +4.0"},
	} {
		if err := c.result.Check(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v; want %q", name, err, c.want)
		}
	}
}

// controlled is a good result in which control misses the share.
func controlled(share float64) VolumesResult {
	result := madeUp(5, 0.7, 1)
	part := result.part(simulatedHDD, fioLoad, Ordered)
	part.Phases = append(part.Phases, VolumesPhase{Arrangement: ControlledOnXFS, Neighbour: fio.HighFsync, ShareA: share})
	return result
}

func TestOfManyRoundsThePhaseOfMedianThroughputIsKept(t *testing.T) {
	var rounds []VolumesPhase
	for _, rate := range []float64{5, 1, 4, 2} {
		rounds = append(rounds, VolumesPhase{Arrangement: SharedExt4, Neighbour: Alone, Rate: rate}, VolumesPhase{Arrangement: OwnPartitions, Neighbour: Alone, Rate: 10 * rate})
	}
	rounds = append(rounds, VolumesPhase{Arrangement: SharedExt4, Neighbour: Limited, Rate: 7})
	got := medianPhases(rounds)
	want := []VolumesPhase{
		{Arrangement: SharedExt4, Neighbour: Alone, Rate: 2, Rounds: 4}, {Arrangement: OwnPartitions, Neighbour: Alone, Rate: 20, Rounds: 4},
		{Arrangement: SharedExt4, Neighbour: Limited, Rate: 7, Rounds: 1},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v; want %+v", got, want)
	}
	note := VolumesPart{Phases: got}.note()
	if !strings.Contains(note, "alone: of 4 rounds") || strings.Contains(note, "limited: of") {
		t.Errorf("the note says %q", note)
	}
}

// A base of nothing is no gain, however much there is in volumes.
func TestNothingToDivideByIsNoTargetMet(t *testing.T) {
	result := madeUp(5, 0.7, 1)
	part := result.part(simulatedHDD, mariadbLoad, Ordered)
	*part.phase(SharedExt4, Limited) = VolumesPhase{Arrangement: SharedExt4, Neighbour: Limited, Seconds: 4}
	if err := result.Check(); err == nil || !strings.Contains(err.Error(), "beside limited: throughput over S, VX: –") || !strings.Contains(err.Error(), "a sync over S, VA: –") {
		t.Errorf("got %v", err)
	}
}

// What an older version kept has no data mode and is of other loads.
func TestPartsWithoutADataModeAreNotTakenOver(t *testing.T) {
	var before VolumesResult
	text := `{"parts":[{"disk":"hdd","load":"mariadb"},{"disk":"hdd","load":"fio","data_mode":"ordered"}]}`
	if err := json.Unmarshal([]byte(text), &before); err != nil {
		t.Fatal(err)
	}
	if before.part(simulatedHDD, mariadbLoad, Ordered) != nil || before.part(simulatedHDD, mariadbLoad, Unwritten) != nil {
		t.Error("a part without a mode is taken for one with it")
	}
	if before.part(simulatedHDD, fioLoad, Ordered) == nil {
		t.Error("a part with its mode is not found")
	}
}

func TestPhasesAreTakenOverUnderTheSameSettingsOnly(t *testing.T) {
	before := &VolumesPart{Settings: "a disk", Phases: []VolumesPhase{{Neighbour: Alone}, {Neighbour: Limited}, {Neighbour: fio.HighFsync}}}
	for settings, want := range map[string]int{"a disk": 2, "another": 0} {
		part := VolumesPart{Settings: settings}
		part.takeOver(before, []fio.Neighbour{Limited})
		part.takeOver(nil, []fio.Neighbour{Limited})
		if len(part.Phases) != want || slices.ContainsFunc(part.Phases, func(p VolumesPhase) bool { return p.Neighbour == Limited }) {
			t.Errorf("%s: %+v; want %d phases, none beside %s", settings, part.Phases, want, Limited)
		}
	}
}

func TestAllArrangementsCanBeDrawn(t *testing.T) {
	one := madeUp(3, 0.7, 1).part(simulatedHDD, fioLoad, Ordered).phase(SharedExt4, fio.HighFsync)
	part := VolumesPart{Disk: simulatedHDD, Load: fioLoad, DataMode: Ordered}
	for _, a := range Arrangements() {
		phase := *one
		phase.Arrangement = a
		part.Phases = append(part.Phases, phase)
	}
	result := VolumesResult{Parts: []VolumesPart{part}}
	if figures, err := result.Figures(); err != nil || len(figures) != 1 {
		t.Errorf("%d figures, %v", len(figures), err)
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
	if len(figures) != 4 {
		t.Errorf("%d figures; want one for each part with phases", len(figures))
	}
	for name := range figures {
		if !strings.Contains(page, "("+name+")") {
			t.Errorf("the page does not show %s", name)
		}
	}
	for _, want := range []string{
		"MariaDB beside high-fsync: throughput over S | at least 2.8 | 3.00 | yes | 3.00 | yes | – | – | 4.00 | yes | – | – | 5.00 |",
		"MariaDB beside limited: time of a sync over S | at most 0.25 | 0.33 | **no** | 0.33 | **no** | – | – | 0.25 | yes | – | – | 0.20 |",
		"fio alone: throughput over P | at least 0.95 | 1.00 | yes | 1.00 | yes | – | – | – | – | – | – | – |",
		"| limited, ordered | 100.0 | 300.0 | 400.0 | 450.0 | 500.0 | 3.00 | 4.00 | 5.00 | 10.00 | 3.33 | 2.50 | 2.00 |", "| high-fsync, unwritten | 100.0 | 300.0 |",
		"| high-fsync, VA | 300.00 | 3.00 | 3.33 |", "| alone, P | 1000.00 |", "| thin | 1.00 | 2.5 |", "## MariaDB, simulated hard disk, ordered",
		"| fio, high-fsync | BFQ, low_latency=0, max_budget=512, strict_guarantees=1, timeout_sync=12, max_sectors_kb=512, nr_requests=256 | 2.00 MB/s | 0.00 | 0.00 | 70.0 % | 3.00 |",
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
			s, err := lab.buildStand(t.Context(), standOptions{disk: simulatedHDD, mode: Ordered, arrangement: arrangement, slices: shortSlices()})
			if err != nil {
				t.Fatal(err)
			}
			closed := false
			defer func() {
				if !closed {
					_ = s.close()
				}
			}()
			queue := checkSlices(t, s)
			shared := s.a.fileSystem == s.b.fileSystem
			if shared != (arrangement == SharedExt4) {
				t.Errorf("one file system for both: %v", shared)
			}
			for _, x := range s.tenants() {
				if mode := modeInForce(t, x.fileSystem); mode != Ordered {
					t.Errorf("the file system of %s is in the mode %s", x.name, mode)
				}
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
				hasLoop := arrangement != SharedExt4 && arrangement != OwnPartitions && !arrangement.onDevices()
				if (x.loop.Name != "") != hasLoop {
					t.Errorf("%s has the loop device %q", x.name, x.loop.Name)
				}
			}
			u, err := s.subject(t.Context(), fioLoad)
			if err != nil {
				t.Fatal(err)
			}
			o := VolumesOptions{Seconds: 4, Interval: 2 * time.Second}
			var phase VolumesPhase
			// B has the smaller share, and its sixteen writers' syncs end together: on
			// a disk that other tests load, too, there may be seconds between them.
			for phase, err = lab.volumesPhase(t.Context(), o, s, u, fio.HighFsync); err == nil && phase.SyncB.Calls == 0 && o.Seconds < 64; {
				o.Seconds *= 2
				phase, err = lab.volumesPhase(t.Context(), o, s, u, fio.HighFsync)
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
			checkNothingLeft(t, s, queue)
		})
	}
}

// modeInForce is what the kernel says of a mounted ext4.
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

// checkSlices looks whether the disk has short slices, and reads what is noted of
// its queue before.
func checkSlices(t *testing.T, s *stand) (before map[string]string) {
	t.Helper()
	for name, want := range map[string]string{"timeout_sync": "12", "max_budget": "512", "low_latency": "0", "strict_guarantees": "1"} {
		if value, err := s.disk.Device.Tunable(name); err != nil || value != want {
			t.Errorf("%s is %q, %v; want %s", name, value, err, want)
		}
	}
	checkQueue(t, s.disk.Device, map[string]string{"max_sectors_kb": "512", "nr_requests": "256"})
	record, err := os.ReadFile(filepath.Join(s.home, heldRecord))
	if err != nil {
		t.Fatal(err)
	}
	before = make(map[string]string)
	for line := range strings.Lines(string(record)) {
		words := strings.Fields(line)
		if len(words) != 4 || words[0] != s.disk.Device.Name {
			t.Fatalf("noted is %q", record)
		}
		before[words[1]] = words[3]
	}
	if len(before) != 2 {
		t.Errorf("noted is %q; want two attributes", record)
	}
	return before
}

func checkQueue(t *testing.T, disk blockdev.Disk, want map[string]string) {
	t.Helper()
	for name, value := range want {
		if now, err := disk.Queue(name); err != nil || now != value {
			t.Errorf("%s of %s is %q, %v; want %s", name, disk.Name, now, err, value)
		}
	}
}

func checkNothingLeft(t *testing.T, s *stand, queue map[string]string) {
	t.Helper()
	checkQueue(t, s.disk.Device, queue)
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
	s, err := lab.buildStand(t.Context(), standOptions{disk: plainDisk, mode: Unwritten, arrangement: PlacedVolumes, slices: shortSlices()})
	if err != nil {
		t.Fatal(err)
	}
	scheduler, err := s.disk.Device.Scheduler()
	direct, directErr := s.disk.Device.DirectIO()
	if err != nil || directErr != nil || scheduler.Current != blockdev.BFQ || !direct {
		t.Errorf("scheduler %s, direct I/O %v: %v, %v", scheduler.Current, direct, err, directErr)
	}
	queue := checkSlices(t, s)
	if mode := modeInForce(t, s.a.fileSystem); mode != Unwritten {
		t.Errorf("the volume's ext4 is in the mode %s", mode)
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	checkNothingLeft(t, s, queue)
}

func TestACrowdReadsAndLeavesTheSlicesAsTheyAre(t *testing.T) {
	lab := testStandLab(t)
	before := loopReads(t) // which loop device it will be is not known
	s, err := lab.newStand(t.Context(), standOptions{disk: simulatedHDD, mode: Ordered, arrangement: OwnPartitions, slices: crowdedBefore()})
	if err != nil {
		t.Fatal(err)
	}
	closesAtEnd(t, s)
	checkSlices(t, s)
	name := s.disk.Device.Name
	if reads := loopReads(t)[name] - before[name]; reads < crowdReaders*crowdReads {
		t.Errorf("%s has read %d times, want at least the crowd's %d", name, reads, crowdReaders*crowdReads)
	}
}

// loopReads are how often each loop device has read, of /sys/block/DISK/stat.
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

// On a shared ext4 whose data is ordered, the syncs of A wait as long as there is
// a neighbour that rewrites its files.
func TestAPhaseEndsAndIsMeasuredThoughASyncStarves(t *testing.T) {
	lab := testStandLab(t)
	s, err := lab.buildStand(t.Context(), standOptions{disk: simulatedHDD, mode: Ordered, arrangement: SharedExt4, slices: shortSlices()})
	if err != nil {
		t.Fatal(err)
	}
	closesAtEnd(t, s)
	u, err := s.subject(t.Context(), fioLoad)
	if err != nil {
		t.Fatal(err)
	}
	o := QuickVolumes
	begun := time.Now()
	phase, err := lab.volumesPhase(t.Context(), o, s, u, fio.NoFsync)
	if err != nil {
		t.Fatal(err)
	}
	watched := warmUpVolumes + time.Duration(o.Seconds)*time.Second
	if took := time.Since(begun); took > watched+starvedPatience+stopMargin {
		t.Errorf("the phase took %v, of which %v were watched", took, watched)
	}
	// Once the neighbour has ended, the disk takes no time.
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

// closesAtEnd takes a stand away when the test ends.
func closesAtEnd(t *testing.T, s *stand) {
	t.Helper()
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
}

// stopMargin is what the end of a neighbour may take, on a disk without delays.
const stopMargin = 60 * time.Second

// The limit is the kernel's, on the cgroup with the writers, and holds them; what
// was there before is there afterwards.
func TestALimitedNeighbourIsLimitedAndThenNoMore(t *testing.T) {
	lab := testStandLab(t)
	s, err := lab.buildStand(t.Context(), standOptions{disk: simulatedHDD, mode: Ordered, arrangement: OwnPartitions, slices: shortSlices()})
	if err != nil {
		t.Fatal(err)
	}
	closesAtEnd(t, s)
	dev := s.disk.Device.Dev
	before := cgroup.Limit{WriteIOPS: 5000}
	if err := lab.Tree.SetLimit(s.b.load, dev, before); err != nil {
		t.Fatal(err)
	}
	wants := func(when string, want cgroup.Limit) {
		t.Helper()
		if now, err := lab.Tree.Limits(s.b.load, dev); err != nil || now != want {
			t.Errorf("%s: %+v, %v; want %+v", when, now, err, want)
		}
	}
	for _, n := range []fio.Neighbour{fio.HighFsync, Limited} {
		stop, err := s.startNeighbour(n, neighbourWriters)
		if err != nil {
			t.Fatal(err)
		}
		limited := before
		if n == Limited {
			limited.WriteBps = limitedBps
		}
		wants("while "+string(n)+" writes", limited)
		time.Sleep(warmUpVolumes + 2*time.Second)
		result, err := stop()
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %.0f B/s", n, result.BytesPerSecond())
		// The disk takes no time here; what the warm-up began counts when
		// it ends.
		if held := result.BytesPerSecond() < 2*limitedBps; held != (n == Limited) || result.WrittenBytes == 0 {
			t.Errorf("%s: %+v", n, result)
		}
		wants("after "+string(n), before)
		if err := s.clear(); err != nil {
			t.Fatal(err)
		}
	}
}

// ownLoop is a loop device over a file in the directory, whose queue is as it was
// at the end of the test.
func ownLoop(t *testing.T, directory string, attributes ...string) blockdev.Loop {
	t.Helper()
	needs.Root(t)
	image := filepath.Join(directory, "disk")
	if err := os.WriteFile(image, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	loop, err := blockdev.Attach(image, blockdev.AttachOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := loop.Detach(context.Background()); err != nil {
			t.Error(err)
		}
	})
	for _, name := range attributes {
		before, err := loop.Queue(name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := loop.SetQueue(name, before); err != nil {
				t.Error(err)
			}
		})
	}
	return loop
}

func TestADisksQueueIsHeldAndPutBack(t *testing.T) {
	loop := ownLoop(t, t.TempDir(), "max_sectors_kb", "nomerges")
	before := map[string]string{"max_sectors_kb": "256", "nomerges": "1"}
	for name, value := range before {
		if err := loop.SetQueue(name, value); err != nil {
			t.Fatal(err)
		}
	}
	s := &stand{footing: footing{home: t.TempDir(), disk: &stageDisk{Device: loop.Disk}}}
	hold := func() {
		t.Helper()
		if err := s.holdQueue(map[string]uint64{"max_sectors_kb": 64, "nomerges": 2}); err != nil {
			t.Fatal(err)
		}
		checkQueue(t, loop.Disk, map[string]string{"max_sectors_kb": "64", "nomerges": "2"})
	}
	hold()
	if err := s.disk.close(t.Context()); err != nil {
		t.Fatal(err)
	}
	checkQueue(t, loop.Disk, before)
	if _, err := os.Stat(filepath.Join(s.home, heldRecord)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the record is still there: %v", err)
	}
	hold() // and is killed
	if err := releaseQueues(s.home); err != nil {
		t.Fatal(err)
	}
	checkQueue(t, loop.Disk, before)
	if err := s.holdQueue(map[string]uint64{"no_such": 1}); err == nil {
		t.Error("an attribute that there is not: no error")
	}
}

func TestOnlyWhatAKilledRunSetIsPutBack(t *testing.T) {
	loop := ownLoop(t, t.TempDir(), "max_sectors_kb")
	for name, c := range map[string]struct{ record, now, want string }{
		"set and left":        {loop.Name + " max_sectors_kb 64 256\n", "64", "256"},
		"set anew by another": {loop.Name + " max_sectors_kb 64 256\n", "96", "96"},
		"killed before":       {loop.Name + " max_sectors_kb 64 25", "64", "64"},
		"a disk that is gone": {"loop4095 max_sectors_kb 64 256\n", "64", "64"},
	} {
		home := t.TempDir()
		if err := os.WriteFile(filepath.Join(home, heldRecord), []byte(c.record), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := loop.SetQueue("max_sectors_kb", c.now); err != nil {
			t.Fatal(err)
		}
		if err := releaseQueues(home); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if now, err := loop.Queue("max_sectors_kb"); err != nil || now != c.want {
			t.Errorf("%s: %q, %v; want %s", name, now, err, c.want)
		}
	}
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
	requests, err := loop.Queue("max_sectors_kb")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := loop.SetQueue("max_sectors_kb", requests); err != nil {
			t.Error(err)
		}
	})
	if err := errors.Join(loop.SetQueue("max_sectors_kb", "64"), os.WriteFile(filepath.Join(home, heldRecord), []byte(loop.Name+" max_sectors_kb 64 256\n"), 0o600)); err != nil {
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
	checkQueue(t, loop.Disk, map[string]string{"max_sectors_kb": "256"})
	if _, err := os.Stat(mine); err != nil {
		t.Errorf("what a living process has was taken away: %v", err)
	}
}
