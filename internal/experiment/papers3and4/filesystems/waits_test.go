package filesystems

import (
	"math"
	"strings"
	"testing"
)

// What Linux 7.2 wrote, but shorter.
const (
	spinStack = `stack.stacktrace         save_stack_trace+0x41/0x50
         stack_trace_save+0x35/0x40
         event_hist_trigger+0x4ca/0x880
         event_triggers_call+0xcb/0x140
         trace_event_buffer_commit+0xb1/0x3d0
         trace_event_raw_event_contention_begin+0x67/0xa0
         __traceiter_contention_begin+0x3b/0x50
         queued_spin_lock_slowpath+0x390/0x400
         _raw_spin_lock_irq+0x41/0x50
         lmGroupCommit+0x32/0x270 [jfs]
         txCommit+0x3cb/0x1070 [jfs]
         vfs_fsync+0x35/0x70
`
	mutexStack = `common_stacktrace:
         trace_event_raw_event_contention_begin+0x67/0xa0
         __mutex_lock.constprop.0+0xbed/0x1530
         __mutex_lock_slowpath+0x15/0x20
         mutex_lock+0x57/0x60
         diAlloc+0x3c3/0x730 [jfs]
         ialloc.isra.0+0x60/0x290 [jfs]
`
	queueStack = `common_stacktrace:
         queued_spin_lock_slowpath+0x390/0x400
         _raw_spin_lock_irqsave+0x51/0x60
         remove_wait_queue+0x19/0x50
         txLock+0x5e1/0x6f0 [jfs]
         diWrite+0xea/0x610 [jfs]
`
	lockSleepStack = `common_stacktrace:
         __schedule+0x83a/0x990
         schedule+0x3e/0x120
         schedule_preempt_disabled+0x10/0x20
         rwsem_down_read_slowpath+0x2b4/0x790
         down_read+0x52/0x100
         dbFree+0x53/0x280 [jfs]
         txFreeMap+0x9b/0x280 [jfs]
`
	sleepStack = `common_stacktrace:
         __schedule+0x83a/0x990
         schedule+0x3e/0x120
         io_schedule+0x23/0x70
         folio_wait_bit_common+0x19b/0x330
         folio_wait_bit+0x1a/0x20
         jfs_fsync+0x21/0xf0 [jfs]
`
	otherStack = `common_stacktrace:
         queued_spin_lock_slowpath+0x390/0x400
         _raw_spin_lock_irqsave+0x51/0x60
         ep_item_poll+0x1/0x2
`
	startStack = `stack.stacktrace         __schedule+0x83a/0x990
         schedule_timeout+0xec/0x170
         __wait_for_common+0x117/0x240
         wait_for_completion+0x29/0x30
         work+0xa7/0x1b0 [load]
         kthread+0x13a/0x1c0
`
	lockHistogram = `# event histogram
#
# trigger info: hist:keys=lock.sym-offset:vals=hitcount,ns:sort=hitcount:size=16384 [active]
#

{ lock: [68efa8b8] 0x68efa8b8                                              } hitcount:          2  ns:          5
{ lock: [120915298] jfsTxnLock+0x0/0x4 [jfs]                                } hitcount:         20  ns:  536287232
{ lock: [120915300] TxAnchor+0x50/0xc0 [jfs]                                } hitcount:          1  ns:  600000000

`
)

func TestThePlaceOfAWaitIsTheFunctionThatAsksForTheLock(t *testing.T) {
	for stack, want := range map[string]WaitSite{
		spinStack:            {Kind: spinWait, Function: "lmGroupCommit", Caller: "txCommit"},
		mutexStack:           {Kind: mutexWait, Function: "diAlloc", Caller: "ialloc"},
		queueStack:           {Kind: queueWait, Function: "txLock", Caller: "diWrite"},
		lockSleepStack:       {Kind: readWait, Function: "dbFree", Caller: "txFreeMap"},
		sleepStack:           {Kind: sleepWait, Function: "folio_wait_bit_common", Caller: "folio_wait_bit"},
		startStack:           {Kind: sleepWait, Function: "work", Caller: "kthread"},
		"kthread+0x13a/0x1c": {Kind: sleepWait, Function: "kthread"},
		"":                   {Kind: sleepWait},
	} {
		if got := siteOf(stack); got != want {
			t.Errorf("%+v; want %+v, of\n%s", got, want, stack)
		}
	}
}

