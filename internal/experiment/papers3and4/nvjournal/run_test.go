package nvjournal

import (
	"bytes"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/experiment/report"
	"github.com/daybook-project/daybook/internal/experiment/statistics"
)

func always(value float64) statistics.Spread {
	return statistics.Spread{Median: value, Low: value, High: value}
}

// Ways of a line on the invented machine: 45 ns at best, so that near is up to 100 ns,
// although three times the best is more.
var (
	alone = Way{}
	near  = Way{Before: 45, After: 50}
	apart = Way{Before: 200, After: 190}
	moved = Way{Before: 45, After: 200}
)

// roundsOf are as many as there are ways, numbered from 1, all with the same rate.
func roundsOf(rate float64, ways ...Way) (all []Round) {
	for n, way := range ways {
		all = append(all, Round{n + 1, rate, way})
	}
	return all
}

func updateRounds(one, near2, apart2 float64) (all []UpdateRound) {
	for n := range leastPairs {
		all = append(all, UpdateRound{2*n + 1, one, near2, near}, UpdateRound{2*n + 2, one, apart2, apart})
	}
	return all
}

// both are enough rounds of each state for a verdict; of one thread as many.
func both(threads int, rateNear, rateApart float64) (all []Round) {
	for n := range leastPairs {
		one, two := Round{2*n + 1, rateNear, near}, Round{2*n + 2, rateApart, apart}
		if threads == 1 {
			one.Way, two.Way, two.UpdatesPerSecond = alone, alone, rateNear
		}
		all = append(all, one, two)
	}
	return all
}

