package attribution

import (
	"context"
	"errors"
	"fmt"

	"github.com/daybook-project/daybook/internal/calibrate"
	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/experiment/report"
	"github.com/daybook-project/daybook/internal/workload"
)

// Bounds of the handles estimator's errors, as ratios.
const (
	// AloneBound is for a container alone, and for the sum of several.
	AloneBound = 0.01
	// TurnsBound is for each of several containers against the device's
	// count of its turns.
	TurnsBound = 0.02
	// OthersBound is for bytes that are attributed to none of the containers.
	OthersBound = 0.02
	// ChargedBound is for Daybook's charged bytes against the kernel's own
	// counters; BFQ's counters omit bios that were merged into queued
	// requests.
	ChargedBound = 0.01
	// UnaccountedBound is for the difference between the disk's count and the
	// sum of the lines.
	UnaccountedBound = 0.01
)

// Options configure the measurement.
type Options struct {
	// Calls of each operation, 100 or more.
	Calls int
	// CalibrationRuns of 1000 calls each (of Calls, if these are fewer)
	// measure the costs for the syscalls estimator, on the same file
	// system; 0 disables that estimator, and its figures are 0.
	CalibrationRuns int
	// Turns is the number of turns of each container.
	Turns int
	// Alone are the operations that a container does alone; nil means all that
	// need no special file system.
	Alone []string
	// Containers are the numbers of containers in the shared runs, 2 to 8.
	Containers []int
	// RestartExtents of 4 KiB, with holes between, are in the file whose
	// truncation restarts handles; RestartBytes follow them in one piece.
	RestartExtents int
	RestartBytes   int64
	// WholeDisk compares the account of a disk with the kernel's counters.
	WholeDisk bool
	// On are the devices to measure on; nil means simulated disks.
	On *Devices
}

// Full takes some minutes; Quick, for tests, half a one.
var (
	Full = Options{
		Calls: 10_000, CalibrationRuns: 10, Turns: 10, Containers: []int{2, 8}, RestartExtents: restartExtents, WholeDisk: true,
	}
	Quick = Options{
		Calls: 1000, CalibrationRuns: 1, Turns: 3, Containers: []int{2, 8}, RestartExtents: restartExtents, WholeDisk: true,
	}
)

func (o Options) check() error {
	if o.Calls < 100 || o.CalibrationRuns < 0 || o.Turns < 1 || o.RestartExtents < 1 || o.RestartBytes < 0 {
		return fmt.Errorf("the options measure too little: %+v", o)
	}
	for _, containers := range o.Containers {
		if containers < 2 || containers > len(mixes) {
			return fmt.Errorf("%d containers together: want 2 to %d", containers, len(mixes))
		}
	}
	return nil
}

// Result is the error of both estimators against the byte count of an
// external journal device.
type Result struct {
	// Alone: one container does one operation, and no other container runs.
	Alone []AloneRow `json:"alone"`
	// Shared: several containers, at once and in turns.
	Shared []SharedRun `json:"shared"`
	// Whole is the account of a disk, its journal on it, against the
	// kernel's own counters.
	Whole WholeDisk `json:"whole_disk"`
	// Costs are the syscalls estimator's, measured before.
	Costs []calibrate.Row `json:"costs"`
	Host  report.Host     `json:"host"`
}

// AloneRow is one operation. Errors are (estimate - truth) / truth.
type AloneRow struct {
	Operation     string  `json:"operation"`
	Calls         int64   `json:"calls"`
	TruthBytes    uint64  `json:"truth_bytes"`
	HandlesBytes  uint64  `json:"handles_bytes"`
	HandlesError  float64 `json:"handles_error"`
	SyscallsBytes uint64  `json:"syscalls_bytes"`
	SyscallsError float64 `json:"syscalls_error"`
	// OthersBytes is what the handles estimator attributed to others.
	OthersBytes  uint64 `json:"others_bytes"`
	Transactions uint64 `json:"transactions"`
	// Forced is the number of transactions that the container's syncs committed.
	Forced uint64 `json:"forced_commits"`
	// Restarts of handles; only counted for the large truncate.
	Restarts uint64 `json:"handle_restarts,omitempty"`
}

