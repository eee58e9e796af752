package volumes

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
	"github.com/daybook-project/daybook/internal/blockdev/blockdevtest"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/database"
	"github.com/daybook-project/daybook/internal/disksim"
	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/experiment/fixture/fixturetest"
	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/internal/fio"
	"github.com/daybook-project/daybook/internal/needs"
	"github.com/daybook-project/daybook/internal/synctime"
	"github.com/daybook-project/daybook/vm/vmtest"
	"github.com/daybook-project/daybook/volume"
)

func TestInvalidVolumesOptionsAreRefused(t *testing.T) {
	for _, good := range []Options{Full, Quick} {
		if err := good.Check(); err != nil {
			t.Error(err)
		}
	}
	for name, change := range map[string]func(*Options){
		"no disk":              func(o *Options) { o.Disks = nil },
		"a disk there is not":  func(o *Options) { o.Disks = []string{"floppy"} },
		"a load there is not":  func(o *Options) { o.Loads = []string{"oracle"} },
		"no neighbour":         func(o *Options) { o.Neighbours = nil },
		"a loud neighbour":     func(o *Options) { o.Neighbours = []fio.Neighbour{"loud"} },
		"no round":             func(o *Options) { o.Rounds = 0 },
		"no time":              func(o *Options) { o.Seconds = 0 },
		"samples too short":    func(o *Options) { o.Interval = time.Millisecond },
		"longer than a phase":  func(o *Options) { o.Interval = time.Hour },
		"an interval below 0":  func(o *Options) { o.Interval = -time.Second },
		"a disk and a bad one": func(o *Options) { o.Disks = []string{simulatedHDD, ""} },
		"no arrangement":       func(o *Options) { o.Arrangements = nil },
		"one there is not":     func(o *Options) { o.Arrangements = []fixture.Arrangement{"X"} },
		"a database under control": func(o *Options) {
			o.Loads, o.Arrangements = []string{mariadbLoad}, []fixture.Arrangement{fixture.ControlledOnXFS}
		},
		"no data mode":        func(o *Options) { o.DataModes = nil },
		"a mode there is not": func(o *Options) { o.DataModes = []DataMode{"journal"} },
		"a part there is not": func(o *Options) { o.Disks, o.Loads = []string{plainDisk}, []string{fioLoad} },
		"a neighbour not in it": func(o *Options) {
			o.Loads, o.Neighbours = []string{postgresqlLoad}, []fio.Neighbour{fio.LowFsync}
		},
	} {
		o := Full
		change(&o)
		if o.Check() == nil {
			t.Errorf("%s: no error", name)
		}
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

func TestOptionsChooseOfThePlan(t *testing.T) {
	o := Full
	o.Loads, o.Neighbours = []string{mariadbLoad, poolLoad}, []fio.Neighbour{fio.LowFsync, Limited}
	var asked []string
	for _, p := range plan() {
		if o.asks(p) {
			asked = append(asked, p.String()+": "+strings.Join(texts(o.beside(p)), " "))
		}
	}
	want := []string{"hdd, mariadb, ordered: low-fsync limited", "hdd, mariadb, unwritten: low-fsync limited", "hdd, pool, ordered: ", "plain, mariadb, ordered: limited"}
	if !slices.Equal(asked, want) {
		t.Errorf("%q requested; want %q", asked, want)
	}
	o.DataModes = []DataMode{Unwritten}
	for _, p := range plan() {
		if want := p.load == mariadbLoad && p.mode == Unwritten; o.asks(p) != want {
			t.Errorf("with unwritten alone, %s is requested: %v", p, o.asks(p))
		}
	}
}

// madeUp returns a result with every load, in which VA and VX are gain times as
// good as S.
func madeUp(gain, shareVA, aloneVA float64) Result {
	phase := func(a fixture.Arrangement, n fio.Neighbour, rate, share float64) Phase {
		sample := account.Sample{IntervalSeconds: 2, Devices: []account.Device{{Device: "disk", Containers: []account.Container{
			{Cgroup: "A", Name: "A", ChargedWriteBytes: uint64(1e6 * share), JournalBytes: 1000},
			{Cgroup: "B", Name: "B", ChargedWriteBytes: uint64(1e6 * (1 - share))},
		}}}}
		return Phase{
			Arrangement: a, Neighbour: n, Seconds: 4, Rate: rate, ShareA: share,
			SyncA: synctime.Latencies{Calls: 10, MeanSeconds: 1 / rate}, Samples: []account.Sample{sample, sample},
		}
	}
	var result Result
	add := func(load string, mode DataMode) {
		part := Part{Disk: simulatedHDD, Load: load, DataMode: mode}
		for _, n := range []fio.Neighbour{fio.HighFsync, Limited} {
			part.Phases = append(part.Phases, phase(fixture.SharedExt4, n, 100, 0.5), phase(fixture.PlacedVolumes, n, 100*gain, shareVA), phase(fixture.PlacedOnXFS, n, 100*gain, shareVA),
				phase(fixture.OnDevices, n, 400, 0.71), phase(fixture.LoopedPartitions, n, 450, 0.7), phase(fixture.OwnPartitions, n, 500, 0.7))
		}
		part.Phases = append(part.Phases, phase(fixture.PlacedVolumes, Alone, 1000*aloneVA, 1), phase(fixture.PlacedOnXFS, Alone, 1000*aloneVA, 1), phase(fixture.OwnPartitions, Alone, 1000, 1))
		result.Parts = append(result.Parts, part)
	}
	add(fioLoad, Ordered)
	add(mariadbLoad, Ordered)
	add(mariadbLoad, Unwritten)
	add(postgresqlLoad, Ordered)
	trial := phase(fixture.OwnPartitions, fio.HighFsync, 2e6, 0.7)
	trial.DiskBytes = 12e6
	result.Parts = append(result.Parts,
		Part{Disk: simulatedHDD, Load: slicesLoad, DataMode: Ordered, Slices: []SliceTrial{{Settings: shortSlices().String(), Load: fioLoad, Phase: trial}}},
		Part{Disk: simulatedHDD, Load: poolLoad, DataMode: Ordered, Pool: []PoolJournal{{Provision: volume.Thin, Phase: phase(fixture.PlacedVolumes, Alone, 1e6, 1)}}})
	return result
}

func TestVolumesResultsAreComparedWithThePapersBounds(t *testing.T) {
	if err := madeUp(4.1, 0.69, 0.97).Check(); err != nil {
		t.Errorf("as good as the paper: %v", err)
	}
	for name, c := range map[string]struct {
		result Result
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

// controlled returns a good result, except for the share under control.
func controlled(share float64) Result {
	result := madeUp(5, 0.7, 1)
	part := result.part(simulatedHDD, fioLoad, Ordered)
	part.Phases = append(part.Phases, Phase{Arrangement: fixture.ControlledOnXFS, Neighbour: fio.HighFsync, ShareA: share})
	return result
}

func TestThePhaseOfMedianThroughputIsKept(t *testing.T) {
	var rounds []Phase
	for _, rate := range []float64{5, 1, 4, 2} {
		rounds = append(rounds, Phase{Arrangement: fixture.SharedExt4, Neighbour: Alone, Rate: rate}, Phase{Arrangement: fixture.OwnPartitions, Neighbour: Alone, Rate: 10 * rate})
	}
	rounds = append(rounds, Phase{Arrangement: fixture.SharedExt4, Neighbour: Limited, Rate: 7})
	got := medianPhases(rounds)
	want := []Phase{
		{Arrangement: fixture.SharedExt4, Neighbour: Alone, Rate: 2, Rounds: 4}, {Arrangement: fixture.OwnPartitions, Neighbour: Alone, Rate: 20, Rounds: 4},
		{Arrangement: fixture.SharedExt4, Neighbour: Limited, Rate: 7, Rounds: 1},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v; want %+v", got, want)
	}
	note := Part{Phases: got}.note()
	if !strings.Contains(note, "alone: of 4 rounds") || strings.Contains(note, "limited: of") {
		t.Errorf("the note says %q", note)
	}
}

// A gain over a rate of zero is undefined.
func TestATargetOverZeroIsNotMet(t *testing.T) {
	result := madeUp(5, 0.7, 1)
	part := result.part(simulatedHDD, mariadbLoad, Ordered)
	*part.phase(fixture.SharedExt4, Limited) = Phase{Arrangement: fixture.SharedExt4, Neighbour: Limited, Seconds: 4}
	if err := result.Check(); err == nil || !strings.Contains(err.Error(), "beside limited: throughput over S, VX: –") || !strings.Contains(err.Error(), "a sync over S, VA: –") {
		t.Errorf("got %v", err)
	}
}

// Results of an older version have no data mode and other loads.
func TestPartsWithoutADataModeAreNotCopied(t *testing.T) {
	var before Result
	text := `{"parts":[{"disk":"hdd","load":"mariadb"},{"disk":"hdd","load":"fio","data_mode":"ordered"}]}`
	if err := json.Unmarshal([]byte(text), &before); err != nil {
		t.Fatal(err)
	}
	if before.part(simulatedHDD, mariadbLoad, Ordered) != nil || before.part(simulatedHDD, mariadbLoad, Unwritten) != nil {
		t.Error("a part without a mode is used as one with it")
	}
	if before.part(simulatedHDD, fioLoad, Ordered) == nil {
		t.Error("a part with its mode is not found")
	}
}

func TestPhasesAreCopiedOnlyUnderTheSameSettings(t *testing.T) {
	before := &Part{Settings: "a disk", Phases: []Phase{{Neighbour: Alone}, {Neighbour: Limited}, {Neighbour: fio.HighFsync}}}
	for settings, want := range map[string]int{"a disk": 2, "another": 0} {
		part := Part{Settings: settings}
		part.copyPhases(before, []fio.Neighbour{Limited})
		part.copyPhases(nil, []fio.Neighbour{Limited})
		if len(part.Phases) != want || slices.ContainsFunc(part.Phases, func(p Phase) bool { return p.Neighbour == Limited }) {
			t.Errorf("%s: %+v; want %d phases, none beside %s", settings, part.Phases, want, Limited)
		}
	}
}

func TestAllArrangementsCanBeDrawn(t *testing.T) {
	one := madeUp(3, 0.7, 1).part(simulatedHDD, fioLoad, Ordered).phase(fixture.SharedExt4, fio.HighFsync)
	part := Part{Disk: simulatedHDD, Load: fioLoad, DataMode: Ordered}
	for _, a := range fixture.Arrangements() {
		phase := *one
		phase.Arrangement = a
		part.Phases = append(part.Phases, phase)
	}
	result := Result{Parts: []Part{part}}
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
			s, err := buildPair(t.Context(), lab, conditions{disk: simulatedHDD, mode: Ordered, arrangement: arrangement, slices: shortSlices()})
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
	u, err := s.subject(t.Context(), fioLoad)
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Seconds: 4, Interval: 2 * time.Second}
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
	if (phase.PoolTransactions > 0) != s.conditions.arrangement.HasPoolJournal() {
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
	s, err := buildPair(t.Context(), lab, conditions{disk: plainDisk, mode: Unwritten, arrangement: fixture.PlacedVolumes, slices: shortSlices()})
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
	s, err := newPair(t.Context(), lab, conditions{disk: simulatedHDD, mode: Ordered, arrangement: fixture.OwnPartitions, slices: crowdedBefore()})
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
	s, err := buildPair(t.Context(), lab, conditions{disk: simulatedHDD, mode: Ordered, arrangement: fixture.SharedExt4, slices: shortSlices()})
	if err != nil {
		t.Fatal(err)
	}
	closesAtEnd(t, s)
	u, err := s.subject(t.Context(), fioLoad)
	if err != nil {
		t.Fatal(err)
	}
	o := Quick
	started := time.Now()
	phase, err := u.runPhase(t.Context(), o, fio.NoFsync)
	if err != nil {
		t.Fatal(err)
	}
	watched := warmUpVolumes + time.Duration(o.Seconds)*time.Second
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
	s, err := buildPair(t.Context(), lab, conditions{disk: simulatedHDD, mode: Ordered, arrangement: fixture.OwnPartitions, slices: shortSlices()})
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
		// A busy host can make a writer without a limit slow: the best of several counts.
		for more := 0; n != Limited && result.BytesPerSecond() < 2*limitedBps && more < 4; more++ {
			if err := s.clear(); err != nil {
				t.Fatal(err)
			}
			if stop, err = s.startNeighbour(n, neighbourWriters); err != nil {
				t.Fatal(err)
			}
			time.Sleep(warmUpVolumes + 4*time.Second)
			if result, err = stop(); err != nil {
				t.Fatal(err)
			}
			t.Logf("%s again: %.0f B/s", n, result.BytesPerSecond())
		}
		// The disk has no delays here; I/O that started in the warm-up
		// counts at its end.
		if held := result.BytesPerSecond() < 2*limitedBps; held != (n == Limited) || result.WrittenBytes == 0 {
			t.Errorf("%s: %+v", n, result)
		}
		wants("after "+string(n), before)
		if err := s.clear(); err != nil {
			t.Fatal(err)
		}
	}
}