func measured() Result {
	number := func(x float64) *float64 { return &x }
	n := Result{
		NearestNanoseconds: 45,
		Streams:            []Stream{{Stream: "varmail", Operations: 10, Updates: 40, Lines: 80, Blocks: 9}},
		Floor: []Update{
			{Engine: "change", Rounds: updateRounds(10, 10, 10)},
			{Engine: "floor-256", Rounds: updateRounds(100, 100, 100)},
			{Engine: "nvjournal", Partitions: 1, Rounds: updateRounds(140, 146, 152)},
			{Engine: "nvjournal", Partitions: 8, Rounds: updateRounds(144, 150, 152)},
			{Engine: "one-lock", Partitions: 1, Rounds: updateRounds(150, 450, 900)},
			{Engine: byDefault, Partitions: 2, Rounds: updateRounds(140, 146, 152)},
			{Engine: byProcessor, Partitions: 16, Rounds: updateRounds(144, 150, 152)},
		},
		Transfers: []Transfer{
			{Stream: "create", Engine: byProcessor, Partitions: 16, Processors: 64, Apart: Moves{PerUpdate: 1.2, UpdatesPerSecond: 9e6}, Parts: []MovingLines{{"flags of records", 0.9}, {"entries of blocks", 0.2}, {"entries of images", 0.1}}},
			{Stream: "varmail", Engine: "nvjournal", Partitions: 1, Processors: 2, Near: Moves{PerUpdate: 3, UpdatesPerSecond: 3.3e6}, Apart: Moves{PerUpdate: 3, UpdatesPerSecond: 1.9e6}},
			{Stream: "varmail", Engine: "nvjournal", Partitions: 1, Processors: 16, Apart: Moves{PerUpdate: 3.5}, Parts: []MovingLines{{"head of a ring", 0.5}, {"lows", 0.001}}},
		},
		Commit: []Commit{{Partitions: 1, Mean: always(0.3)}, {Partitions: 8, Mean: always(0.9)}},
	}
	for k, way := range []Way{near, apart} {
		n.Machine = append(n.Machine, Machine{Round: k + 1, AddAlone: 5, LineTransfer: 50, LockAlone: 10, LockHeldAlone: 200, LockHeldContended: 350, Way: way})
	}
	for _, threads := range []int{1, 2} {
		for _, r := range []Row{
			{Engine: "nvjournal", Partitions: 1, Rounds: both(threads, 3e6, 1.9e6), BytesPerUpdate: number(200), FlushesPerUpdate: number(3), FencesPerUpdate: number(0.5)},
			{Engine: "nvjournal", Partitions: 8, Rounds: both(threads, 3.1e6, 2e6), BytesPerUpdate: number(210), FlushesPerUpdate: number(3), FencesPerUpdate: number(0.5)},
			{Engine: "nvjournal-blocks", Partitions: 1, Rounds: both(threads, 1e6, 1e6), BytesPerUpdate: number(4160), FlushesPerUpdate: number(65), FencesPerUpdate: number(0.5)},
			{Engine: byProcessor, Partitions: 16, Rounds: both(threads, 3.1e6, 2e6)},
			{Engine: "one-lock", Partitions: 1, Rounds: both(threads, 0.6e6, 0.4e6), BytesPerUpdate: number(220), FlushesPerUpdate: number(4), FencesPerUpdate: number(1.5)},
			{Engine: "nvjournal-one-lock", Partitions: 1, Rounds: both(threads, 1.5e6, 0.8e6)},
			{Engine: "one-lock-one-fence", Partitions: 1, Rounds: both(threads, 1.2e6, 0.8e6)},
			{Engine: "libpmemobj", Partitions: 1, Rounds: both(threads, 1.5e6, 1.4e6)},
		} {
			r.Stream, r.Threads, r.CommitEvery = "varmail", threads, 1
			n.Rows = append(n.Rows, r)
		}
	}
	for _, ns := range []float64{0, 300} {
		for _, threads := range []int{1, 2} {
			for _, l := range []Latency{
				{Engine: "nvjournal", Partitions: 1, Rounds: both(threads, 3e6-1e3*ns, 2e6)},
				{Engine: "nvjournal", Partitions: 8, Rounds: both(threads, 3.1e6-1e3*ns, 2e6)},
				{Engine: "one-lock-one-fence", Partitions: 1, Rounds: both(threads, 2e6-4e3*ns, 1e6)},
			} {
				l.Stream, l.Threads, l.FenceNanoseconds = "varmail", threads, ns
				n.Latency = append(n.Latency, l)
			}
		}
	}
	n.Order = []Order{{Partitions: 1, DiskBlocks: 1 << 20, Changed: []uint64{7, 500_000, 9, 900_000}, Written: []uint64{7, 9, 500_000, 900_000}}}
	if err := n.Order[0].compute(); err != nil {
		panic(err)
	}
	n.evaluate()
	return n
}

func TestSlowerMemoryIsARowAndBesideOneLock(t *testing.T) {
	n := measured()
	tables := n.latencyTables()
	if len(tables) != 1 || len(tables[0].Rows) != 6 {
		t.Fatalf("want one table of six rows: %v", tables)
	}
	if got, want := strings.Join(tables[0].Rows[4], "|"), "varmail, 300 ns, no limit of bandwidth|2|near|2700 (3.38×)|2800 (3.50×)|800"; got != want {
		t.Errorf("the row is %q, want %q", got, want)
	}
	panels := n.latencyPanels()
	if len(panels) != 2 || len(panels[0].X) != 2 || len(panels[0].Lines) != 3 {
		t.Errorf("want two panels of three lines over two places: %+v", panels)
	}
	n.Latency = nil
	if n.latencyTables() != nil || n.latencyPanels() != nil {
		t.Error("what was not measured is shown")
	}
}

func TestAnArmGoesOnceOverWritesInOrder(t *testing.T) {
	o := Order{Partitions: 2, DiskBlocks: 1000}
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
	o = Order{Partitions: 1, DiskBlocks: 1000, Changed: []uint64{1}}
	if o.compute() == nil {
		t.Error("a block that was not written is not missed")
	}
}

