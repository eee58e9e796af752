package filesystems

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/daybook-project/daybook/internal/experiment/report"
)

// LockWait has the waits for a lock in an operation. A thread that spins waits, too.
type LockWait struct {
	Waits       float64 `json:"waits"`
	WaitSeconds float64 `json:"wait_seconds"`
}

// LockHold says how long locks of a kind were held in an operation.
type LockHold struct {
	Holds       float64 `json:"holds"`
	HoldSeconds float64 `json:"hold_seconds"`
	// LongestSeconds is the longest single hold in the run.
	LongestSeconds float64 `json:"longest_seconds"`
}

// engineLocks are the kinds of locks of ext4nvj's engine in its counters.
var engineLocks = []string{"block", "bucket", "list", "other"}

// heldLocks are those and the lock of the arrangements with one lock.
var heldLocks = append(slices.Clone(engineLocks), oneLock)

// oneLock is the lock around all code that uses the journal.
const oneLock = "one"

// holds returns the holds of an operation from the counters of a module that measures them.
func holds(before, after map[string]uint64, operations uint64) (map[string]LockHold, error) {
	if operations == 0 {
		return nil, errors.New("a run with measured locks did nothing")
	}
	all := make(map[string]LockHold)
	for _, kind := range heldLocks {
		var since [2]float64
		for n, name := range []string{"_lock_holds", "_lock_hold_ns"} {
			value, found := after[kind+name]
			if !found || value < before[kind+name] {
				return nil, fmt.Errorf("the module's counter %s is missing or has decreased", kind+name)
			}
			since[n] = float64(value-before[kind+name]) / float64(operations)
		}
		all[kind] = LockHold{Holds: since[0], HoldSeconds: since[1] / 1e9, LongestSeconds: float64(after[kind+"_lock_longest_ns"]) / 1e9}
	}
	return all, nil
}

// held calls run, and returns how long the module held its locks.
func (s *system) held(run func() (LoadResult, error)) (map[string]LockHold, error) {
	before, err := s.counters() // begins a new longest hold
	if err != nil {
		return nil, err
	}
	result, err := run()
	if err != nil {
		return nil, err
	}
	after, err := s.counters()
	if err != nil {
		return nil, err
	}
	return holds(before, after, result.Operations)
}

// completeHolds measures how long the module holds its locks, with each load on its first
// disk, in kernels of their own: the module that measures this is slower.
func (n Native) completeHolds(ctx context.Context, result *Result, progress func(line string)) error {
	arrangements := slices.DeleteFunc(result.arrangements(), func(a string) bool { return mountOptions(a) == "" })
	if len(arrangements) == 0 {
		return nil
	}
	for _, load := range result.loads() {
		disk := result.countedRuns(load)[0].Disk
		threads := result.threads(disk, load)
		c := Case{
			Disk: disk, Loads: []string{load}, Arrangements: arrangements, Threads: threads, Rounds: 1, Milliseconds: result.Milliseconds,
			CreateFiles: result.CreateFiles, CreateMilliseconds: result.CreateMilliseconds, Uncounted: true, Holds: true,
		}
		progress("how long locks are held: " + load)
		err := n.run(ctx, nativeCase{Case: c}, func(line nativeLine) {
			if line.Sample != nil {
				result.putHolds(disk, *line.Sample)
			}
		})
		if err != nil {
			return fmt.Errorf("how long locks are held: %w", err)
		}
	}
	return nil
}

// putHolds sets the holds of the run that the sample is of.
func (n *Result) putHolds(disk string, s Sample) {
	if run := n.run(disk, s.Load, s.Arrangement, s.Threads); run != nil {
		run.LockHolds = s.Holds
	}
}

// lockTable returns the waits for locks of ext4nvj's engine.
func (n Result) lockTable(load string) report.Table {
	t := report.Table{
		Columns: append([]string{"file system, threads"}, engineLocks...),
		Note: "How often a thread found a lock of the journal's engine taken, and in parentheses the µs that it waited, of a thousand operations: the lock of a **block**, of a **bucket** of the table of blocks, of a partition's **list**s (dirty blocks, free memory), and **other** ones. " +
			"The engine counts both, also if the thread only spins.",
	}
	if n.Native == nil {
		t.Note += " How long a lock is held is measured only natively."
	}
	runs := n.countedRuns(load)
	if len(runs) > 0 {
		t.Title = fmt.Sprintf("Waits for locks of the engine, of a thousand operations: %s, disk %s", load, runs[0].Disk)
	}
	for _, r := range runs {
		if r.Counts.EngineLocks == nil {
			continue
		}
		row := []string{r.title()}
		for _, kind := range engineLocks {
			w := r.Counts.EngineLocks[kind]
			row = append(row, fmt.Sprintf("%.2f (%.2f)", 1e3*w.Waits, 1e9*w.WaitSeconds))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// holdTable returns how long locks are held.
func (n Result) holdTable(load string) report.Table {
	t := report.Table{
		Columns: append([]string{"file system, threads"}, heldLocks...),
		Note: "How often locks of a kind were taken in an operation; in parentheses how long an operation held them together, and the longest single hold of the run, both in µs. **one** is the lock of the file systems with one lock, which is taken before the others. " +
			"This is from a run of its own with a module that was built for it (NVJ_LOCK_TIMES): for each hold it reads a counter of the processor twice, and this is part of the time. " +
			"The normal module has no code for it. A hold also lasts while the host runs another program on the processor. Locks of the kernel's own file system are not measured.",
	}
	runs := n.countedRuns(load)
	if len(runs) > 0 {
		t.Title = fmt.Sprintf("Locks of the engine held in an operation: %s, disk %s", load, runs[0].Disk)
	}
	for _, r := range runs {
		if r.LockHolds == nil {
			continue
		}
		row := []string{r.title()}
		for _, kind := range heldLocks {
			cell := "–"
			if h := r.LockHolds[kind]; h.Holds > 0 {
				cell = fmt.Sprintf("%.2f (%.3f; %.1f)", h.Holds, 1e6*h.HoldSeconds, 1e6*h.LongestSeconds)
			}
			row = append(row, cell)
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}
