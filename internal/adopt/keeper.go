package adopt

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"slices"

	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/internal/filelock"
	"github.com/daybook-project/daybook/internal/kernel"
	"github.com/daybook-project/daybook/volume/operation"
	"github.com/daybook-project/daybook/volume/placement"
)

// Wanted is the place that the journal of a file system is to have.
type Wanted struct {
	Filesystem Filesystem
	// Cgroup is the cgroup of the container, which gets a child for the journal; "" with
	// Neutral.
	Cgroup string
	// Neutral: a cgroup below /daybook that belongs to no container.
	Neutral bool
	// Weight is the parent cgroup's; 0 leaves it.
	Weight uint64
	// For is what the user or the agent meant, for people.
	For string
	// Running: the caller knows that the container runs, so that its processes need not
	// be looked for.
	Running bool
	// Unmounted: the caller knows that the file system is not mounted now, so that no thread
	// need be looked for, which reads all processes.
	Unmounted bool
	// Once: the placement stays when the keeper is closed, and the cgroup may be empty.
	Once bool
}

// NeutralCgroup is the parent cgroup of the journal of a file system that several containers
// share.
func NeutralCgroup(name string) string { return placement.DefaultParent("adopt-" + name) }

// complete fills in the path of the parent cgroup.
func (w *Wanted) complete() (err error) {
	if err := checkName(w.Filesystem.Name); err != nil {
		return err
	}
	if w.Neutral {
		w.Cgroup = NeutralCgroup(w.Filesystem.Name)
	}
	_, w.Cgroup, err = placement.Complete(placement.Parent, w.Cgroup, w.Filesystem.Name)
	if err != nil || w.Neutral {
		return err
	}
	tree, err := cgroup.Known()
	if err == nil {
		_, err = tree.Lookup(w.Cgroup)
	}
	return err
}

// ErrDeserted means that no process is in the container's cgroup, so that the journal's
// thread must not be in it either.
var ErrDeserted = errors.New("no process is in the cgroup")

// Keeper keeps journals in the cgroups that its caller wants. It is for one goroutine.
type Keeper struct {
	store  Store
	log    *slog.Logger
	engine operation.Engine
	kept   map[string]*kept
}

type kept struct {
	lock   *filelock.Lock
	record Record
	last   placement.Last
}

// NewKeeper returns a keeper whose records are in a store.
func NewKeeper(store Store, log *slog.Logger) *Keeper {
	return &Keeper{store: store, log: log, kept: map[string]*kept{}}
}

// StopAt sets a function that is called after each step, with its name, for tests.
func (k *Keeper) StopAt(stop func(point string)) { k.engine.Stop = stop }

// Keep makes the journal of one file system have its place, and checks that it still has
// it. It does nothing if it has. The error wraps ErrDeserted if the container has ended:
// then the journal is released; and ext4.ErrNoJournal while the file system is not
// mounted.
func (k *Keeper) Keep(ctx context.Context, w Wanted) error {
	name := w.Filesystem.Name
	if err := w.complete(); errors.Is(err, cgroup.ErrVanished) {
		return errors.Join(fmt.Errorf("%s does not exist: %w", w.Cgroup, ErrDeserted), k.Release(ctx, name))
	} else if err != nil {
		return err
	}
	now := k.kept[name]
	if now != nil && !now.record.fits(w) {
		// While a container runs, the threads stay until a change of their place can be recorded.
		if err := k.store.write(now.record); err != nil && !now.record.hasEnded() {
			return err
		}
		if err := k.Release(ctx, name); err != nil {
			return err
		}
		now = nil
	}
	if !w.Neutral && !w.Once && !w.Running {
		deserted, err := placement.Deserted(w.Cgroup)
		if err != nil {
			return err
		}
		if deserted {
			return errors.Join(fmt.Errorf("%s: %w", w.Cgroup, ErrDeserted), k.Release(ctx, name))
		}
	}
	if w.Unmounted {
		return nil
	}
	if now == nil {
		return k.place(ctx, w)
	}
	thread := k.thread(now)
	inPlace, err := thread.InPlace()
	if err != nil || inPlace {
		return err
	}
	// A new mount, or somebody moved it.
	if err := w.Filesystem.check(); err != nil {
		return err
	}
	return thread.Place(ctx, k.store.run(&k.engine, &now.record))
}