func TestAMissedBoundOfNVJournalIsNamed(t *testing.T) {
	if err := measured().Check(); err != nil {
		t.Fatalf("all is within the bounds: %v", err)
	}
	slower := func(n *Result, k int, one, two float64) { n.Floor[k].Rounds = updateRounds(one, two, two) }
	for want, spoil := range map[string]func(n *Result){
		"over the floor, nvjournal, P = 1":                                              func(n *Result) { slower(n, 2, 160, 170) },
		"over the floor, nvjournal, as formatted by default, P = 2":                     func(n *Result) { slower(n, 5, 160, 170) },
		"two threads over one, nvjournal, as formatted by default, P = 2, processors n": func(n *Result) { slower(n, 5, 140, 175) },
		"two threads over one, nvjournal, P = 8, processors n":                          func(n *Result) { slower(n, 3, 144, 175) },
		"lines that move":                       func(n *Result) { n.Transfers[0].Apart.PerUpdate = 1.4 },
		"over the same engine with one lock":    func(n *Result) { n.set("nvjournal-one-lock", both(2, 1.9e6, 1.9e6)) },
		"a commit":                              func(n *Result) { n.Commit[1].Mean = always(2.5) },
		"over one lock, updates":                func(n *Result) { slower(n, 4, 150, 200) },
		"over one lock with one fence, varmail": func(n *Result) { n.set("one-lock-one-fence", both(2, 2e6, 2e6)) },
		"fewer bytes":                           func(n *Result) { *n.Rows[2].BytesPerUpdate = 800 },
		"over libpmemobj":                       func(n *Result) { n.set("libpmemobj", both(2, 4e6, 4e6)) },
		"an update of 256 bytes o":              func(n *Result) { n.Floor = nil },
		"a commit at one thread, mean: 0.00 µs": func(n *Result) { n.Commit = nil },
		"besides its block's own: not counted":  func(n *Result) { n.Transfers = nil },
	} {
		n := measured()
		spoil(&n)
		n.evaluate()
		if err := n.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q in the error, got %v", want, err)
		}
	}
}

// A page has one host, one memory and one number of rounds.
func TestASectionIsNotMeasuredBesideFiguresOfAnotherKind(t *testing.T) {
	program := filepath.Join(t.TempDir(), "bench")
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho '{\"rounds\": 5, \"fence_ns\": 100, \"bytes_per_second\": 2300000000}'\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	o := Options{Program: program, Only: "commit", Rounds: 5, FenceNanoseconds: 100, MegabytesPerSecond: 2300}
	o.Before = measured()
	o.Before.Host, o.Before.Rounds, o.Before.FenceNanoseconds, o.Before.BytesPerSecond = report.ThisHost(), 5, 100, 2.3e9
	o.Before.Host.Measured = "2026-01-02"
	if _, err := Run(t.Context(), o); err != nil {
		t.Fatalf("figures of the same kind: %v", err)
	}
	for want, change := range map[string]func(o *Options){
		"another host (kernel x,":    func(o *Options) { o.Before.Host.Kernel = "x" },
		"of 3 rounds":                func(o *Options) { o.Before.Rounds = 3 },
		"(0 ns for each fence":       func(o *Options) { o.Before.FenceNanoseconds = 0 },
		"50 ns for each line":        func(o *Options) { o.Before.LineNanoseconds = 50 },
		"no limit of bandwidth":      func(o *Options) { o.Before.BytesPerSecond = 0 },
		"are quick":                  func(o *Options) { o.Quick = true },
		"are quick: measure all sec": func(o *Options) { o.Before.Quick = true },
	} {
		other := o
		change(&other)
		if _, err := Run(t.Context(), other); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q in the error, got %v", want, err)
		}
	}
	o.Before = Result{}
	if _, err := Run(t.Context(), o); err != nil {
		t.Errorf("without earlier figures: %v", err)
	}
}

