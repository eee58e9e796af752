package experiment

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestThroughputOfAClosedNetwork(t *testing.T) {
	if got := networkRate(1, 90, []float64{10}); math.Abs(got-0.01) > 1e-12 {
		t.Errorf("one customer: %g, want 0.01", got)
	}
	// Without a station all run side by side.
	if got := networkRate(16, 100, nil); math.Abs(got-0.16) > 1e-12 {
		t.Errorf("16 customers without a station: %g, want 0.16", got)
	}
	// A station is never busier than always, and with many customers it is.
	if got := networkRate(64, 90, []float64{10}); got > 0.1 || got < 0.0999 {
		t.Errorf("64 customers: %g, want nearly 0.1", got)
	}
	// Two customers, think and service equal: by hand 2/(10 + 10·1.5).
	if got, want := networkRate(2, 10, []float64{10}), 2.0/25; math.Abs(got-want) > 1e-12 {
		t.Errorf("two customers: %g, want %g", got, want)
	}
}

func always(value float64) Spread { return Spread{value, value, value} }

func measured() NVJournal {
	number := func(x float64) *float64 { return &x }
	n := NVJournal{
		Streams: []NVJStream{{Stream: "varmail", Operations: 10, Updates: 40, Lines: 80, Blocks: 9}},
		Floor: []NVJUpdate{
			{Engine: "change", Nanoseconds: always(10), EachOfTwo: always(10)},
			{Engine: "floor-256", Nanoseconds: always(100), EachOfTwo: always(100), OverFloor: always(1)},
			{Engine: "nvjournal", Partitions: 1, Nanoseconds: always(140), EachOfTwo: always(150), TwoThreadsOverOne: always(1.87), OverFloor: always(1.4)},
			{Engine: "nvjournal", Partitions: 8, Nanoseconds: always(145), EachOfTwo: always(150), TwoThreadsOverOne: always(1.93), OverFloor: always(1.45)},
			{Engine: "one-lock", Partitions: 1, Nanoseconds: always(150), EachOfTwo: always(450), TwoThreadsOverOne: always(0.6), OverFloor: always(1.5)},
		},
		Commit: []NVJCommit{{Partitions: 1, Mean: always(0.3)}, {Partitions: 8, Mean: always(0.9)}},
		Machine: NVJMachine{AddAlone: always(5), LineTransfer: always(50), LockAlone: always(10),
			LockHeldAlone: always(200), LockHeldContended: always(350)},
	}
	for _, threads := range []int{1, 2} {
		for _, r := range []NVJRow{
			{Engine: "nvjournal", Partitions: 1, UpdatesPerSecond: 3e6, BytesPerUpdate: number(200), FlushesPerUpdate: number(3), FencesPerUpdate: number(0.5)},
			{Engine: "nvjournal", Partitions: 8, UpdatesPerSecond: 3.1e6, BytesPerUpdate: number(210), FlushesPerUpdate: number(3), FencesPerUpdate: number(0.5)},
			{Engine: "nvjournal-blocks", Partitions: 1, UpdatesPerSecond: 1e6, BytesPerUpdate: number(4160), FlushesPerUpdate: number(65), FencesPerUpdate: number(0.5)},
			{Engine: "one-lock", Partitions: 1, UpdatesPerSecond: 1.2e6, BytesPerUpdate: number(220), FlushesPerUpdate: number(4), FencesPerUpdate: number(1.5)},
			{Engine: "libpmemobj", Partitions: 1, UpdatesPerSecond: 1.5e6},
		} {
			r.Stream, r.Threads, r.CommitEvery = "varmail", threads, 1
			n.Rows = append(n.Rows, r)
		}
	}
	for _, ns := range []float64{0, 300} {
		for _, threads := range []int{1, 2} {
			for _, l := range []NVJLatency{
				{Engine: "nvjournal", Partitions: 1, UpdatesPerSecond: always(3e6 - 1e3*ns)},
				{Engine: "nvjournal", Partitions: 8, UpdatesPerSecond: always(3.1e6 - 1e3*ns)},
				{Engine: "one-lock", Partitions: 1, UpdatesPerSecond: always(2e6 - 4e3*ns)},
			} {
				l.Stream, l.Threads, l.FenceNanoseconds = "varmail", threads, ns
				n.Latency = append(n.Latency, l)
			}
		}
	}
	n.Order = []NVJOrder{{Partitions: 1, DiskBlocks: 1 << 20, Changed: []uint64{7, 500_000, 9, 900_000}, Written: []uint64{7, 9, 500_000, 900_000}}}
	if err := n.Order[0].compute(); err != nil {
		panic(err)
	}
	n.Model = contention(n.Floor, n.Machine)
	return n
}

