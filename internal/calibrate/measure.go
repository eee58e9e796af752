package calibrate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/journal"
	"github.com/daybook-project/daybook/internal/kernel"
	"github.com/daybook-project/daybook/internal/safetext"
	"github.com/daybook-project/daybook/internal/workload"
)

// Options of a calibration.
type Options struct {
	// Dir is a directory on the file system to measure.
	Dir string
	// Calls in each run, 1 to MaxCalls; the paper made 1000.
	Calls int
	// Runs of each operation, 1 to MaxRuns; the paper made 10.
	Runs int
	// Progress is called before each run with the number of finished runs and
	// of all runs.
	Progress func(operation string, done, total int)
}

// Bounds of the options. A directory of an ext4 without the feature dir_nlink
// can have 65,000 subdirectories.
const (
	MaxCalls = 50000
	MaxRuns  = 1000
)

// Check rejects options that are out of range.
func (o Options) Check() error {
	if o.Calls < 1 || o.Calls > MaxCalls {
		return fmt.Errorf("%d calls: want 1 to %d", o.Calls, MaxCalls)
	}
	if o.Runs < 1 || o.Runs > MaxRuns {
		return fmt.Errorf("%d runs: want 1 to %d", o.Runs, MaxRuns)
	}
	return nil
}

// extraRuns limits the repetitions of disturbed runs for each operation: beyond
// it, the file system is too busy.
const extraRuns = 5

// Run measures each operation. It needs root and the requirements of
// journal.Open; errors about the directory wrap ErrUnsuitable. It removes its
// files, also when the context ends.
func Run(ctx context.Context, options Options) (table Table, err error) {
	if err := options.Check(); err != nil {
		return Table{}, err
	}
	if os.Geteuid() != 0 {
		return Table{}, fmt.Errorf("%w: calibrating needs root; try: sudo daybook calibrate %s", journal.ErrUnsupported, safetext.Word(options.Dir))
	}
	target, err := inspect(options.Dir)
	if err != nil {
		return Table{}, err
	}
	if err := checkRoom(options.Dir, options.Calls); err != nil {
		return Table{}, err
	}
	s, err := open(target, options.Dir)
	if err != nil {
		return Table{}, err
	}
	defer func() { err = errors.Join(err, s.close()) }()

	table = Table{Version: FormatVersion, Kernel: kernel.Release(), FileSystem: target.FileSystem, Warnings: []string{}}
	operations := journal.Operations()
	for i, operation := range operations {
		progress := func(done int) {
			if options.Progress != nil {
				options.Progress(operation, i*options.Runs+done, len(operations)*options.Runs)
			}
		}
		row, err := s.row(ctx, operation, options, progress)
		if err != nil {
			return Table{}, err
		}
		table.Rows = append(table.Rows, row)
	}
	table.Time = time.Now().UTC().Truncate(time.Second)
	table.Warnings = append(table.Warnings, warnings(table, target)...)
	return table, nil
}

func warnings(table Table, target target) []string {
	var out []string
	for _, row := range table.Rows {
		if row.DisturbedRuns > 0 {
			out = append(out, fmt.Sprintf("%s: others wrote to the same journal during %d of %d runs; "+
				"its cost is too high by their part. Calibrate when the file system is quiet.",
				row.Operation, row.DisturbedRuns, row.Runs))
		}
	}
	if target.dataJournaled {
		out = append(out, "the file system is mounted with data=journal: the data of a write goes through the journal too, "+
			fmt.Sprintf("so that its cost depends on its length. The row of write is for %d bytes.", workload.FileBytes))
	}
	return out
}

// row measures one operation.
func (s *session) row(ctx context.Context, operation string, options Options, progress func(done int)) (Row, error) {
	var clean, disturbed []measurement
	for attempt := 0; len(clean) < options.Runs && attempt < options.Runs+extraRuns; attempt++ {
		progress(len(clean))
		run, err := s.run(ctx, operation, options.Calls)
		if err != nil {
			if ctx.Err() != nil {
				return Row{}, ctx.Err()
			}
			return Row{}, fmt.Errorf("cannot measure %s in %s: %w", operation, s.work.parent.Name(), err)
		}
		if run.disturbed() {
			disturbed = append(disturbed, run)
		} else {
			clean = append(clean, run)
		}
	}
	if missing := options.Runs - len(clean); missing > 0 {
		clean = append(clean, disturbed[:missing]...)
	}
	return newRow(operation, options.Calls, clean), nil
}

// measurement is the result of one run.
type measurement struct {
	// bytes reached the journal.
	bytes uint64
	// others is the number of its blocks that other cgroups dirtied.
	others int64
	// lost is the number of lost events: bytes may be too low.
	lost uint64
}

func (m measurement) disturbed() bool { return m.others > 0 || m.lost > 0 }

// session is one running calibration.
type session struct {
	target
	probe *journal.Probe
	work  *workDir
	// ours is our own cgroup.
	ours uint64
}

func open(target target, dir string) (*session, error) {
	ours, err := ownCgroup()
	if err != nil {
		return nil, err
	}
	probe, err := journal.Open()
	if err != nil {
		return nil, err
	}
	work, err := openWorkDir(dir)
	if err != nil {
		return nil, errors.Join(err, probe.Close())
	}
	return &session{target: target, probe: probe, work: work, ours: ours}, nil
}

func (s *session) close() error { return errors.Join(s.work.close(), s.probe.Close()) }

// run makes the calls in a fresh directory and measures them.
func (s *session) run(ctx context.Context, operation string, calls int) (m measurement, err error) {
	job := workload.Job{Operation: operation, In: filepath.Join(s.work.path(), "run"), Count: calls}
	defer func() { err = errors.Join(err, withoutPath(os.RemoveAll(job.In))) }()
	if err := workload.Prepare(ctx, job); err != nil {
		return m, withoutPath(err)
	}
	return s.measure(func() error {
		_, err := workload.Do(ctx, job)
		return withoutPath(err)
	})
}

// measure returns the bytes that the work causes in the journal. It commits all
// earlier changes before, and the changes of the work at the end.
func (s *session) measure(work func() error) (m measurement, err error) {
	if _, err := s.commit(); err != nil {
		return m, err
	}
	if err := work(); err != nil {
		return m, err
	}
	events, err := s.commit()
	if err != nil {
		return m, err
	}
	m.lost = events.Lost
	for _, commit := range events.Commits {
		if commit.Dev != s.dev.Kernel() {
			continue
		}
		m.bytes += s.logged(commit)
		for cgroup, blocks := range commit.Dirtied {
			if cgroup != s.ours && blocks > 0 {
				m.others += blocks
			}
		}
	}
	return m, nil
}

// logged is the number of bytes of a commit that reached the journal. With
// data=journal, there are kernels on which the writes of the jbd2 thread cannot be
// distinguished from file data (docs/limits.md). jbd2's own count is used then, which lacks
// only revoke blocks and the journal's superblock.
func (s *session) logged(commit journal.Commit) uint64 {
	if s.dataJournaled || commit.JournalBytes == 0 {
		return uint64(commit.BlocksLogged) * uint64(s.BlockBytes)
	}
	return commit.JournalBytes
}

// commit commits all changes of the file system and returns what the probe saw
// since its last call. jbd2 reports a commit before it wakes the waiting
// processes.
func (s *session) commit() (journal.Events, error) {
	if err := unix.Syncfs(int(s.work.file.Fd())); err != nil {
		return journal.Events{}, fmt.Errorf("cannot sync %s: %w", s.MountPoint, err)
	}
	return s.probe.Collect()
}