// One of them has a hundred times the commits of the other.
func TestEnginesThatCommitAfterOtherNumbersOfOperationsHaveNoRatio(t *testing.T) {
	n := measured()
	for k, r := range n.Rows {
		if r.Engine != "libpmemobj" {
			n.Rows[k].CommitEvery = 100
		}
	}
	n.evaluate()
	for _, r := range n.Ratios {
		if r.Baseline == "libpmemobj" {
			t.Errorf("a ratio: %+v", r)
		}
	}
	for _, name := range []string{"over libpmemobj, varmail, one thread", pmemNear, pmemApart} {
		if v := verdictOn(t, n, name); !v.None || v.Met || v.Measured != "it commits after 1 operation, nvjournal after 100 operations" {
			t.Errorf("%s: %+v, want no verdict", name, v)
		}
	}
	if v := verdictOn(t, n, lockNear); v.None {
		t.Errorf("both commit after 100: %+v", v)
	}
}

func TestLinesOfAnUpdateHaveAVerdictForEachNumberOfRings(t *testing.T) {
	n := measured()
	few := n.Transfers[0]
	few.Apart.PerUpdate, few.Parts = 2.5, nil
	many := few
	many.Partitions, many.Apart.PerUpdate = 64, 0.4
	n.Transfers = []Transfer{few, many}
	verdicts := n.overLines()
	if len(verdicts) != 2 || verdicts[0].Met || !verdicts[1].Met ||
		!strings.HasSuffix(verdicts[0].Target, "64 processors, nvjournal, by processor, P = 16") ||
		!strings.HasSuffix(verdicts[1].Target, "64 processors, nvjournal, by processor, P = 64") {
		t.Errorf("verdicts: %+v", verdicts)
	}
}

func TestTheModelIsCheckedWhereThreadsHaveProcessors(t *testing.T) {
	n := measured()
	n.Host.CPUs = 2
	n.checkModel()
	two := n.transfer("varmail", "nvjournal, P = 1", 2)
	if two.Near.Error == nil || math.Abs(*two.Near.Error-0.1) > 1e-9 || two.Apart.Error == nil || math.Abs(*two.Apart.Error) > 1e-9 {
		t.Errorf("near %+v, apart %+v: want errors of 0.1 and 0", two.Near, two.Apart)
	}
	if many := n.transfer("varmail", "nvjournal, P = 1", 16); many.Apart.Error != nil {
		t.Errorf("16 processors are checked on a machine with 2: %+v", many.Apart)
	}
	if rows := n.partsTable().Rows; len(rows) != 1 || strings.Join(rows[0], "|") != "head of a ring|0.50" {
		t.Errorf("the lines that move: %v", rows)
	}
}

// withCounter builds the counter of transfers, and returns the directory of nvjournal.
func withCounter(t *testing.T) string {
	t.Helper()
	const source = "../../../../nvjournal"
	if out, err := exec.Command("make", "-s", "-C", source, "transfers-program").CombinedOutput(); err != nil {
		t.Fatalf("cannot build the counter: %v\n%s", err, out)
	}
	return source
}

