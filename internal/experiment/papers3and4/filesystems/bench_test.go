package filesystems

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/experiment/report"
	"github.com/daybook-project/daybook/internal/experiment/statistics"
)

func TestExt4NVJOptionsThatCannotBeAreRefused(t *testing.T) {
	for _, good := range []Options{Full, Quick, FullNative, QuickNative} {
		if err := good.Check(); err != nil {
			t.Error(err)
		}
	}
	for name, change := range map[string]func(*Options){
		"no part":              func(o *Options) { o.Parts = nil },
		"a disk there is not":  func(o *Options) { o.Parts = []Part{{"fast", Create}} },
		"a native disk":        func(o *Options) { o.Parts = []Part{{"10us", Varmail}} },
		"a disk of guests":     func(o *Options) { o.Native, o.Parts = true, []Part{{"throttled", Varmail}} },
		"a load there is not":  func(o *Options) { o.Parts = []Part{{"undelayed", "webserver"}} },
		"a part twice":         func(o *Options) { o.Parts = append(Parts(), Parts()[1]) },
		"no arrangement":       func(o *Options) { o.Arrangements = nil },
		"one there is not":     func(o *Options) { o.Arrangements = []string{"xfs"} },
		"one twice":            func(o *Options) { o.Arrangements = []string{StockDisk, StockDisk} },
		"no threads":           func(o *Options) { o.Threads = nil },
		"zero threads":         func(o *Options) { o.Threads = []int{1, 0} },
		"threads twice":        func(o *Options) { o.Threads = []int{4, 1, 4} },
		"too many threads":     func(o *Options) { o.Threads = []int{65} },
		"no rounds":            func(o *Options) { o.Rounds = 0 },
		"no time":              func(o *Options) { o.Milliseconds = 0 },
		"more than disks hold": func(o *Options) { o.Rounds = 33 },
		"more at a time":       func(o *Options) { o.CreateFiles, o.CreateMilliseconds = 100_001, 500 },
		"too short":            func(o *Options) { o.CreateMilliseconds = 99 },
	} {
		o := Full
		change(&o)
		if o.Check() == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// fakeExt4NVJGuest answers each case with operations by arrangement.
type fakeExt4NVJGuest struct {
	rates  map[string]uint64
	leave  string // an arrangement of which nothing comes
	closed *int
}

func (g fakeExt4NVJGuest) Kernel() string { return "6.1.9-amd64" }
func (g fakeExt4NVJGuest) Close() error   { *g.closed++; return nil }

func (g fakeExt4NVJGuest) Run(_ context.Context, c Case, tell func(string)) (all []Sample, _ error) {
	tell("now")
	for round := range c.Rounds + 1 {
		for _, load := range c.Loads {
			for _, threads := range c.Threads {
				for _, arrangement := range c.Arrangements {
					if arrangement == g.leave {
						continue
					}
					s := Sample{Load: load, Arrangement: arrangement, Threads: threads, Result: LoadResult{
						Operations: g.rates[arrangement] * uint64(8+round), Seconds: 10, Syncs: 100, SyncP50Seconds: 0.001, SyncP95Seconds: 0.002, SyncP99Seconds: 0.003,
					}}
					if round == 0 {
						bytes, commits := 4096.0, 0.5
						s.Counts = &Counts{JournalBytes: &bytes, Commits: &commits, StartWaits: 0.1}
					}
					all = append(all, s)
				}
			}
		}
	}
	return all, nil
}

// rates meet all targets: over stock 3, over the fine-grained one 2.5.
func rates() map[string]uint64 {
	return map[string]uint64{StockDisk: 1000, StockPmem: 1500, NVJBlocks: 1100, NVJFine: 1200, NVJOne: 2900, NVJEight: 3000, NVJSmall: 2800}
}

// benchFakeExt4NVJ measures a guest that is made up.
func benchFakeExt4NVJ(t *testing.T, g fakeExt4NVJGuest, o Options) (Result, error) {
	t.Helper()
	closed := 0
	g.closed = &closed
	o.Boot = func(context.Context, []Disk, []string) (Guest, error) { return g, nil }
	result, err := Bench(t.Context(), o)
	if closed != 1 {
		t.Errorf("the guest was closed %d times", closed)
	}
	return result, err
}

func TestExt4NVJRunsAreMediansOfAllRounds(t *testing.T) {
	n, err := benchFakeExt4NVJ(t, fakeExt4NVJGuest{rates: rates()}, Full)
	if err != nil {
		t.Fatal(err)
	}
	if want := 3 * 5 * 7; len(n.Runs) != want {
		t.Fatalf("%d runs; want %d", len(n.Runs), want)
	}
	if first := n.Runs[0]; first.Disk != "undelayed" || first.Load != Varmail || first.Threads != 1 || first.Arrangement != StockDisk {
		t.Errorf("the first run is %+v", first)
	}
	r := n.run("throttled", Varmail, NVJEight, 16)
	// The counted round's 8 is not among them.
	if want := (statistics.Spread{Median: 3000, Low: 2700, High: 3300}); r == nil || r.OperationsPerSecond != want || r.SyncP99Seconds.Median != 0.003 || *r.Counts.Commits != 0.5 {
		t.Errorf("%+v; want %+v", r, want)
	}
	if _, err := benchFakeExt4NVJ(t, fakeExt4NVJGuest{rates: rates(), leave: NVJOne}, Quick); err == nil || !strings.Contains(err.Error(), NVJOne) {
		t.Errorf("an arrangement that is missing: %v", err)
	}
	if _, err := benchFakeExt4NVJ(t, fakeExt4NVJGuest{}, Quick); err == nil || !strings.Contains(err.Error(), "0 operations") {
		t.Errorf("runs that did nothing: %v", err)
	}
	wrong := errors.New("no such kernel")
	o := Quick
	o.Boot = func(context.Context, []Disk, []string) (Guest, error) { return nil, wrong }
	if _, err := Bench(t.Context(), o); !errors.Is(err, wrong) {
		t.Errorf("a boot that failed: %v", err)
	}
}

func TestExt4NVJPartsMeasuredAgainReplaceTheOnesBefore(t *testing.T) {
	before, err := benchFakeExt4NVJ(t, fakeExt4NVJGuest{rates: rates()}, Full)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(before)
	if err != nil {
		t.Fatal(err)
	}
	again := Full
	if err := json.Unmarshal(text, &again.Before); err != nil {
		t.Fatal(err)
	}
	again.Parts = []Part{{"throttled", Varmail}}
	rates := rates()
	rates[NVJOne] = 5000
	n, err := benchFakeExt4NVJ(t, fakeExt4NVJGuest{rates: rates}, again)
	if err != nil || len(n.Runs) != len(before.Runs) {
		t.Fatalf("%d runs, %v; want %d", len(n.Runs), err, len(before.Runs))
	}
	for _, r := range n.Runs {
		want := 2900.0
		if r.Disk == "throttled" && r.Load == Varmail {
			want = 5000
		}
		if r.Arrangement == NVJOne && r.OperationsPerSecond.Median != want {
			t.Errorf("%s, %s: %g; want %g", r.Disk, r.Load, r.OperationsPerSecond.Median, want)
		}
	}
	for name, change := range map[string]func(o *Options){
		"other rounds":         func(o *Options) { o.Rounds-- },
		"another host":         func(o *Options) { o.Before.Host.Kernel = "x" },
		"a native measurement": func(o *Options) { o.Before.Native = &NativeResult{} },
	} {
		other := again
		change(&other)
		if _, err := Bench(t.Context(), other); err == nil || !strings.Contains(err.Error(), "measure all") {
			t.Errorf("figures of %s: %v", name, err)
		}
	}
	again.Before.Kernel = "6.1.8-amd64"
	if _, err := benchFakeExt4NVJ(t, fakeExt4NVJGuest{rates: rates}, again); err == nil || !strings.Contains(err.Error(), "of Linux 6.1.8-amd64, and this guest has 6.1.9-amd64: measure all") {
		t.Errorf("figures of another kernel: %v", err)
	}
}

// The ratios are of runs of one round, which were seconds apart.
func TestAnArrangementMeasuredAgainIsNotComparedWithEarlierRuns(t *testing.T) {
	before, err := benchFakeExt4NVJ(t, fakeExt4NVJGuest{rates: rates()}, Full)
	if err != nil {
		t.Fatal(err)
	}
	again := Full
	again.Before, again.Parts, again.Arrangements, again.Threads = before, []Part{{"throttled", Varmail}}, []string{NVJOne}, []int{1, 16}
	n, err := benchFakeExt4NVJ(t, fakeExt4NVJGuest{rates: rates()}, again)
	if err != nil {
		t.Fatal(err)
	}
	if len(n.Runs) != len(before.Runs)-12 || n.run("throttled", Varmail, NVJOne, 16) == nil || n.run("throttled", Varmail, StockDisk, 2) == nil || n.run("undelayed", Varmail, StockDisk, 16) == nil {
		t.Errorf("%d runs of %d", len(n.Runs), len(before.Runs))
	}
	if r := n.run("throttled", Varmail, StockDisk, 16); r != nil {
		t.Errorf("a run of before stays beside one of now: %+v", r)
	}
	for _, v := range n.Verdicts() {
		if strings.Contains(v.Target, "disk throttled") && (v.Met || v.Measured != "not measured") {
			t.Errorf("%+v", v)
		}
	}
}

// A later sanity check says nothing of earlier runs.
func TestRunsWhoseSanityCheckFailedDoNotStay(t *testing.T) {
	for slowdown, refused := range map[float64]bool{1.4: false, 1.6: true} {
		o := FullNative
		o.Boot = func(context.Context, []Disk, []string) (Guest, error) { return nil, errors.New("booted") }
		o.Before, o.CPUs = nativeResult(slowdown), 2
		o.Before.Host, o.Before.Rounds, o.Before.Milliseconds = report.ThisHost(), o.Rounds, o.Milliseconds
		o.Before.CreateFiles, o.Before.CreateMilliseconds = o.CreateFiles, o.CreateMilliseconds
		o.Parts = []Part{{"80us", Varmail}}
		if _, err := Bench(t.Context(), o); err == nil || strings.Contains(err.Error(), "sanity check of the earlier result failed") != refused {
			t.Errorf("slowdown %g: %v", slowdown, err)
		}
		o.Parts = NativeParts()
		o.Threads = []int{1, 4, 8, 16}
		if n, err := Bench(t.Context(), o); err == nil || err.Error() != "booted" || len(n.Runs) != 0 || n.Native.Sanity != nil {
			t.Errorf("slowdown %g, and nothing stays: %v", slowdown, err)
		}
	}
}

func TestAMissedTargetOfExt4NVJIsNamed(t *testing.T) {
	check := func(change func(rates map[string]uint64)) error {
		rates := rates()
		change(rates)
		n, err := benchFakeExt4NVJ(t, fakeExt4NVJGuest{rates: rates}, Full)
		if err != nil {
			t.Fatal(err)
		}
		return n.Check()
	}
	if err := check(func(map[string]uint64) {}); err != nil {
		t.Errorf("all is met: %v", err)
	}
	// With the better number of partitions.
	if err := check(func(rates map[string]uint64) { rates[NVJOne], rates[NVJEight], rates[NVJSmall] = 3000, 100, 100 }); err != nil {
		t.Errorf("all is met with one partition: %v", err)
	}
	err := check(func(rates map[string]uint64) { rates[StockDisk] = 1100 })
	if err == nil || strings.Count(err.Error(), "\n") != 1 || !strings.Contains(err.Error(), "varmail over ext4, 16 threads, disk throttled: 2.73×") {
		t.Errorf("over stock: %v", err)
	}
	err = check(func(rates map[string]uint64) { rates[NVJFine] = 2000 })
	if err == nil || !strings.Contains(err.Error(), "create over lines, one lock, 16 threads, disk undelayed: 1.50× (ext4nvj, P = 8; 1.50 to 1.50), want at least 1.68×") {
		t.Errorf("over the fine-grained one: %v", err)
	}
	stock := Quick
	stock.Arrangements = []string{StockDisk, StockPmem}
	n, err := benchFakeExt4NVJ(t, fakeExt4NVJGuest{rates: rates()}, stock)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Check(); err == nil || !strings.Contains(err.Error(), "not measured") {
		t.Errorf("what was not measured: %v", err)
	}
	if err := (Result{}).Check(); err == nil {
		t.Error("nothing measured: no error")
	}
}

func TestTheReportOfExt4NVJSaysWhatEmulationHides(t *testing.T) {
	for name, o := range map[string]Options{"full": Full, "quick": Quick} {
		n, err := benchFakeExt4NVJ(t, fakeExt4NVJGuest{rates: rates()}, o)
		if err != nil {
			t.Fatal(err)
		}
		report, err := n.Report()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		page := string(report.Markdown("make bench-ext4nvj", "ext4nvj.svg"))
		for _, want := range []string{
			"What emulation hides", "| target | wanted | measured | met |", "| varmail over ext4, 16 threads, disk undelayed | at least 2.9× | 3.00× (ext4nvj, P = 8" + map[string]string{"full": "; 3.00 to 3.00"}[name] + ") | yes |",
			"## Operations a second: create, disk undelayed", "## fsync of varmail, ms, disk undelayed", "| ext4nvj, P = 8, 16 | 1.00 | 2.00 | 3.00 |",
			"## Counts of an operation: varmail", "| ext4, 1 | 4096 | not counted |", "## Waits in the journal, of a thousand operations: create", "| lines, one lock, 16 | 100.0 |", "Linux 6.1.9-amd64",
			"| create, undelayed, lines, one lock | 2.50× |", "flushed the disk 0.00 times for 0.50 commits",
		} {
			if !strings.Contains(page, want) {
				t.Errorf("%s: the page has no %q", name, want)
			}
		}
		if !bytes.Contains(report.Picture, []byte("Journal bytes of an operation")) || !bytes.Contains(report.Picture, []byte("emulated")) {
			t.Errorf("%s: the picture lacks the bytes, or does not say that the guest was emulated", name)
		}
		if err := report.WriteText(&bytes.Buffer{}); err != nil {
			t.Error(err)
		}
	}
	if _, err := (Result{}).Report(); err == nil {
		t.Error("nothing measured: no error")
	}
}

// What Linux 6.1 wrote, but shorter.
const biosText = `# event histogram
#
# trigger info: hist:keys=dev,rwbs:vals=hitcount,nr_sector:sort=hitcount:size=2048 [active]
#

{ dev:  271581184, rwbs: WFSM                                               } hitcount:          4  nr_sector:         32
{ dev:  266338304, rwbs: RM                                                 } hitcount:          4  nr_sector:         32
{ dev:  266338304, rwbs: FWS                                                } hitcount:        501  nr_sector:          0
{ dev:  271581184, rwbs: FWFSM                                              } hitcount:       1586  nr_sector:      12688
{ dev:  266338304, rwbs: WS                                                 } hitcount:       3220  nr_sector:      49136

Totals:
    Hits: 19009
    Entries: 8
    Dropped: 0
`

const stacks = `{ stacktrace:
         __schedule+0x4f8/0x9e0
         schedule+0x5a/0xd0
         wait_transaction_locked+0x8a/0xd0 [jbd2]
         add_transaction_credits+0x1a0/0x300 [jbd2]
         start_this_handle+0x104/0x590 [jbd2]
         jbd2__journal_start+0xf8/0x1e0 [jbd2]
         __ext4_journal_start_sb+0x105/0x120 [ext4]
         ext4_sync_file+0xfd/0x370 [ext4]
} hitcount:          2
{ common_stacktrace:
         folio_wait_writeback+0x28/0x80
         ext4_sync_file+0xfd/0x370 [ext4nvj]
} hitcount:       2706
`

func TestHistogramsOfTheKernelAreRead(t *testing.T) {
	entries, err := parseHistogram(biosText)
	if err != nil || len(entries) != 5 {
		t.Fatalf("%d entries, %v; want 5", len(entries), err)
	}
	if got, want := biosOf(entries, "271581184"), (bios{1590, 12720 * 512, 4 + 2*1586}); got != want {
		t.Errorf("the journal: %+v; want %+v", got, want)
	}
	// The empty flush is no write, and the read is none.
	if got, want := biosOf(entries, "266338304"), (bios{3220, 49136 * 512, 501}); got != want {
		t.Errorf("the disk: %+v; want %+v", got, want)
	}
	entries, err = parseHistogram(stacks)
	if err != nil || len(entries) != 2 {
		t.Fatalf("%d stacks, %v; want 2", len(entries), err)
	}
	if at := waitsIn(entries); at[inStart] != 2 || at[notJournal] != 2706 {
		t.Errorf("waits %v", at)
	}
	if _, err := parseHistogram(strings.Replace(biosText, "Dropped: 0", "Dropped: 191", 1)); err == nil || !strings.Contains(err.Error(), "no room for 191 of 19009") {
		t.Errorf("a histogram that dropped one in a hundred: %v", err)
	}
	if entries, err := parseHistogram(strings.Replace(biosText, "Dropped: 0", "Dropped: 1", 1)); err != nil || len(entries) != 5 {
		t.Errorf("a histogram that dropped one event of 19009: %d entries, %v; want 5", len(entries), err)
	}
	for _, text := range []string{"{ dev: 1 } hitcount: x\n", "Totals:\n    Dropped: many\n"} {
		if _, err := parseHistogram(text); err == nil {
			t.Errorf("%q has a count that is no number: no error", text)
		}
	}
}

func TestWhereInTheJournalAThreadWaits(t *testing.T) {
	for stack, want := range map[string]journalPlace{
		"do_get_write_access+0x244/0x3b0 [jbd2]\njbd2_journal_get_write_access+0x5b/0x80 [jbd2]\n__ext4_new_inode+0x819/0x16b0 [ext4]":                      inHandle,
		"jbd2_log_wait_commit+0xd3/0x140 [jbd2]\next4_sync_file+0xfd/0x370 [ext4]":                                                                          inCommit,
		"blkdev_issue_flush+0x49/0x70\njbd2_journal_commit_transaction+0xf9b/0x1a50 [jbd2]\nkjournald2+0xa9/0x280 [jbd2]":                                   inCommit,
		"jbd2_log_do_checkpoint+0x33/0x350 [jbd2]\n__jbd2_log_wait_for_space+0x7b/0x1b0 [jbd2]\nstart_this_handle+0x104/0x590 [jbd2]":                       inCheckpoint,
		"nvj_start+0x10/0x100 [ext4nvj]\njbd2__journal_start+0xf8/0x1e0 [ext4nvj]\n__ext4_journal_start_sb+0x1/0x2 [ext4nvj]":                               inStart,
		"nvj_log+0x10/0x100 [ext4nvj]\njbd2_journal_stop+0x1/0x2 [ext4nvj]\n__ext4_journal_stop+0x1/0x2 [ext4nvj]":                                          inHandle,
		"nvj_start+0x10/0x100 [ext4nvj]\nnvj_commit+0x10/0x100 [ext4nvj]\njbd2_complete_transaction+0x1/0x2 [ext4nvj]\next4_sync_file+0xfd/0x370 [ext4nvj]": inCommit,
		"nvj_checkpoint_worker+0x10/0x100 [ext4nvj]\nkthread+0x1/0x2":                                                                                       inCheckpoint,
		"__ext4_journal_start_sb+0x1/0x2 [ext4nvj]\next4_create+0x1/0x2 [ext4nvj]":                                                                          notJournal,
		"rwsem_down_write_slowpath+0x1/0x2\npath_openat+0x1/0x2":                                                                                            notJournal,
	} {
		if got := placeOf(stack); got != want {
			t.Errorf("%d; want %d, of\n%s", got, want, stack)
		}
	}
}

// nvjCounters is a part of /proc/fs/ext4nvj/DEV/nvjournal.
const nvjCounters = `device pmem0
records lines
region_written_bytes 64000
region_writes 500
region_fences 300
commits 100
commits_merged 10
start_waits 0
block_lock_waits 200
block_lock_wait_ns 1000
bucket_lock_waits 0
bucket_lock_wait_ns 0
list_lock_waits 100
list_lock_wait_ns 5000000
other_lock_waits 0
other_lock_wait_ns 0
`

func TestCountsAreForAnOperation(t *testing.T) {
	r := reading{histograms: histograms{bios: biosText, sleeps: stacks}, disk: "266338304", journal: "271581184", operations: 100}
	c, err := r.counts()
	if err != nil || *c.JournalBytes != 12720*512/100.0 || *c.JournalWrites != 15.9 || c.DiskWrites != 32.2 || c.DiskFlushes != 5.01 || c.StartWaits != 0.02 || c.RoomWaits != nil {
		t.Errorf("a journal on pmem: %+v, %v", c, err)
	}
	r.journal = ""
	r.histograms.run = "{ dev:  266338304 } hitcount:        50  blocks_logged:      200\n{ dev:  271581184 } hitcount:  9  blocks_logged: 9\n"
	c, err = r.counts()
	if err != nil || *c.JournalBytes != 2*4096 || *c.Commits != 0.5 || c.JournalFences != nil {
		t.Errorf("a journal on the disk: %+v, %v", c, err)
	}
	r.before, r.after = map[string]uint64{}, parseNVJCounters(nvjCounters)
	c, err = r.counts()
	if err != nil || *c.JournalBytes != 640 || *c.JournalWrites != 5 || *c.JournalFences != 3 || *c.Commits != 1 || *c.Merged != 0.1 || *c.RoomWaits != 0 {
		t.Errorf("ext4nvj: %+v, %v", c, err)
	}
	if block, list := c.EngineLocks["block"], c.EngineLocks["list"]; block != (LockWait{2, 1e-8}) || list.Waits != 1 || list.WaitSeconds != 50e-6 {
		t.Errorf("locks: %+v", c.EngineLocks)
	}
	delete(r.after, "region_fences")
	if _, err := r.counts(); err == nil || !strings.Contains(err.Error(), "region_fences") {
		t.Errorf("a counter that is missing: %v", err)
	}
	r.operations = 0
	if _, err := r.counts(); err == nil {
		t.Error("a run that did nothing: no error")
	}
}

func TestTheArrangementsNeedTheModuleOrNot(t *testing.T) {
	if NeedsModule([]string{StockDisk, StockPmem}) || !NeedsModule([]string{StockDisk, NVJFine}) {
		t.Error("stock ext4 needs no module, the others do")
	}
	for _, a := range Arrangements() {
		if titleOf(a) == "" {
			t.Errorf("%s has no title", a)
		}
		if stock := slices.Contains([]string{StockDisk, StockPmem}, a); stock != (mountOptions(a) == "") {
			t.Errorf("%s: mount options %q", a, mountOptions(a))
		}
	}
	if _, err := os.Stat("../../../../nvjournal/kernel/bench/load.h"); err != nil {
		t.Errorf("the loads' program has moved: %v", err)
	}
}
