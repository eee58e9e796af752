package volumes

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/experiment/pair"
	"github.com/daybook-project/daybook/internal/experiment/report"
	"github.com/daybook-project/daybook/internal/fio"
	"github.com/daybook-project/daybook/internal/synctime"
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
		"a disk and a bad one": func(o *Options) { o.Disks = []string{pair.HDD, ""} },
		"no arrangement":       func(o *Options) { o.Arrangements = nil },
		"one there is not":     func(o *Options) { o.Arrangements = []fixture.Arrangement{"X"} },
		"a database under control": func(o *Options) {
			o.Loads, o.Arrangements = []string{pair.MariaDB}, []fixture.Arrangement{fixture.ControlledOnXFS}
		},
		"no data mode":        func(o *Options) { o.DataModes = nil },
		"a mode there is not": func(o *Options) { o.DataModes = []pair.DataMode{"journal"} },
		"a part there is not": func(o *Options) { o.Disks, o.Loads = []string{pair.Plain}, []string{pair.Fio} },
		"a neighbour not in it": func(o *Options) {
			o.Loads, o.Neighbours = []string{pair.PostgreSQL}, []fio.Neighbour{fio.LowFsync}
		},
	} {
		o := Full
		change(&o)
		if o.Check() == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestOptionsChooseOfThePlan(t *testing.T) {
	o := Full
	o.Loads, o.Neighbours = []string{pair.MariaDB, poolLoad}, []fio.Neighbour{fio.LowFsync, pair.Limited}
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
	o.DataModes = []pair.DataMode{pair.Unwritten}
	for _, p := range plan() {
		if want := p.Load == pair.MariaDB && p.DataMode == pair.Unwritten; o.asks(p) != want {
			t.Errorf("with unwritten alone, %s is requested: %v", p, o.asks(p))
		}
	}
}

func TestEachRoundStartsWithAnotherArrangement(t *testing.T) {
	o := Options{Arrangements: []fixture.Arrangement{fixture.SharedExt4, fixture.ControlledOnXFS, fixture.OnDevices, fixture.OwnPartitions}}
	database := plannedPart{caseOf(pair.MariaDB, pair.Ordered), nil}
	for round, want := range []string{"S VD P", "VD P S", "P S VD", "S VD P"} {
		if got := strings.Join(texts(o.order(database, round)), " "); got != want {
			t.Errorf("round %d: %s; want %s", round, got, want)
		}
	}
}

// caseOf is a load on the simulated disk.
func caseOf(load string, mode pair.DataMode) pair.Case {
	return pair.Case{Disk: pair.HDD, Load: load, DataMode: mode}
}

// madeUp returns a result with every load, in which VA and VX are gain times as
// good as S.
func madeUp(gain, shareVA, aloneVA float64) Result {
	phase := func(a fixture.Arrangement, n fio.Neighbour, rate, share float64) pair.Phase {
		sample := account.Sample{IntervalSeconds: 2, Devices: []account.Device{{Device: "disk", Containers: []account.Container{
			{Cgroup: "A", Name: "A", ChargedWriteBytes: uint64(1e6 * share), JournalBytes: 1000},
			{Cgroup: "B", Name: "B", ChargedWriteBytes: uint64(1e6 * (1 - share))},
		}}}}
		return pair.Phase{
			Arrangement: a, Neighbour: n, Seconds: 4, Rate: rate, ShareA: share,
			SyncA: synctime.Latencies{Calls: 10, MeanSeconds: 1 / rate}, Samples: []account.Sample{sample, sample},
		}
	}
	var result Result
	add := func(load string, mode pair.DataMode) {
		part := Part{Part: pair.Part{Case: caseOf(load, mode)}}
		for _, n := range []fio.Neighbour{fio.HighFsync, pair.Limited} {
			part.Phases = append(part.Phases, phase(fixture.SharedExt4, n, 100, 0.5), phase(fixture.PlacedVolumes, n, 100*gain, shareVA), phase(fixture.PlacedOnXFS, n, 100*gain, shareVA),
				phase(fixture.OnDevices, n, 400, 0.71), phase(fixture.LoopedPartitions, n, 450, 0.7), phase(fixture.OwnPartitions, n, 500, 0.7))
		}
		part.Phases = append(part.Phases, phase(fixture.PlacedVolumes, pair.Alone, 1000*aloneVA, 1), phase(fixture.PlacedOnXFS, pair.Alone, 1000*aloneVA, 1), phase(fixture.OwnPartitions, pair.Alone, 1000, 1))
		result.Parts = append(result.Parts, part)
	}
	add(pair.Fio, pair.Ordered)
	add(pair.MariaDB, pair.Ordered)
	add(pair.MariaDB, pair.Unwritten)
	add(pair.PostgreSQL, pair.Ordered)
	trial := phase(fixture.OwnPartitions, fio.HighFsync, 2e6, 0.7)
	trial.DiskBytes = 12e6
	result.Parts = append(result.Parts,
		Part{Part: pair.Part{Case: caseOf(slicesLoad, pair.Ordered)}, Slices: []SliceTrial{{Settings: pair.ShortSlices().String(), Load: pair.Fio, Phase: trial}}},
		Part{Part: pair.Part{Case: caseOf(poolLoad, pair.Ordered)}, Pool: []PoolJournal{{Provision: volume.Thin, Phase: phase(fixture.PlacedVolumes, pair.Alone, 1e6, 1)}}})
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
	part := result.part(caseOf(pair.Fio, pair.Ordered))
	part.Phases = append(part.Phases, pair.Phase{Arrangement: fixture.ControlledOnXFS, Neighbour: fio.HighFsync, ShareA: share})
	return result
}

func TestThePhaseOfMedianThroughputIsKept(t *testing.T) {
	var rounds []pair.Phase
	for _, rate := range []float64{5, 1, 4, 2} {
		rounds = append(rounds, pair.Phase{Arrangement: fixture.SharedExt4, Neighbour: pair.Alone, Rate: rate}, pair.Phase{Arrangement: fixture.OwnPartitions, Neighbour: pair.Alone, Rate: 10 * rate})
	}
	rounds = append(rounds, pair.Phase{Arrangement: fixture.SharedExt4, Neighbour: pair.Limited, Rate: 7})
	got := medianPhases(rounds)
	want := []pair.Phase{
		{Arrangement: fixture.SharedExt4, Neighbour: pair.Alone, Rate: 2, Rounds: 4}, {Arrangement: fixture.OwnPartitions, Neighbour: pair.Alone, Rate: 20, Rounds: 4},
		{Arrangement: fixture.SharedExt4, Neighbour: pair.Limited, Rate: 7, Rounds: 1},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v; want %+v", got, want)
	}
	note := Part{Part: pair.Part{Phases: got}}.note()
	if !strings.Contains(note, "alone: of 4 rounds") || strings.Contains(note, "limited: of") {
		t.Errorf("the note says %q", note)
	}
}

// A gain over a rate of zero is undefined.
func TestATargetOverZeroIsNotMet(t *testing.T) {
	result := madeUp(5, 0.7, 1)
	part := result.part(caseOf(pair.MariaDB, pair.Ordered))
	*part.Phase(fixture.SharedExt4, pair.Limited) = pair.Phase{Arrangement: fixture.SharedExt4, Neighbour: pair.Limited, Seconds: 4}
	if err := result.Check(); err == nil || !strings.Contains(err.Error(), "beside limited: throughput over S, VX: –") || !strings.Contains(err.Error(), "a sync over S, VA: –") {
		t.Errorf("got %v", err)
	}
}

// Syncs of which none ended took no time that could be compared.
func TestATargetWithoutASyncIsNotMet(t *testing.T) {
	result := madeUp(5, 0.7, 1)
	part := result.part(caseOf(pair.MariaDB, pair.Ordered))
	part.Phase(fixture.PlacedOnXFS, fio.HighFsync).SyncA = synctime.Latencies{}
	if err := result.Check(); err == nil || err.Error() != "MariaDB beside high-fsync: time of a sync over S, VX: –; want at most 0.25" {
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
	if before.part(caseOf(pair.MariaDB, pair.Ordered)) != nil || before.part(caseOf(pair.MariaDB, pair.Unwritten)) != nil {
		t.Error("a part without a mode is used as one with it")
	}
	if before.part(caseOf(pair.Fio, pair.Ordered)) == nil {
		t.Error("a part with its mode is not found")
	}
}

// The page names one host.
func TestPartsOfAnotherHostAreNotCopied(t *testing.T) {
	o := Full
	o.Before = madeUp(5, 0.7, 1)
	o.Before.Host = report.ThisHost()
	o.Before.Host.Kernel = "x"
	if _, err := Bench(t.Context(), fixture.Lab{}, o); err == nil || !strings.Contains(err.Error(), "another host (kernel x,") {
		t.Errorf("%v", err)
	}
}

func TestPhasesAreCopiedOnlyUnderTheSameSettings(t *testing.T) {
	before := &Part{Part: pair.Part{Settings: "a disk", Phases: []pair.Phase{{Neighbour: pair.Alone}, {Neighbour: pair.Limited}, {Neighbour: fio.HighFsync}}}}
	for settings, want := range map[string]int{"a disk": 2, "another": 0} {
		part := Part{Part: pair.Part{Settings: settings}}
		part.copyPhases(before, []fio.Neighbour{pair.Limited})
		part.copyPhases(nil, []fio.Neighbour{pair.Limited})
		if len(part.Phases) != want || slices.ContainsFunc(part.Phases, func(p pair.Phase) bool { return p.Neighbour == pair.Limited }) {
			t.Errorf("%s: %+v; want %d phases, none beside %s", settings, part.Phases, want, pair.Limited)
		}
	}
}

func TestAllArrangementsCanBeDrawn(t *testing.T) {
	one := madeUp(3, 0.7, 1).part(caseOf(pair.Fio, pair.Ordered)).Phase(fixture.SharedExt4, fio.HighFsync)
	part := Part{Part: pair.Part{Case: caseOf(pair.Fio, pair.Ordered)}}
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
	made, err := result.Report()
	if err != nil {
		t.Fatal(err)
	}
	page := string(made.Markdown("make bench-volumes", "volumes.svg"))
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