// The counter runs the real code on simulated processors: its counts are the same on each
// machine. So they are held to bounds here.
func TestLinesThatMoveAreCounted(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	source := withCounter(t)
	o := Options{Counter: filepath.Join(source, "build/bench/transfers/transfers"), Quick: true, Streams: []Recording{
		{"varmail", filepath.Join(source, "build/bench/varmail.blocks")}, {"create", filepath.Join(source, "build/bench/create.blocks")}}}
	counted, err := o.count(t.Context(), Result{})
	if err != nil {
		t.Fatal(err)
	}
	o.Streams = o.Streams[1:]
	again, err := o.count(t.Context(), Result{})
	if err != nil || len(again) == 0 || !reflect.DeepEqual(counted[len(counted)-len(again):], again) {
		t.Errorf("two runs differ: %v", err)
	}
	n := Result{Transfers: counted}
	for _, c := range counted {
		if c.Name() == "nvjournal-commit-worker" {
			continue // the worker has a processor of its own
		}
		if c.Processors == 1 && (c.Near.PerUpdate != 0 || c.Apart.PerUpdate != 0) {
			t.Errorf("%s, %s: %g lines move on one processor", c.Stream, c.Name(), c.Apart.PerUpdate)
		}
	}
	// Each owner of the lock fetches its line and that of the head, and then may write it.
	if lock := n.transfer("create", "one-lock", 16); lock == nil || math.Abs(lock.Apart.PerUpdate-3) > 0.1 {
		t.Errorf("one lock: %+v, want 3 transfers for each update", lock)
	}
	for _, bound := range []struct {
		stream, name string
		processors   int
		most         float64
	}{
		{"create", "nvjournal, by processor, P = 16", 16, 1},
		{"create", "nvjournal, P = 1", 16, 1},
		{"varmail", "nvjournal, by processor, P = 16", 16, 5},
		{"varmail", "nvjournal, P = 1", 16, 6},
	} {
		c := n.transfer(bound.stream, bound.name, bound.processors)
		if c == nil || c.Apart.PerUpdate > bound.most || c.Apart.PerUpdate == 0 {
			t.Errorf("%+v: counted %+v", bound, c)
		}
	}
}

// Handles on processors with rings of their own share nothing: without new blocks and without
// commits, only what the last commit before has left in other caches moves, once.
func TestHandlesOnDifferentRingsMoveNoLines(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	source := withCounter(t)
	const linesOfACommit = 8 // for each processor
	o := Options{
		Counter: filepath.Join(source, "build/bench/transfers/transfers"), Streams: []Recording{{"create", filepath.Join(source, "build/bench/create.blocks")}},
		counterArguments: []string{"--again", "--engine", byProcessor, "--operations", "100", "--processors", "2,16,64"},
	}
	counted, err := o.count(t.Context(), Result{})
	if err != nil {
		t.Fatal(err)
	}
	apart := 0
	for _, c := range counted {
		if c.Commits != 0 || c.Updates < 100*c.Processors {
			t.Errorf("%s, %d processors: %d updates, %d commits", c.Name(), c.Processors, c.Updates, c.Commits)
		}
		if c.Processors > c.Partitions {
			continue // some share a ring
		}
		apart++
		for _, moves := range []Moves{c.Near, c.Apart} {
			if lines := moves.PerUpdate * float64(c.Updates); lines > float64(linesOfACommit*c.Processors) {
				t.Errorf("%s, %d processors: %.0f lines move in %d updates: %+v", c.Name(), c.Processors, lines, c.Updates, c.Parts)
			}
		}
	}
	if apart != 5 {
		t.Errorf("%d counts with a ring for each processor, want 5", apart)
	}
}