func TestSlowerMemoryIsARowAndBesideOneLock(t *testing.T) {
	n := measured()
	tables := n.latencyTables()
	if len(tables) != 1 || len(tables[0].Rows) != 4 {
		t.Fatalf("want one table of four rows: %v", tables)
	}
	if got, want := strings.Join(tables[0].Rows[3], "|"), "varmail, 300 ns, no limit of bandwidth|2|2700 (3.38×)|2800 (3.50×)|800"; got != want {
		t.Errorf("the last row is %q, want %q", got, want)
	}
	panels := n.latencyPanels()
	if len(panels) != 1 || len(panels[0].X) != 2 || len(panels[0].Lines) != 3 {
		t.Errorf("want a panel of three lines over two places: %+v", panels)
	}
	n.Latency = nil
	if n.latencyTables() != nil || n.latencyPanels() != nil {
		t.Error("what was not measured is shown")
	}
}

func TestRoundsWithTheProcessorsApartAreToldByThemselves(t *testing.T) {
	n := measured()
	for _, table := range []ReportTable{n.floorTable(), n.rateTable(n.Streams[0])} {
		if strings.Contains(table.Note, "moved about") || strings.Contains(strings.Join(slices.Concat(table.Rows...), "|"), "apart") {
			t.Errorf("%s: there was no such round: %v", table.Title, table)
		}
	}
	n.NearestNanoseconds = 48
	n.Floor[2].RoundsApart, n.Floor[2].EachOfTwoApart, n.Floor[2].TwoThreadsOverOneApart = 3, always(330), always(0.99)
	n.Rows[6].RoundsApart, n.Rows[6].UpdatesPerSecondApart = 2, 1.9e6
	floor, rate := n.floorTable(), n.rateTable(n.Streams[0])
	if !strings.Contains(floor.Note, "took 48 ns at best") {
		t.Errorf("the floor's note does not say what apart is: %s", floor.Note)
	}
	if got, want := strings.Join(floor.Rows[2][1:], "|"), "140 (140 to 140)|150 (150 to 150)|1.87×|1.40×|330 (330 to 330)|0.99× (3 rounds)"; got != want {
		t.Errorf("the floor's row is %q, want %q", got, want)
	}
	if got, want := rate.Rows[1][2], "3100 (0); apart 1900 (2)"; got != want {
		t.Errorf("P = 8 with two threads: %q, want %q", got, want)
	}
	if err := n.Check(); err != nil {
		t.Errorf("rounds apart are held to the bounds: %v", err)
	}
}

func TestAnArmGoesOnceOverWritesInOrder(t *testing.T) {
	o := NVJOrder{Partitions: 2, DiskBlocks: 1000}
	for k := range uint64(500) {
		o.Changed = append(o.Changed, k*7919%1000)
	}
	if got := newestFirst([]uint64{4, 1, 6, 3}, 2); !slices.Equal(got, []uint64{6, 4, 3, 1}) {
		t.Errorf("newest first: %v", got)
	}
	o.Written = slices.Sorted(slices.Values(o.Changed))
	if err := o.compute(); err != nil {
		t.Fatal(err)
	}
	if o.Changed != nil || o.Written != nil || o.Blocks != 500 || len(o.Seconds) != 4 {
		t.Fatalf("computed: %+v", o)
	}
	alone, chosen := o.Seconds[:2], o.Seconds[2:]
	if !(alone[1].Seconds < alone[0].Seconds/5 && chosen[0].Seconds < alone[0].Seconds && chosen[1].Seconds <= chosen[0].Seconds) {
		t.Errorf("seconds: %+v", o.Seconds)
	}
	o = NVJOrder{Partitions: 1, DiskBlocks: 1000, Changed: []uint64{1}}
	if o.compute() == nil {
		t.Error("a block that was not written is not missed")
	}
}