// entry is an entry of a histogram.
func entry(stack string, hits, ns uint64) histogramEntry {
	return histogramEntry{keys: stack, sums: map[string]uint64{"hitcount": hits, "ns": ns}}
}

func TestWaitsOfAllThreadsAreCountedAndOneIsTimed(t *testing.T) {
	begins := []histogramEntry{entry(spinStack, 100, 0), entry(mutexStack, 30, 0), entry(otherStack, 50, 0)}
	sleeps := []histogramEntry{entry(lockSleepStack, 7, 0), entry(sleepStack, 4, 0)}
	timed := []histogramEntry{entry(mutexStack, 3, 2000)}
	timedSleeps := []histogramEntry{entry(sleepStack, 1, 500), entry(lockSleepStack, 1, 900), entry(startStack, 1, 1e9)}
	got := waitSites(begins, sleeps, timed, timedSleeps, 16, 10)
	want := []WaitSite{
		{mutexWait, "diAlloc", "ialloc", 3, 3200e-9},
		{sleepWait, "folio_wait_bit_common", "folio_wait_bit", 0.4, 800e-9},
		{spinWait, "lmGroupCommit", "txCommit", 10, 0},
	}
	if len(got) != len(want) {
		t.Fatalf("%+v", got)
	}
	for n := range want {
		if math.Abs(got[n].WaitSeconds-want[n].WaitSeconds) > 1e-12 {
			t.Errorf("%+v; want %+v", got[n], want[n])
		}
		if got[n].WaitSeconds = want[n].WaitSeconds; got[n] != want[n] {
			t.Errorf("%+v; want %+v", got[n], want[n])
		}
	}
}

func TestLocksWithANameAreInTheOrderOfTheirWaits(t *testing.T) {
	entries, err := parseHistogram(lockHistogram)
	if err != nil {
		t.Fatal(err)
	}
	got := lockSymbols(entries, 4, 8)
	if len(got) != 2 || got[0].Symbol != "TxAnchor+0x50" || got[1].Symbol != "jfsTxnLock" || got[1].Waits != 10 || got[1].WaitSeconds != 0.268143616 {
		t.Errorf("%+v", got)
	}
}

func TestAHistogramIsFoundByItsKey(t *testing.T) {
	const counted = "# event histogram\n#\n# trigger info: hist:keys=common_stacktrace:vals=hitcount:sort=hitcount:size=8192 [active]\n{ counted+0x1/0x2\n} hitcount: 5\n"
	text := strings.Replace(lockHistogram, "lock.sym-offset", "common_pid,lock_addr", 1) + counted
	if got := histogramBy(text, "common_stacktrace"); !strings.Contains(got, "counted") || strings.Contains(got, "jfsTxnLock") {
		t.Errorf("%q", got)
	}
	if got := histogramBy(text, "stack.stacktrace"); got != "" {
		t.Errorf("%q", got)
	}
}

func TestThePageNamesTheLocksAndTheirCallers(t *testing.T) {
	c := Counts{
		WaitSites: []WaitSite{
			{spinWait, "txLock", "diWrite", 3, 2e-6}, {spinWait, "txLock", "dtInsert", 1, 2e-6}, {spinWait, "txEnd", "jfs_create", 9, 1e-6},
		},
		LockSymbols: []LockSymbol{{"jfsTxnLock", 13, 5e-6}},
	}
	n := Result{Native: &NativeResult{}}
	for _, threads := range []int{1, 16} {
		n.Runs = append(n.Runs, Run{Disk: "10us", Load: Varmail, Threads: threads, Arrangement: JFSOne, Counts: c})
	}
	rows := n.placeTable(Varmail).Rows
	if len(rows) != 2 || strings.Join(rows[0], "|") != "jfsnvj, P = 1, 16|spin lock|txLock|diWrite 75 %, dtInsert 25 %|4000.0|4.00" || rows[1][2] != "txEnd" {
		t.Errorf("%q", rows)
	}
	if rows := n.symbolTable(Varmail).Rows; len(rows) != 1 || strings.Join(rows[0], "|") != "jfsnvj, P = 1, 16|jfsTxnLock|13000.0|5.00" {
		t.Errorf("%q", rows)
	}
	if rows := n.placeTable(Create).Rows; len(rows) != 0 {
		t.Errorf("create was not measured: %q", rows)
	}
}
