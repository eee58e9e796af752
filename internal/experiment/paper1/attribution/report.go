package attribution

import (
	"fmt"
	"strconv"

	"github.com/daybook-project/daybook/internal/experiment/report"
	"github.com/daybook-project/daybook/internal/figure"
)

// Report returns the accuracy as a report.
func (a Result) Report() (report.Report, error) {
	picture, err := a.accuracy().SVG()
	return report.Report{
		Title: "Accuracy of the attribution",
		Lead: []string{
			"Truth is the byte count of an external journal device (`/sys/block/DEV/stat`), on an ext4 of its own on a simulated " +
				"disk. Each container is a cgroup with a process in it; everything is written out before and after what is measured " +
				"(`syncfs` from outside of the containers). Both estimators watch the same run. The costs of the syscalls estimator " +
				"(paper 1) were measured just before, on the same file system, as `daybook calibrate` does.",
			"The handles estimator splits what jbd2 wrote for each transaction by the blocks that each cgroup was first to dirty in it. " +
				"The syscalls estimator multiplies calls by their costs: it knows neither what shares a block nor how often a commit, " +
				"such as one that an fsync forces, logs the same block again.",
		},
		Tables:  []report.Table{a.aloneTable(), a.sharedTable(), a.wholeTable()},
		Picture: picture,
		Host:    a.Host,
	}, err
}

func (a Result) aloneTable() report.Table {
	t := report.Table{
		Title:   "One container alone",
		Columns: []string{"operation", "calls", "truth, KiB", "handles, KiB", "error", "syscalls, KiB", "error", "others, KiB", "transactions", "forced"},
		Note: fmt.Sprintf("Bound for the handles estimator: %g %%. \"others\" is what it left in other names than the container's, "+
			"\"forced\" how many transactions the container's own syncs began.", 100*AloneBound),
	}
	for _, r := range a.Alone {
		name := r.Operation
		if r.Restarts > 0 {
			t.Note += fmt.Sprintf(" The large truncate frees a file of %d extents on a file system with a small journal, "+
				"so that jbd2 restarts its handle.", r.Calls)
			name += fmt.Sprintf(" (restarts: %d)", r.Restarts)
		}
		t.Rows = append(t.Rows, []string{name, strconv.FormatInt(r.Calls, 10), report.Kibibytes(r.TruthBytes),
			report.Kibibytes(r.HandlesBytes), report.Percentage(r.HandlesError), report.Kibibytes(r.SyscallsBytes), report.Percentage(r.SyscallsError),
			report.Kibibytes(r.OthersBytes), strconv.FormatUint(r.Transactions, 10), strconv.FormatUint(r.Forced, 10)})
	}
	return t
}

func (a Result) sharedTable() report.Table {
	t := report.Table{
		Title:   "Several containers",
		Columns: []string{"containers", "truth, KiB", "handles, KiB", "error", "syscalls, KiB", "error", "others", "transactions", "forced"},
		Note: fmt.Sprintf("Bounds: %g %% for the sum, %g %% for what is left in other names, and in turns %g %% for each container. "+
			"In turns there is a commit between any two, so that every transaction belongs to one container and what the device "+
			"counted meanwhile is a truth that needs no rule; at once only the sum has one. Where handles count "+
			"less, a container found the journal full: it checkpointed the others' transactions, and with each of them wrote the "+
			"journal's superblock, which the device counts and no transaction does.", 100*AloneBound, 100*OthersBound, 100*TurnsBound),
	}
	for _, run := range a.Shared {
		var forced uint64
		for _, p := range run.Parts {
			forced += p.Forced
		}
		t.Rows = append(t.Rows, []string{run.Title(), report.Kibibytes(run.TruthBytes), report.Kibibytes(run.HandlesBytes), report.Percentage(run.HandlesError),
			report.Kibibytes(run.SyscallsBytes), report.Percentage(run.SyscallsError), report.Percentage(run.OthersShare),
			strconv.FormatUint(run.Transactions, 10), strconv.FormatUint(forced, 10)})
		for _, p := range run.Parts {
			truth, handles, syscalls := "", "", ""
			if run.InTurns {
				truth, handles, syscalls = report.Kibibytes(p.TruthBytes), report.Percentage(p.HandlesError), report.Percentage(p.SyscallsError)
			}
			t.Rows = append(t.Rows, []string{p.Name + ": " + p.Mix, truth, report.Kibibytes(p.HandlesBytes), handles,
				report.Kibibytes(p.SyscallsBytes), syscalls, "", "", strconv.FormatUint(p.Forced, 10)})
		}
	}
	return t
}

func (a Result) wholeTable() report.Table {
	t := report.Table{
		Title:   "Charged bytes against the kernel's counters",
		Columns: []string{"container", "read, KiB", "kernel, KiB", "error", "written, KiB", "kernel, KiB", "error"},
		Note: fmt.Sprintf("The journal on the disk itself. Of the disk's %s KiB, %s KiB (%s) are missing from the sum of all lines; "+
			"bound: %g %%.", report.Kibibytes(a.Whole.DiskBytes), strconv.FormatFloat(float64(a.Whole.UnaccountedBytes)/1024, 'f', 1, 64),
			report.Percentage(a.Whole.unaccounted()), 100*UnaccountedBound),
	}
	for _, c := range a.Whole.Charged {
		t.Note += fmt.Sprintf(" %s: `%s`.", c.Name, c.Counter)
		t.Rows = append(t.Rows, []string{c.Name + ": " + c.Mix,
			report.Kibibytes(c.ReadBytes), report.Kibibytes(c.KernelReadBytes), report.Percentage(relative(c.ReadBytes, c.KernelReadBytes)),
			report.Kibibytes(c.WriteBytes), report.Kibibytes(c.KernelWriteBytes), report.Percentage(relative(c.WriteBytes, c.KernelWriteBytes))})
	}
	return t
}

func (w WholeDisk) unaccounted() float64 {
	return float64(w.UnaccountedBytes) / float64(max(1, w.DiskBytes))
}

// accuracy returns the picture, with every row for which the truth is known.
func (a Result) accuracy() figure.Accuracy {
	picture := figure.Accuracy{
		Note:  fmt.Sprintf("truth: the byte count of an external journal device; Linux %s", a.Host.Kernel),
		Limit: AloneBound,
	}
	for _, r := range a.Alone {
		picture.Rows = append(picture.Rows, figure.AccuracyRow{Operation: r.Operation, Handles: r.HandlesError, Syscalls: r.SyscallsError})
	}
	for _, run := range a.Shared {
		picture.Rows = append(picture.Rows, figure.AccuracyRow{Operation: run.Title(), Handles: run.HandlesError, Syscalls: run.SyscallsError})
		for _, p := range run.Parts {
			if run.InTurns && len(run.Parts) > 2 {
				picture.Rows = append(picture.Rows, figure.AccuracyRow{
					Operation: p.Name + " in turns: " + p.Mix, Handles: p.HandlesError, Syscalls: p.SyscallsError,
				})
			}
		}
	}
	return picture
}