func TestAMissedBoundOfNVJournalIsNamed(t *testing.T) {
	if err := measured().Check(); err != nil {
		t.Fatalf("all is within the bounds: %v", err)
	}
	for want, spoil := range map[string]func(n *NVJournal){
		"over the floor, P = 1":    func(n *NVJournal) { n.Floor[2].OverFloor = always(1.6) },
		"two threads":              func(n *NVJournal) { n.Floor[3].TwoThreadsOverOne = always(1.7) },
		"a commit":                 func(n *NVJournal) { n.Commit[1].Mean = always(2.5) },
		"over one lock, updates":   func(n *NVJournal) { n.Floor[4].EachOfTwo = always(200) },
		"shows most, varmail":      func(n *NVJournal) { n.Rows[8].UpdatesPerSecond = 2e6 },
		"fewer bytes":              func(n *NVJournal) { *n.Rows[2].BytesPerUpdate = 800 },
		"over libpmemobj":          func(n *NVJournal) { n.Rows[9].UpdatesPerSecond = 4e6 },
		"an update of 256 bytes o": func(n *NVJournal) { n.Floor = nil },
	} {
		n := measured()
		spoil(&n)
		if err := n.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q in the error, got %v", want, err)
		}
	}
}

func TestTheModelKnowsItsCalibrationAndIsCheckedAtTwo(t *testing.T) {
	n := measured()
	for _, l := range n.Model.Lines {
		if off := l.UpdatesPerSecond[0]/l.Measured[0] - 1; math.Abs(off) > 1e-9 {
			t.Errorf("%s: off by %g at one core", l.Engine, off)
		}
		if l.Measured[1] == 0 || l.ErrorAtTwo == 0 {
			t.Errorf("%s: not checked at two", l.Engine)
		}
	}
	lock, one, eight := n.Model.line("one-lock", 1), n.Model.line("nvjournal", 1), n.Model.line("nvjournal", 8)
	last := len(n.Model.Cores) - 1
	if !(lock.UpdatesPerSecond[last] < one.UpdatesPerSecond[last] && one.UpdatesPerSecond[last] < eight.UpdatesPerSecond[last]) {
		t.Errorf("at 64 cores: one lock %g, P=1 %g, P=8 %g", lock.UpdatesPerSecond[last], one.UpdatesPerSecond[last], eight.UpdatesPerSecond[last])
	}
}

func TestTheReportOfNVJournalCallsTheModelAModel(t *testing.T) {
	report, err := measured().Report()
	if err != nil {
		t.Fatal(err)
	}
	page := string(report.Markdown("make bench-nvjournal", "nvjournal.svg"))
	for _, want := range []string{"A model", "| target | wanted | measured | met |", "varmail", "libpmemobj", "not counted", "## On slower memory", "## Checkpoint to a disk with an arm"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %q", want)
		}
	}
	if !bytes.Contains(report.Picture, []byte("A model")) {
		t.Error("the picture does not say that the model is one")
	}
	if !bytes.Contains(report.Picture, []byte("Slower memory")) {
		t.Error("the picture does not show slower memory")
	}
	if err := report.WriteText(&bytes.Buffer{}); err != nil {
		t.Error(err)
	}
}

func TestASectionMeasuredAgainLeavesTheOthers(t *testing.T) {
	program := filepath.Join(t.TempDir(), "bench")
	script := `#!/bin/sh
echo "$@" >"$0.arguments"
echo '{"rounds": 5, "floor": [{"engine": "nvjournal", "partitions": 1, "over_floor": {"median": 1.3, "low": 1.3, "high": 1.3}}]}'
`
	if err := os.WriteFile(program, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	o := NVJournalOptions{Program: program, Rounds: 5, Only: "updates", Before: measured()}
	o.Before.Floor[0].EachOfTwoApart = always(18)
	for range 2 {
		n, err := RunNVJournal(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if len(n.Floor) != 1 || n.Floor[0].OverFloor.Median != 1.3 || len(n.Rows) != len(o.Before.Rows) || len(n.Order) != 1 {
			t.Errorf("floor %v, %d rows, %d orders: want the new floor, and the rest as before", n.Floor, len(n.Rows), len(n.Order))
		}
		if n.Floor[0].EachOfTwoApart != (Spread{}) {
			t.Errorf("an old figure stays where the new ones have none: %v", n.Floor[0].EachOfTwoApart)
		}
		if !slices.Equal(n.Later, []string{"updates"}) {
			t.Errorf("measured later: %v", n.Later)
		}
		o.Before = n
	}
	if arguments, err := os.ReadFile(program + ".arguments"); err != nil || !strings.Contains(string(arguments), "--only updates") {
		t.Errorf("the program was called with %q, %v", arguments, err)
	}
}
