package calibrate

import (
	"math"
	"time"

	"github.com/daybook-project/daybook/internal/journal"
)

// Table is the result of a calibration.
type Table struct {
	// Version is the version of the format; FormatVersion.
	Version int `json:"daybook_calibration"`
	// Time is when it ended.
	Time time.Time `json:"time"`
	// Kernel is the release, as uname gives it.
	Kernel     string     `json:"kernel"`
	FileSystem FileSystem `json:"file_system"`
	Rows       []Row      `json:"rows"`
	// Warnings list reasons to doubt the figures; usually none.
	Warnings []string `json:"warnings"`
}

// FileSystem is the measured file system.
type FileSystem struct {
	// UUID is that of the superblock; "" if it has none, or it cannot be read.
	UUID string `json:"uuid"`
	// Dev is "major:minor".
	Dev string `json:"dev"`
	// MountPoint is where it was mounted during the measurement.
	MountPoint string `json:"mount_point"`
	BlockBytes uint32 `json:"block_bytes"`
}

// Row is the cost of one operation, as a row of Table 1.
type Row struct {
	// Operation is one of journal.Operations.
	Operation string `json:"operation"`
	// Calls is the number of calls in each run, each on another file.
	Calls int `json:"calls"`
	// Runs is the number of runs behind the mean.
	Runs int `json:"runs"`
	// MeanKiB and StddevKiB are the bytes that reached the journal in one run
	// of Calls calls, in KiB.
	MeanKiB   float64 `json:"mean_kib"`
	StddevKiB float64 `json:"stddev_kib"`
	// CV is the coefficient of variation, StddevKiB over MeanKiB.
	CV float64 `json:"cv"`
	// DisturbedRuns is the number of runs that include journal blocks of
	// others.
	DisturbedRuns int `json:"disturbed_runs"`
}

const kib = 1024

// BytesPerCall is the row's mean for one call.
func (r Row) BytesPerCall() float64 { return r.MeanKiB * kib / float64(r.Calls) }

// Costs returns the bytes per call of each operation.
func (t Table) Costs() journal.Costs {
	costs := make(journal.Costs, len(t.Rows))
	for _, row := range t.Rows {
		costs[row.Operation] = row.BytesPerCall()
	}
	return costs
}

// newRow makes a row from the bytes of each run. The standard deviation is
// the sample's (n-1); 0 for a single run.
func newRow(operation string, calls int, runs []measurement) Row {
	row := Row{Operation: operation, Calls: calls, Runs: len(runs)}
	var sum, squares float64
	for _, run := range runs {
		sum += float64(run.bytes) / kib
		if run.disturbed() {
			row.DisturbedRuns++
		}
	}
	row.MeanKiB = sum / float64(len(runs))
	for _, run := range runs {
		difference := float64(run.bytes)/kib - row.MeanKiB
		squares += difference * difference
	}
	if len(runs) > 1 {
		row.StddevKiB = math.Sqrt(squares / float64(len(runs)-1))
	}
	if row.MeanKiB > 0 {
		row.CV = row.StddevKiB / row.MeanKiB
	}
	return row
}

// Paper is Table 1 of paper 1: 1000 calls, 10 runs, Linux 4.4, ext4 in ordered
// mode with its journal on a partition of its own.
func Paper() []Row {
	return []Row{
		{Operation: journal.OperationMkdir, Calls: 1000, Runs: 10, MeanKiB: 4442.4, StddevKiB: 47.5, CV: 0.011},
		{Operation: journal.OperationCreat, Calls: 1000, Runs: 10, MeanKiB: 323.6, StddevKiB: 14.6, CV: 0.045},
		{Operation: journal.OperationMknod, Calls: 1000, Runs: 10, MeanKiB: 318.8, StddevKiB: 12.7, CV: 0.040},
		{Operation: journal.OperationTruncate, Calls: 1000, Runs: 10, MeanKiB: 261.2, StddevKiB: 2.6, CV: 0.010},
		{Operation: journal.OperationUnlink, Calls: 1000, Runs: 10, MeanKiB: 296.0},
		{Operation: journal.OperationWrite, Calls: 1000, Runs: 10, MeanKiB: 268.0},
		{Operation: journal.OperationRmdir, Calls: 1000, Runs: 10, MeanKiB: 327.6, StddevKiB: 4.4, CV: 0.013},
	}
}