// A file system's handles stay open while others commit. The clocks of the simulation begin
// again after the warm-up: two callers then have nearly twice the rate of one. With 16, the
// journal merges transactions only if the callers ask for it, and then they wait at the gate.
func TestCallersWithOpenHandlesMergeTransactions(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	source := withCounter(t)
	with := func(extra ...string) map[int]Callers {
		o := Options{
			Counter: filepath.Join(source, "build/bench/transfers/transfers"), Streams: []Recording{{"varmail", filepath.Join(source, "build/bench/varmail.blocks")}},
			counterArguments: append([]string{"--engine", "nvjournal", "--operations", "100", "--processors", "1,2,16", "--handle-ns", "3000", "--between-ns", "11000"}, extra...),
		}
		counted, err := o.count(t.Context(), Result{})
		if err != nil {
			t.Fatal(err)
		}
		all := make(map[int]Callers)
		for _, c := range counted {
			if c.Partitions == 1 {
				all[c.Processors] = *c.Callers
			}
		}
		return all
	}
	alone, merging := with(), with("--merge")
	if one, two := alone[1].OperationsPerSecond, alone[2].OperationsPerSecond; two < 1.5*one {
		t.Errorf("%.0f operations a second with one caller, %.0f with two", one, two)
	}
	if c := alone[16]; c.MergedPerOperation != 0 || c.StartWaitsPerOperation != 0 {
		t.Errorf("callers that do not merge: %+v", c)
	}
	if c := merging[16]; c.MergedPerOperation == 0 || c.StartWaitsPerOperation == 0 || c.OperationsPerSecond > 0.95*alone[16].OperationsPerSecond {
		t.Errorf("callers that merge: %+v; others %+v", c, alone[16])
	}
	// Threads that need not sleep for it wait until the open handles have ended.
	if c := with("--merge", "--alone")[16]; c.MergedPerOperation >= merging[16].MergedPerOperation/2 {
		t.Errorf("callers that merge and are alone on their processors: %+v; others %+v", c, merging[16])
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

// The model has times of the machine: its rates are computed again when these are measured again, and
// only then.
func TestAMachineMeasuredAgainHasItsOwnModel(t *testing.T) {
	dir := t.TempDir()
	for name, printed := range map[string]string{
		"bench":   `{"rounds": 5, "machine": [{"round": 1, "line_transfer_ns": 90, "line_before_ns": 45, "line_after_ns": 50}]}`,
		"same":    `{"rounds": 5, "commit": []}`,
		"counter": `{"transfers": [{"stream": "create", "engine": "nvjournal", "partitions": 1, "processors": 7}]}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\necho \"$@\" >\"$0.arguments\"\necho '"+printed+"'\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	o := Options{Program: filepath.Join(dir, "same"), Counter: filepath.Join(dir, "counter"), Rounds: 5, Only: "commit", Before: measured()}
	if n, err := Run(t.Context(), o); err != nil || len(n.Transfers) != 3 {
		t.Errorf("%d transfers, %v; want those that were counted before", len(n.Transfers), err)
	}
	o.Program, o.Only = filepath.Join(dir, "bench"), "machine"
	n, err := Run(t.Context(), o)
	if err != nil || len(n.Transfers) != 1 || n.Transfers[0].Processors != 7 {
		t.Errorf("%+v, %v; want those that the counter counts now", n.Transfers, err)
	}
	if arguments, err := os.ReadFile(o.Counter + ".arguments"); err != nil || !strings.Contains(string(arguments), "--near-ns 90.0") {
		t.Errorf("the counter was called with %q, %v; want --near-ns 90.0", arguments, err)
	}
}

func TestASectionMeasuredAgainLeavesTheOthers(t *testing.T) {
	program := filepath.Join(t.TempDir(), "bench")
	script := `#!/bin/sh
echo "$@" >"$0.arguments"
echo '{"rounds": 5, "floor": [{"engine": "floor-256", "rounds": [{"round": 1, "ns": 100}]}, {"engine": "nvjournal", "partitions": 1, "rounds": [{"round": 1, "ns": 130, "ns_each_of_two_threads": 200, "line_before_ns": 180, "line_after_ns": 185}]}], "nearest_line_transfer_ns": 180}'
`
	if err := os.WriteFile(program, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	o := Options{Program: program, Rounds: 5, Only: "updates", Before: measured()}
	for range 2 {
		n, err := Run(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if len(n.Floor) != 2 || n.Floor[1].OverFloor.Median != 1.3 || len(n.Rows) != len(o.Before.Rows) || len(n.Order) != 1 {
			t.Errorf("floor %v, %d rows, %d orders: want the new floor, and the rest as before", n.Floor, len(n.Rows), len(n.Order))
		}
		// Near was seen before: what is measured now is held to the same bound.
		if two := n.Floor[1].Two; len(two) != 1 || two[0].State != Apart || n.NearestNanoseconds != 45 {
			t.Errorf("two threads: %+v, nearest %g; want rounds apart alone, nearest 45 as before", two, n.NearestNanoseconds)
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
