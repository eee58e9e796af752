package filesystems

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/daybook-project/daybook/internal/experiment/report"
)

// WaitSite is a function of the kernel that waits for a lock, or sleeps without interruption
// by signals, and a function that called it.
type WaitSite struct {
	Kind     string `json:"kind"`
	Function string `json:"function"`
	Caller   string `json:"caller"`
	// Waits is the number of waits in an operation. A mutex for which a thread spins first
	// and then sleeps counts twice, as in the kernel's tracepoint.
	Waits float64 `json:"waits"`
	// WaitSeconds is how long an operation waits.
	WaitSeconds float64 `json:"wait_seconds"`
}

// LockSymbol is a lock that is a variable of the kernel or a module.
type LockSymbol struct {
	Symbol      string  `json:"symbol"`
	Waits       float64 `json:"waits"`
	WaitSeconds float64 `json:"wait_seconds"`
}

// The kinds of waits.
const (
	spinWait  = "spin lock"
	queueWait = "wait queue" // the spin lock of a list of sleeping threads
	mutexWait = "mutex"
	readWait  = "rwsem, to read"
	writeWait = "rwsem, to write"
	sleepWait = "sleep"
)

// waitFunctions are the beginnings of the names of functions that implement waits, and the
// kind of the wait; "" if they do not say which. The longest counts.
var waitFunctions = map[string]string{
	"queued_": spinWait, "native_queued_": spinWait, "_raw_": spinWait, "do_raw_": spinWait,
	"__wake_up": queueWait, "wake_up": queueWait, "try_to_wake_up": queueWait, "add_wait_queue": queueWait, "remove_wait_queue": queueWait,
	"prepare_to_wait": queueWait, "finish_wait": queueWait, "default_wake_function": queueWait, "autoremove_wake_function": queueWait,
	"mutex_": mutexWait, "__mutex_": mutexWait,
	"rwsem_down_read": readWait, "down_read": readWait, "__down_read": readWait,
	"rwsem_down_write": writeWait, "down_write": writeWait, "__down_write": writeWait,
	"__schedule": sleepWait, "schedule": sleepWait, "io_schedule": sleepWait,
	"percpu_": "", "__percpu_": "", "wait_for_completion": "", "__wait_for_common": "", "bit_wait": "", "__wait_on_bit": "", "out_of_line_wait_on_bit": "",
	"save_stack_trace": "", "stack_trace_save": "", "trace_": "", "__traceiter_": "", "event_": "",
}

// loadFunctions are those in which a thread of the load waits for its own start.
var loadFunctions = []string{"work", "kthread"}

// waitKind returns the kind of wait that a function implements, if it does.
func waitKind(function string) (kind string, is bool) {
	longest := -1
	for beginning, k := range waitFunctions {
		if strings.HasPrefix(function, beginning) && len(beginning) > longest {
			longest, kind, is = len(beginning), k, true
		}
	}
	return kind, is
}

// functionsOf returns the functions of a stack, the innermost first, without what the compiler
// has added to the names.
func functionsOf(stack string) (all []string) {
	for line := range strings.Lines(stack) {
		// The name of the key is before the first function, on the same line or on one before.
		for _, word := range strings.Fields(line) {
			name, _, found := strings.Cut(word, "+0x")
			if !found {
				continue
			}
			name, _, _ = strings.Cut(name, ".")
			all = append(all, name)
		}
	}
	return all
}

// siteOf returns the place of a wait from a thread's stack.
func siteOf(stack string) (s WaitSite) {
	functions := functionsOf(stack)
	for n, f := range functions {
		kind, is := waitKind(f)
		if !is {
			s.Function = f
			if n+1 < len(functions) {
				s.Caller = functions[n+1]
			}
			break
		}
		// A sleep is for the lock whose functions called it; the lock of a wait queue is
		// taken by the functions of wait queues.
		if kind != "" && (s.Kind == "" || s.Kind == sleepWait || kind == queueWait) {
			s.Kind = kind
		}
	}
	s.Kind = cmp.Or(s.Kind, sleepWait)
	return s
}

// waitSites adds up waits by place, if they have a function of a module in their stack: the load
// and the file systems are modules. begins and sleeps are of all threads, timed of one of them.
func waitSites(begins, sleeps, timed, timedSleeps []histogramEntry, threads int, operations uint64) []WaitSite {
	sums := make(map[WaitSite]WaitSite)
	add := func(entries []histogramEntry, isSleep bool, waits, seconds func(histogramEntry) float64) {
		for _, e := range entries {
			at := siteOf(e.keys)
			switch {
			case isSleep && at.Kind != sleepWait: // the tracepoint of locks has counted it, too
				continue
			case slices.Contains(loadFunctions, at.Function) || !strings.Contains(e.keys, " ["):
				continue
			}
			sum := sums[at]
			sum.Waits += waits(e) / float64(operations)
			sum.WaitSeconds += seconds(e) / float64(operations)
			sums[at] = sum
		}
	}
	none := func(histogramEntry) float64 { return 0 }
	hits := func(e histogramEntry) float64 { return float64(e.sums["hitcount"]) }
	add(begins, false, hits, none)
	add(sleeps, true, hits, none)
	seconds := func(e histogramEntry) float64 { return float64(e.sums["ns"]) / 1e9 * float64(threads) }
	add(timed, false, none, seconds)
	add(timedSleeps, true, none, seconds)
	var all []WaitSite
	for at, sum := range sums {
		at.Waits, at.WaitSeconds = sum.Waits, sum.WaitSeconds
		all = append(all, at)
	}
	slices.SortFunc(all, func(a, b WaitSite) int {
		return cmp.Or(cmp.Compare(b.WaitSeconds, a.WaitSeconds), cmp.Compare(b.Waits, a.Waits),
			cmp.Compare(a.Kind+a.Function+a.Caller, b.Kind+b.Function+b.Caller))
	})
	return all
}

