package adopt

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"

	"github.com/daybook-project/daybook/internal/control"
	"github.com/daybook-project/daybook/internal/filelock"
	"github.com/daybook-project/daybook/internal/kernel"
	"github.com/daybook-project/daybook/volume/operation"
	"github.com/daybook-project/daybook/volume/placement"
)

// thread is the journal thread of a record, whose place is saved in the record.
func (s Store) thread(r *Record, log *slog.Logger) placement.Thread {
	f := r.Filesystem()
	thread := placement.Thread{
		Name: r.Name, State: &r.Placed, Weight: r.Weight,
		PID:        func() (int, error) { pid, _, err := f.threads(); return pid, err },
		Disk:       f.disk,
		Neighbours: neighbours{s}, Uncorrected: control.HostOriginals().Weight, Log: log,
	}
	if f.inMemory() { // jbd2 has one thread, and to look for more reads all processes
		thread.Workers = func() ([]int, error) { _, workers, err := f.threads(); return workers, err }
	}
	return thread
}

// knownThread is thread, which is looked for only after the last one has ended.
func (s Store) knownThread(r *Record, last *placement.Last, log *slog.Logger) placement.Thread {
	thread := s.thread(r, log)
	find := thread.PID
	thread.PID = func() (int, error) { return last.PID(find) }
	return thread
}

// run saves the record before each change.
func (s Store) run(engine *operation.Engine, r *Record) operation.Run {
	return engine.On(func() error { return s.write(*r) })
}

// Outcome is one record that was undone.
type Outcome struct {
	Name       string `json:"name"`
	Mountpoint string `json:"mountpoint"`
	// Cgroup is where the journal's threads were.
	Cgroup string `json:"cgroup"`
	// Rebooted: the host was restarted since, so there was nothing to undo.
	Rebooted bool `json:"rebooted"`
}

// Release undoes one placement that no process keeps. The error is a *filelock.HeldError if
// one does, and wraps fs.ErrNotExist if there is no such record.
func (s Store) Release(ctx context.Context, name string, log *slog.Logger) (Outcome, error) {
	lock, err := s.lock(name)
	if err != nil {
		return Outcome{}, err
	}
	defer lock.Release()
	record, err := s.Read(name)
	if err != nil {
		return Outcome{}, err
	}
	return s.undo(ctx, &operation.Engine{}, record, log)
}

// undo moves the threads to the root cgroup, removes the cgroups that were made, restores
// the weight, and removes the record. The caller has the lock.
func (s Store) undo(ctx context.Context, engine *operation.Engine, r Record, log *slog.Logger) (Outcome, error) {
	outcome := Outcome{Name: r.Name, Mountpoint: r.Mountpoint, Cgroup: r.Placed.Journal}
	boot, err := kernel.BootID()
	if err != nil {
		return outcome, err
	}
	if outcome.Rebooted = r.BootID != boot; outcome.Rebooted {
		return outcome, s.remove(r.Name)
	}
	r.Leaving = true
	run := s.run(engine, &r)
	ctx = context.WithoutCancel(ctx)
	// Where the record cannot be saved, as on a full disk, the threads leave nevertheless: they
	// would prevent the removal of the container's cgroup. The record then has more than is left.
	err = errors.Join(
		run.Do(ctx, operation.Step{Name: "leaving", Intent: func() (bool, error) { return true, nil }}),
		run.Do(ctx, operation.Step{Name: "left", Do: func(context.Context) error { return r.Placed.Leave() }}))
	if err == nil {
		err = s.thread(&r, log).Release(ctx, run)
	}
	if err != nil {
		return outcome, fmt.Errorf("cannot release the journal of %s from %s: %w", r.Mountpoint, r.Placed.Journal, err)
	}
	return outcome, s.remove(r.Name)
}

// UndoAbandoned undoes the placements whose keeper has died. once includes those that were
// made without a keeper.
func (s Store) UndoAbandoned(ctx context.Context, once bool, log *slog.Logger) (outcomes []Outcome, err error) {
	outcomes, _, err = s.undoAllAbandoned(ctx, once, log)
	return outcomes, err
}

// undoAllAbandoned is UndoAbandoned. held names the records that a process has locked: their
// keepers, or processes that undo them. It locks neither these nor the records that stay: a
// keeper that placed the journal at that moment would fail.
func (s Store) undoAllAbandoned(ctx context.Context, once bool, log *slog.Logger) (outcomes []Outcome, held []string, err error) {
	names, err := s.Names()
	if err != nil {
		return nil, nil, err
	}
	var failures []error
	for _, name := range names {
		if _, kept, err := s.KeptBy(name); err == nil && kept {
			held = append(held, name)
			continue
		}
		if record, err := s.Read(name); err == nil && record.stays(once) {
			continue
		}
		lock, err := s.lock(name) // its errors, and those of Read, are reported from here on
		var holder *filelock.HeldError
		if errors.As(err, &holder) {
			held = append(held, name)
			continue
		}
		if err == nil {
			var outcome Outcome
			var undone bool
			if outcome, undone, err = s.undoAbandoned(ctx, name, once, log); undone {
				outcomes = append(outcomes, outcome)
			}
			lock.Release()
		}
		failures = append(failures, err)
	}
	return outcomes, held, errors.Join(failures...)
}

// stays says that a record without a keeper is not abandoned, unless once includes those that
// were made without a keeper.
func (r Record) stays(once bool) bool { return r.Once && !r.Leaving && !once }

// undoAbandoned undoes one placement. The caller has the lock.
func (s Store) undoAbandoned(ctx context.Context, name string, once bool, log *slog.Logger) (outcome Outcome, undone bool, err error) {
	record, err := s.Read(name)
	if errors.Is(err, fs.ErrNotExist) {
		return outcome, false, nil
	}
	if err != nil || record.stays(once) {
		return outcome, false, err
	}
	outcome, err = s.undo(ctx, &operation.Engine{}, record, log)
	return outcome, err == nil, err
}
