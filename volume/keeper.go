package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/daybook-project/daybook/volume/internal/cause"
	"github.com/daybook-project/daybook/volume/internal/store"
	"github.com/daybook-project/daybook/volume/placement"
)

// KeepInterval is how often a [Keeper] checks. If only the jbd2 thread is left in the
// cgroup of a container, the cgroup cannot be removed for at most this time. Runtimes
// retry longer (runc for some 0.3 s, containerd and dockerd for seconds).
const KeepInterval = 50 * time.Millisecond

// parentTurns is how many turns pass between checks of the other placements, which
// delay no removal.
const parentTurns = 20

// Keeper keeps the jbd2 threads of a pool's volumes in their cgroups: a new mount has a
// new thread, a cgroup may be removed and created again, and a thread in a container's
// own cgroup must leave it when the container ends. It also thaws volumes that a dead
// process left frozen.
type Keeper struct {
	pool *Pool
	// daemon is held as long as the keeper lives: one keeper for each pool.
	daemon *store.Lock
	// records were read last, by name, with the times of their files.
	records map[string]*keptRecord
	// logged are the errors that were logged already.
	logged map[string]string
}

type keptRecord struct {
	modified time.Time
	// quiet: the file was quietAge old when it was read.
	quiet  bool
	record Record
	// thread is the jbd2 thread that was found last.
	thread placement.Last
}

// quietAge is how old a file must be so that a later change gets another time: the
// kernel's clock for files has steps of some milliseconds.
const quietAge = time.Second

// Keeper makes this process the keeper of the pool. The error wraps ErrBusy if another
// process is its keeper.
func (p *Pool) Keeper() (_ *Keeper, err error) {
	defer func() { err = cause.Public(err) }()
	l, err := store.LockDirectory(filepath.Join(p.dir, store.VolumesDir))
	if errors.Is(err, ErrBusy) {
		return nil, fmt.Errorf("pool %s is %w: another daemon keeps its volumes", p.dir, ErrBusy)
	}
	if err != nil {
		return nil, err
	}
	return &Keeper{pool: p, daemon: l, records: map[string]*keptRecord{}, logged: map[string]string{}}, nil
}

// Close ends the keeping. The threads stay in their cgroups, except those in
// containers' own cgroups, which could not be removed otherwise.
func (k *Keeper) Close() error {
	var errs []error
	for _, kept := range k.records {
		if a := kept.record.Attachment; a != nil && a.Placement == PlaceContainer && a.State == Attached {
			errs = append(errs, k.leaveContainer(kept.record))
		}
	}
	k.daemon.Release()
	return cause.Public(errors.Join(errs...))
}

// Run keeps until ctx ends, and then closes.
func (k *Keeper) Run(ctx context.Context) error {
	ticker := time.NewTicker(KeepInterval)
	defer ticker.Stop()
	for turn := 0; ; turn++ {
		k.look(turn%parentTurns == 0)
		select {
		case <-ctx.Done():
			return k.Close()
		case <-ticker.C:
		}
	}
}

// Once checks every attached volume and moves misplaced threads. An error with one
// volume is logged once, and does not stop the others.
func (k *Keeper) Once() { k.look(true) }

// look skips the volumes in parents' cgroups unless all is set.
func (k *Keeper) look(all bool) {
	names, err := k.pool.files.Names()
	if err != nil {
		k.logOnce("", err)
		return
	}
	seen := make(map[string]bool, len(names))
	for _, name := range names {
		seen[name] = true
		kept, err := k.read(name)
		if err == nil && kept != nil && kept.record.Frozen {
			if err = k.thaw(name); err != nil {
				err = fmt.Errorf("it is frozen, and cannot be thawed: %w", err)
			}
		}
		if err == nil && kept != nil {
			if !all && !kept.urgent() {
				continue // the error that was logged last still holds
			}
			err = k.keep(name, kept)
		}
		k.logOnce(name, err)
	}
	for name := range k.records {
		if !seen[name] {
			delete(k.records, name)
			delete(k.logged, name)
		}
	}
}

func (k *Keeper) logOnce(name string, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if k.logged[name] != text && text != "" {
		k.pool.log.Warn("cannot keep the volume", "volume", name, "why", text)
	}
	k.logged[name] = text
}

// thaw thaws a volume that a dead process left frozen.
func (k *Keeper) thaw(name string) error {
	v, err := k.pool.tryHold(name)
	if errors.Is(err, ErrBusy) {
		return nil // the process that has the lock thaws it
	}
	if err != nil {
		return err
	}
	defer v.release()
	if !v.record.Frozen {
		return nil
	}
	if err := v.thaw(context.Background()); err != nil {
		return err
	}
	k.pool.log.Warn("thawed a volume that a dead process had left frozen", "volume", name)
	return nil
}

// urgent says that the removal of a container waits for it.
func (k *keptRecord) urgent() bool {
	return k.record.Attachment != nil && k.record.Attachment.Placement == PlaceContainer
}

// keep checks one volume. It takes the lock only if the thread must be moved.
func (k *Keeper) keep(name string, kept *keptRecord) error {
	a := kept.record.Attachment
	if a == nil || a.State != Attached || a.Placement == PlaceNone || a.ReadOnly {
		return nil
	}
	thread := k.pool.placed(kept.record)
	find := thread.PID
	thread.PID = func() (int, error) { return kept.thread.PID(find) }
	if a.Placement == PlaceContainer {
		return thread.KeepInContainer()
	}
	if inPlace, err := thread.InPlace(); err != nil || inPlace {
		return err
	}
	v, err := k.pool.tryHold(name)
	if errors.Is(err, ErrBusy) {
		return nil // the process that has the lock places the thread
	}
	if err != nil {
		return err
	}
	defer v.release()
	if v.record.Attachment == nil || v.record.Attachment.State != Attached {
		return nil
	}
	return v.place(context.Background())
}

// leaveContainer moves the thread of an attached volume out of the container's
// cgroup.
func (k *Keeper) leaveContainer(record Record) error {
	err := k.pool.placed(record).LeaveContainer()
	if errors.Is(err, ErrDetached) {
		return nil // detached since the record was read
	}
	return err
}

// read returns a volume's record, from memory if the file has not changed.
func (k *Keeper) read(name string) (*keptRecord, error) {
	modified, err := store.ModificationTime(filepath.Join(k.pool.files.VolumeDir(name), store.RecordFile))
	if errors.Is(err, fs.ErrNotExist) {
		delete(k.records, name)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if kept, known := k.records[name]; known && kept.modified.Equal(modified) && kept.quiet {
		return kept, nil
	}
	quiet := time.Since(modified) > quietAge
	record, err := k.pool.files.Read(name)
	if err != nil {
		return nil, err
	}
	kept := &keptRecord{modified: modified, quiet: quiet, record: record}
	if before, known := k.records[name]; known {
		kept.thread = before.thread
	}
	k.records[name] = kept
	return kept, nil
}