// lockSymbols adds up the waits of one thread for locks that have a name; others are in
// objects.
func lockSymbols(timed []histogramEntry, threads int, operations uint64) (all []LockSymbol) {
	for _, e := range timed {
		_, text, _ := strings.Cut(e.key("lock"), "] ")
		symbol, offset, named := strings.Cut(strings.TrimSpace(text), "+")
		if !named {
			continue
		}
		if offset, _, _ = strings.Cut(offset, "/"); offset != "0x0" {
			symbol += "+" + offset
		}
		scale := float64(threads) / float64(operations)
		all = append(all, LockSymbol{Symbol: symbol, Waits: float64(e.sums["hitcount"]) * scale, WaitSeconds: float64(e.sums["ns"]) / 1e9 * scale})
	}
	slices.SortFunc(all, func(a, b LockSymbol) int {
		return cmp.Or(cmp.Compare(b.WaitSeconds, a.WaitSeconds), cmp.Compare(a.Symbol, b.Symbol))
	})
	return all
}

// place is all waits of one kind in one function.
type place struct {
	kind, function string
	waits, seconds float64
	// callers have the most waits of the place, with their share.
	callers []string
}

// places are the waits of a run by function, the longest first.
func (c Counts) places() (all []place) {
	by := make(map[[2]string][]WaitSite)
	for _, s := range c.WaitSites {
		key := [2]string{s.Kind, s.Function}
		by[key] = append(by[key], s)
	}
	for key, sites := range by {
		p := place{kind: key[0], function: key[1]}
		for _, s := range sites {
			p.waits += s.Waits
			p.seconds += s.WaitSeconds
		}
		slices.SortFunc(sites, func(a, b WaitSite) int {
			return cmp.Or(cmp.Compare(b.Waits, a.Waits), cmp.Compare(a.Caller, b.Caller))
		})
		for n, s := range sites {
			if share := s.Waits / p.waits; n < mostCallers && share >= 0.05 {
				p.callers = append(p.callers, fmt.Sprintf("%s %.0f %%", s.Caller, 100*share))
			}
		}
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b place) int {
		return cmp.Or(cmp.Compare(b.seconds, a.seconds), cmp.Compare(b.waits, a.waits), cmp.Compare(a.kind+a.function, b.kind+b.function))
	})
	return all
}

const (
	mostCallers = 3
	// mostPlaces and mostLocks limit the rows of a run in a table. Longer waits come first.
	mostPlaces, mostLocks = 10, 6
)

// timedRuns are the runs with the most threads whose waits were timed.
func (n Result) timedRuns(load string) []Run {
	runs := n.countedRuns(load)
	most := 0
	for _, r := range runs {
		most = max(most, r.Threads)
	}
	return slices.DeleteFunc(runs, func(r Run) bool { return r.Threads < most || r.Counts.WaitSites == nil })
}

// placeTable returns where in the kernel threads wait.
func (n Result) placeTable(load string) report.Table {
	t := report.Table{
		Columns: []string{"file system, threads", "for", "in", "called by", "waits", "µs"},
		Note: fmt.Sprintf("Where in the kernel threads wait, in the journal and outside of it: the function that asks for the lock, or sleeps without interruption by signals, and up to %d functions that call it, with their share of these waits. For each run the %d places with the longest waits. ", mostCallers, mostPlaces) +
			"**waits** are those of a thousand operations, of all threads, as lock:contention_begin and sched:sched_switch count them. Of a **spin lock** they do not count the first thread that waits, only those behind it. A **mutex** counts each time that a thread begins to spin, and each time that it begins to sleep. A **sleep** for a lock is not counted again. " +
			"**µs** is how long an operation waits. It is measured of one thread, and with the stacks that it takes meanwhile; the same limits hold.",
	}
	for _, r := range n.timedRuns(load) {
		t.Title = fmt.Sprintf("Where threads wait: %s, disk %s", load, r.Disk)
		for k, p := range r.Counts.places() {
			if k == mostPlaces {
				break
			}
			t.Rows = append(t.Rows, []string{r.title(), p.kind, p.function, strings.Join(p.callers, ", "), fmt.Sprintf("%.1f", 1e3*p.waits), fmt.Sprintf("%.2f", 1e6*p.seconds)})
		}
	}
	return t
}

// symbolTable returns the locks with a name for which threads wait.
func (n Result) symbolTable(load string) report.Table {
	t := report.Table{
		Columns: []string{"file system, threads", "lock", "waits", "µs"},
		Note: fmt.Sprintf("The locks that are variables of the kernel or a module, as the table before, from one thread's waits; others are in objects, and have no name. For each run the %d locks with the longest waits. ", mostLocks) +
			"jfsTxnLock is JFS's lock for all its transactions and all their locks of pages, TxAnchor has the lists of all transactions and the lock of those that are to be ended.",
	}
	for _, r := range n.timedRuns(load) {
		t.Title = fmt.Sprintf("Locks with a name: %s, disk %s", load, r.Disk)
		for k, s := range r.Counts.LockSymbols {
			if k == mostLocks {
				break
			}
			t.Rows = append(t.Rows, []string{r.title(), s.Symbol, fmt.Sprintf("%.1f", 1e3*s.Waits), fmt.Sprintf("%.2f", 1e6*s.WaitSeconds)})
		}
	}
	return t
}
