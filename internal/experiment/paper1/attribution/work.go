package attribution

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/journal"
	"github.com/daybook-project/daybook/internal/meter"
	"github.com/daybook-project/daybook/internal/workload"
)

// alone runs one job in one container, on files that are moreBytes longer than
// the prepared ones.
func (w *watch) alone(ctx context.Context, name string, job workload.Job, moreBytes int64) (row AloneRow, err error) {
	c, err := w.container(name)
	if err != nil {
		return row, err
	}
	job.In = c.directory
	jobs := []workload.Job{job}
	if _, err := w.do(ctx, c, workload.Spec{Jobs: jobs, Prepare: true}); err != nil {
		return row, err
	}
	if err := lengthen(c.directory, moreBytes); err != nil {
		return row, err
	}
	var done workload.Result
	s, err := w.see(ctx, func() (err error) {
		done, err = w.do(ctx, c, workload.Spec{Jobs: jobs})
		return err
	})
	if err != nil {
		return row, err
	}
	if s.truthBytes == 0 {
		return row, fmt.Errorf("%s: nothing reached the journal", job.Operation)
	}
	line := s.line(c)
	row = AloneRow{
		Operation: job.Operation, Calls: done.Calls, TruthBytes: s.truthBytes,
		HandlesBytes: line.JournalBytes, HandlesError: relative(line.JournalBytes, s.truthBytes),
		OthersBytes:  s.device.JournalBytes - line.JournalBytes,
		Transactions: s.device.Transactions, Forced: line.ForcedCommits,
	}
	if w.calls != nil {
		row.SyscallsBytes = s.syscalls[c.id]
		row.SyscallsError = relative(row.SyscallsBytes, s.truthBytes)
	}
	return row, nil
}

// lengthen allocates bytes after the end of each file of a directory.
func lengthen(directory string, bytes int64) error {
	if bytes == 0 {
		return nil
	}
	entries, err := os.ReadDir(directory)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		f, err := os.OpenFile(filepath.Join(directory, entry.Name()), os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		info, err := f.Stat()
		if err == nil {
			err = unix.Fallocate(int(f.Fd()), 0, info.Size(), bytes)
		}
		if err := errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("cannot allocate %d bytes for %s: %w", bytes, f.Name(), err)
		}
	}
	return nil
}

// largeTruncate is alone with a count of the handles that restarted.
func largeTruncate(ctx context.Context, l fixture.Lab, w *watch, o Options) (row AloneRow, err error) {
	l.Say("alone: " + workload.LargeTruncate)
	counting, err := journal.CountPrograms()
	if err != nil {
		return row, err
	}
	defer func() { err = errors.Join(err, counting.Close()) }()
	before, err := restarts(w.meter)
	if err != nil {
		return row, err
	}
	if row, err = w.alone(ctx, "truncate", workload.Job{Operation: workload.LargeTruncate, Count: o.RestartExtents}, o.RestartBytes); err != nil {
		return row, err
	}
	after, err := restarts(w.meter)
	if err != nil {
		return row, err
	}
	if row.Restarts = after - before; row.Restarts == 0 {
		return row, fmt.Errorf("truncating a file of %d extents and %d bytes restarted no handle; use more extents or bytes", o.RestartExtents, o.RestartBytes)
	}
	return row, nil
}

// restartProgram runs once for each jbd2_handle_restart on the host.
const restartProgram = "handle_restart"

func restarts(m *meter.Meter) (uint64, error) {
	programs, err := m.Statistics()
	if err != nil {
		return 0, err
	}
	for _, program := range programs {
		if program.Program == restartProgram {
			return program.Runs, nil
		}
	}
	return 0, fmt.Errorf("no BPF program %s is attached, so restarts of handles are unknown", restartProgram)
}

// mixes are the operations of the containers in shared runs.
var mixes = [][]string{
	{workload.Mkdir, workload.Rename, workload.Rmdir},
	{workload.Creat, workload.AppendFsync},
	{workload.BufferedWrite, workload.Truncate},
	{workload.Untar},
	{workload.Chmod, workload.Setxattr},
	{workload.Link, workload.Unlink},
	{workload.Fallocate, workload.Append},
	{workload.Mknod, workload.Symlink, workload.CreatUnlink},
}

// round returns one round of a container's mix, in new directories.
func (c container) round(mix []string, round, calls int) []workload.Job {
	var jobs []workload.Job
	for n, operation := range mix {
		jobs = append(jobs, workload.Job{
			Operation: operation, Count: callsOf(operation, calls),
			In: filepath.Join(c.directory, fmt.Sprintf("%d-%d", round, n)),
		})
	}
	return jobs
}