// thread is the thread of a kept file system, which is looked for only after it has ended.
func (k *Keeper) thread(now *kept) placement.Thread {
	return k.store.knownThread(&now.record, &now.last, k.log)
}

// hasEnded says that the container of a record has no process any more. Of several containers that is
// not known.
func (r Record) hasEnded() bool {
	deserted, err := placement.Deserted(r.Placed.Cgroup)
	return !r.Neutral && err == nil && deserted
}

// fits says whether a record is that of what is wanted.
func (r Record) fits(w Wanted) bool {
	return r.UUID == w.Filesystem.UUID && r.Device == w.Filesystem.Dev.String() && r.Placed.Cgroup == w.Cgroup && r.Weight == w.Weight
}

// place records a new placement and makes it.
func (k *Keeper) place(ctx context.Context, w Wanted) error {
	name := w.Filesystem.Name
	pid, _, err := w.Filesystem.threads()
	if err != nil {
		return err
	}
	lock, err := k.store.lock(name)
	var held *filelock.HeldError
	if errors.As(err, &held) {
		return fmt.Errorf("process %d keeps the journal of %s (%s) already: %w", held.PID, w.Filesystem.Mountpoint, name, err)
	}
	if err != nil {
		return err
	}
	now, err := k.placeLocked(ctx, w, pid)
	if now == nil {
		lock.Release()
		return err
	}
	now.lock = lock
	k.kept[name] = now
	return err
}

// placeLocked places the thread of a process. It returns nil if nothing was recorded, or all of
// it was undone.
func (k *Keeper) placeLocked(ctx context.Context, w Wanted, pid int) (*kept, error) {
	f := w.Filesystem
	// What a dead keeper left, or --once, is undone first.
	earlier, err := k.store.Read(f.Name)
	if err == nil {
		err = k.store.write(earlier) // if nothing can be recorded, the threads stay where they are
	}
	if err == nil {
		_, err = k.store.undo(ctx, &k.engine, earlier, k.log)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	boot, err := kernel.BootID()
	if err != nil {
		return nil, err
	}
	now := &kept{record: Record{
		Format: recordFormat, Name: f.Name, Device: f.Dev.String(), UUID: f.UUID, Type: f.Type, Mountpoint: f.Mountpoint,
		BootID: boot, For: w.For, Weight: w.Weight, Neutral: w.Neutral, Once: w.Once,
		Placed: placement.Placed{Placement: placement.Parent, Cgroup: w.Cgroup},
	}}
	_, _ = now.last.PID(func() (int, error) { return pid, nil }) // it is not looked for again
	thread := k.thread(now)
	if err := thread.Plan(); err != nil {
		return nil, err
	}
	run := k.store.run(&k.engine, &now.record)
	err = run.Do(ctx, operation.Step{Name: "planned", Intent: func() (bool, error) { return true, nil }})
	if err == nil {
		err = thread.Place(ctx, run)
	}
	if err != nil {
		if _, undoErr := k.store.undo(ctx, &k.engine, now.record, k.log); undoErr != nil {
			return now, errors.Join(err, undoErr)
		}
		return nil, err
	}
	return now, nil
}

// Release undoes one placement of this keeper. It is no error if there is none.
func (k *Keeper) Release(ctx context.Context, name string) error {
	now := k.kept[name]
	if now == nil {
		return nil
	}
	if _, err := k.store.undo(ctx, &k.engine, now.record, k.log); err != nil {
		return err
	}
	now.lock.Release()
	delete(k.kept, name)
	return nil
}

// keeps says that the journal of a file system has a place by this keeper.
func (k *Keeper) keeps(name string) bool { return k.kept[name] != nil }

// Kept lists the placements of this keeper, by the names of devices.
func (k *Keeper) Kept() []string { return slices.Sorted(maps.Keys(k.kept)) }

// Close undoes all placements of this keeper but those made once. What it fails to undo is left
// to the guardian.
func (k *Keeper) Close(ctx context.Context) error {
	var failures []error
	for _, name := range k.Kept() {
		now := k.kept[name]
		if !now.record.Once {
			failures = append(failures, k.Release(ctx, name))
		}
		now.lock.Release()
		delete(k.kept, name)
	}
	return errors.Join(failures...)
}

// IsUnmounted says that an error means that the file system is not mounted now.
func IsUnmounted(err error) bool {
	return errors.Is(err, ext4.ErrNoJournal) || errors.Is(err, ErrNotMounted)
}