// SharedRun is several containers with different mixes of operations.
type SharedRun struct {
	// InTurns: one after the other with a commit between, so that each
	// transaction belongs to one container; else all at once.
	InTurns       bool    `json:"in_turns"`
	TruthBytes    uint64  `json:"truth_bytes"`
	HandlesBytes  uint64  `json:"handles_bytes"`
	HandlesError  float64 `json:"handles_error"`
	SyscallsBytes uint64  `json:"syscalls_bytes"`
	SyscallsError float64 `json:"syscalls_error"`
	OthersBytes   uint64  `json:"others_bytes"`
	OthersShare   float64 `json:"others_share"`
	Transactions  uint64  `json:"transactions"`
	Parts         []Part  `json:"containers"`
}

// Part is one container's result. Truth is only known in turns.
type Part struct {
	Name          string  `json:"name"`
	Mix           string  `json:"mix"`
	TruthBytes    uint64  `json:"truth_bytes,omitempty"`
	HandlesBytes  uint64  `json:"handles_bytes"`
	HandlesError  float64 `json:"handles_error,omitempty"`
	SyscallsBytes uint64  `json:"syscalls_bytes"`
	SyscallsError float64 `json:"syscalls_error,omitempty"`
	Forced        uint64  `json:"forced_commits"`
}

// WholeDisk compares Daybook's account of a disk with the kernel's counters.
type WholeDisk struct {
	// DiskBytes by /sys/block/DEV/stat, UnaccountedBytes what the sum of
	// all lines misses of it.
	DiskBytes        uint64           `json:"disk_bytes"`
	UnaccountedBytes int64            `json:"unaccounted_bytes"`
	Charged          []ChargedCompare `json:"charged"`
}

// ChargedCompare is one container's charged bytes by Daybook and by the file
// of its cgroup.
type ChargedCompare struct {
	Name             string `json:"name"`
	Mix              string `json:"mix"`
	ReadBytes        uint64 `json:"read_bytes"`
	KernelReadBytes  uint64 `json:"kernel_read_bytes"`
	WriteBytes       uint64 `json:"write_bytes"`
	KernelWriteBytes uint64 `json:"kernel_write_bytes"`
	// Counter is the kernel's file.
	Counter string `json:"counter"`
}

// relative is the error of an estimate; 0 of 0 is none.
func relative(estimate, truth uint64) float64 {
	if truth == 0 {
		if estimate == 0 {
			return 0
		}
		return 1
	}
	return (float64(estimate) - float64(truth)) / float64(truth)
}

const (
	diskBytes    = 16 << 30
	journalBytes = 256 << 20
)

// restartFileSystem is the file system of the large truncate. A handle restarts
// when its transaction, a quarter of the journal, is full: 512 blocks here. Block
// bitmaps fill it, so the file system has many small block groups.
var restartFileSystem = fixture.Options{SizeBytes: 2 << 30, ExternalJournal: true, JournalBytes: 2 << 20, GroupBlocks: 256}

// restartExtents of 4 blocks each are in some 700 block groups.
const restartExtents = 40_000

// Run measures the accuracy of the attribution.
func Run(ctx context.Context, l fixture.Lab, o Options) (a Result, err error) {
	if err := o.check(); err != nil {
		return a, err
	}
	a.Host = report.ThisHost()
	onStage := func(options fixture.Options, work func(*watch) error) error {
		w, err := openWatch(ctx, l, o, options)
		if err != nil {
			return err
		}
		return errors.Join(work(w), w.close())
	}
	external := fixture.Options{SizeBytes: diskBytes, ExternalJournal: true, JournalBytes: journalBytes}
	var costs calibrate.Table
	err = onStage(external, func(w *watch) error {
		var err error
		if o.CalibrationRuns > 0 {
			if costs, err = calibrateCosts(ctx, l, w, o); err != nil {
				return err
			}
		}
		if a.Alone, err = aloneRows(ctx, l, w, o); err != nil {
			return err
		}
		for _, containers := range o.Containers {
			for _, inTurns := range []bool{false, true} {
				run, err := sharedRun(ctx, l, w, containers, inTurns, o)
				if err != nil {
					return err
				}
				a.Shared = append(a.Shared, run)
			}
		}
		return nil
	})
	if err != nil {
		return a, err
	}
	a.Costs = costs.Rows
	err = onStage(restartFileSystem, func(w *watch) error {
		w.costs = costs.Costs()
		row, err := largeTruncate(ctx, l, w, o)
		a.Alone = append(a.Alone, row)
		return err
	})
	if err != nil {
		return a, err
	}
	if !o.WholeDisk {
		return a, nil
	}
	internal := fixture.Options{SizeBytes: diskBytes, JournalBytes: journalBytes}
	return a, onStage(internal, func(w *watch) (err error) {
		a.Whole, err = wholeDisk(ctx, l, w, o)
		return err
	})
}