// sharedRun runs several containers, at once or in turns.
func sharedRun(ctx context.Context, l fixture.Lab, w *watch, containers int, inTurns bool, o Options) (run SharedRun, err error) {
	run.InTurns = inTurns
	run.Parts = make([]Part, containers)
	l.Say(run.Title())
	calls := max(100, o.Calls/o.Turns)
	all := make([]container, containers)
	jobs := make([][]workload.Job, containers)
	for n := range all {
		name := fmt.Sprintf("%s%d-%d", map[bool]string{false: "once", true: "turns"}[inTurns], containers, n)
		if all[n], err = w.container(name); err != nil {
			return run, err
		}
		run.Parts[n] = Part{Name: string(rune('A' + n)), Mix: strings.Join(mixes[n], ", ")}
		for round := range o.Turns {
			jobs[n] = append(jobs[n], all[n].round(mixes[n], round, calls)...)
		}
		if _, err := w.do(ctx, all[n], workload.Spec{Jobs: jobs[n], Prepare: true}); err != nil {
			return run, err
		}
	}
	s, err := w.see(ctx, func() error {
		if inTurns {
			return w.takeTurns(ctx, all, &run, calls, o.Turns)
		}
		return w.atOnce(ctx, all, jobs)
	})
	if err != nil {
		return run, err
	}
	run.TruthBytes, run.Transactions = s.truthBytes, s.device.Transactions
	for n := range run.Parts {
		part, line := &run.Parts[n], s.line(all[n])
		part.HandlesBytes, part.Forced = line.JournalBytes, line.ForcedCommits
		part.SyscallsBytes = s.syscalls[all[n].id]
		if inTurns {
			part.HandlesError = relative(part.HandlesBytes, part.TruthBytes)
		}
		if inTurns && w.calls != nil {
			part.SyscallsError = relative(part.SyscallsBytes, part.TruthBytes)
		}
		run.HandlesBytes += part.HandlesBytes
		run.SyscallsBytes += part.SyscallsBytes
	}
	run.OthersBytes = s.device.JournalBytes - run.HandlesBytes
	run.OthersShare = float64(run.OthersBytes) / float64(max(1, run.TruthBytes))
	run.HandlesError = relative(run.HandlesBytes, run.TruthBytes)
	if w.calls != nil {
		run.SyscallsError = relative(run.SyscallsBytes, run.TruthBytes)
	}
	return run, nil
}

// atOnce runs the jobs of all containers concurrently.
func (w *watch) atOnce(ctx context.Context, all []container, jobs [][]workload.Job) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var loads []*workload.Child
	defer func() {
		if err != nil {
			cancel()
		}
		for _, load := range loads {
			_, waitErr := load.Wait(ctx)
			err = errors.Join(err, waitErr)
		}
	}()
	for n, c := range all {
		load, err := w.start(c, workload.Spec{Jobs: jobs[n]})
		if err != nil {
			return err
		}
		loads = append(loads, load)
	}
	for _, load := range loads {
		if err := load.Go(); err != nil {
			return err
		}
	}
	return nil
}

// takeTurns runs a round in one container after the other, with a commit after
// each, so that the journal device counts the bytes of one container.
func (w *watch) takeTurns(ctx context.Context, all []container, run *SharedRun, calls, turns int) error {
	before, err := w.truth()
	if err != nil {
		return err
	}
	for turn := range turns {
		for n, c := range all {
			if _, err := w.do(ctx, c, workload.Spec{Jobs: c.round(mixes[n], turn, calls)}); err != nil {
				return err
			}
			if err := fixture.WriteOut(w.fileSystem.directory); err != nil {
				return err
			}
			after, err := w.truth()
			if err != nil {
				return err
			}
			run.Parts[n].TruthBytes += after - before
			before = after
		}
	}
	return nil
}

// wholeMixes are direct I/O, which the kernel charges to its cgroup, and I/O that
// it charges to the root cgroup.
var wholeMixes = [][]string{
	{workload.DirectRead, workload.DirectWrite},
	{workload.DirectWrite, workload.Mkdir},
	{workload.Untar, workload.BufferedWrite, workload.AppendFsync},
}

// wholeDisk compares the account with the kernel's counters.
func wholeDisk(ctx context.Context, l fixture.Lab, w *watch, o Options) (whole WholeDisk, err error) {
	l.Say("a whole disk")
	all := make([]container, len(wholeMixes))
	jobs := make([][]workload.Job, len(wholeMixes))
	for n := range all {
		if all[n], err = w.container(fmt.Sprintf("whole-%d", n)); err != nil {
			return whole, err
		}
		jobs[n] = all[n].round(wholeMixes[n], 0, o.Calls)
		if _, err := w.do(ctx, all[n], workload.Spec{Jobs: jobs[n], Prepare: true}); err != nil {
			return whole, err
		}
	}
	counters := func() ([]ChargedCompare, error) {
		compare := make([]ChargedCompare, len(all))
		for n, c := range all {
			io, err := w.fileSystem.tree.IO(c.cgroup)
			if err != nil {
				return nil, err
			}
			counted := io[w.fileSystem.disk.Dev]
			compare[n] = ChargedCompare{
				Name: string(rune('A' + n)), Mix: strings.Join(wholeMixes[n], ", "), Counter: counted.From.String(),
				KernelReadBytes: counted.ReadBytes, KernelWriteBytes: counted.WriteBytes,
			}
		}
		return compare, nil
	}
	if err := fixture.WriteOut(w.fileSystem.directory); err != nil {
		return whole, err
	}
	before, err := counters()
	if err != nil {
		return whole, err
	}
	s, err := w.see(ctx, func() error { return w.atOnce(ctx, all, jobs) })
	if err != nil {
		return whole, err
	}
	if whole.Charged, err = counters(); err != nil {
		return whole, err
	}
	whole.DiskBytes, whole.UnaccountedBytes = s.device.DiskBytes, s.device.UnaccountedBytes
	for n := range whole.Charged {
		compare, line := &whole.Charged[n], s.line(all[n])
		compare.KernelReadBytes -= before[n].KernelReadBytes
		compare.KernelWriteBytes -= before[n].KernelWriteBytes
		compare.ReadBytes = line.ChargedReadBytes
		// The kernel's counter includes the returned bytes.
		compare.WriteBytes = line.ChargedWriteBytes + line.ReturnedBytes
	}
	return whole, nil
}