// calibrateCosts measures the syscalls estimator's costs on the same file system.
func calibrateCosts(ctx context.Context, l fixture.Lab, w *watch, o Options) (calibrate.Table, error) {
	l.Say("calibrating the syscalls estimator")
	table, err := calibrate.Run(ctx, calibrate.Options{Dir: w.fileSystem.directory, Calls: min(1000, o.Calls), Runs: o.CalibrationRuns})
	w.costs = table.Costs()
	return table, err
}

// aloneOperations are the rows, Table 1's seven first.
var aloneOperations = []string{
	workload.Mkdir, workload.Creat, workload.Mknod, workload.Truncate, workload.Unlink, workload.Write, workload.Rmdir,
	workload.Rename, workload.Link, workload.Symlink, workload.Chmod, workload.Setxattr, workload.Fallocate,
	workload.AppendFsync, workload.Untar, workload.BufferedWrite,
}

// callsOf returns the number of calls of an operation: a sync logs more than
// a thousand calls of another one.
func callsOf(operation string, calls int) int {
	switch operation {
	case workload.AppendFsync:
		return max(100, calls/5)
	case workload.Untar:
		return max(100, calls*3/10)
	}
	return calls
}

func aloneRows(ctx context.Context, l fixture.Lab, w *watch, o Options) ([]AloneRow, error) {
	operations := o.Alone
	if operations == nil {
		operations = aloneOperations
	}
	var rows []AloneRow
	for n, operation := range operations {
		l.Say(fmt.Sprintf("alone: %s", operation))
		row, err := w.alone(ctx, fmt.Sprintf("alone-%02d", n), workload.Job{Operation: operation, Count: callsOf(operation, o.Calls)}, 0)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// Check returns an error for each exceeded bound, or nil.
func (a Result) Check() error {
	var errs []error
	hold := func(value, bound float64, format string, arguments ...any) {
		if !(value >= -bound && value <= bound) {
			errs = append(errs, fmt.Errorf("%s: %+.2f %%, want at most %g %%", fmt.Sprintf(format, arguments...), 100*value, 100*bound))
		}
	}
	for _, row := range a.Alone {
		hold(row.HandlesError, AloneBound, "%s alone", row.Operation)
	}
	for _, run := range a.Shared {
		hold(run.HandlesError, AloneBound, "%s", run.Title())
		hold(run.OthersShare, OthersBound, "%s: attributed to others", run.Title())
		for _, part := range run.Parts {
			if run.InTurns {
				hold(part.HandlesError, TurnsBound, "%s: container %s", run.Title(), part.Name)
			}
		}
	}
	for _, c := range a.Whole.Charged {
		hold(relative(c.ReadBytes, c.KernelReadBytes), ChargedBound, "container %s: charged reads against %s", c.Name, c.Counter)
		hold(relative(c.WriteBytes, c.KernelWriteBytes), ChargedBound, "container %s: charged writes against %s", c.Name, c.Counter)
	}
	hold(a.Whole.unaccounted(), UnaccountedBound, "unaccounted bytes of the disk")
	return errors.Join(errs...)
}

// Title returns a title of the run.
func (r SharedRun) Title() string {
	how := "at once"
	if r.InTurns {
		how = "in turns"
	}
	return fmt.Sprintf("%d containers %s", len(r.Parts), how)
}
