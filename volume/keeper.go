package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/daybook-project/daybook/internal/cgroup"
)

// KeepInterval is how often a [Keeper] looks. A container's cgroup with only
// the jbd2 thread left in it holds up its removal at most so long; runtimes try
// again for longer than that (runc for some 0.3 s, containerd and dockerd for
// seconds).
const KeepInterval = 50 * time.Millisecond

// parentTurns is how many turns apart the other placements are looked at, which
// nobody waits for.
const parentTurns = 20

// Keeper keeps the jbd2 threads of a pool's volumes where they belong: a mount
// that was made anew has a new thread, a cgroup that was removed and made again
// is another one, and a thread in a container's own cgroup must leave it when
// the container ends. It also thaws volumes that a dead process left frozen.
type Keeper struct {
	pool *Pool
	// daemon is held as long as the keeper lives: one keeper a pool.
	daemon *lock
	// records are what was read last, by name, with their files' times.
	records map[string]*keptRecord
	// told are the troubles that were logged already.
	told map[string]string
}

type keptRecord struct {
	modified time.Time
	// settled: the file was settledAge old when it was read.
	settled bool
	record  Record
	// thread is the jbd2 thread that was seen last, and comm its name.
	thread int
	comm   string
}

// settledAge is how old a file must be so that a later change gives it another
// time: the kernel's clock for files goes in steps of some milliseconds.
const settledAge = time.Second

// Keeper takes the pool's keeping upon this process. The error wraps ErrBusy if
// another process keeps it.
func (p *Pool) Keeper() (_ *Keeper, err error) {
	defer func() { err = public(err) }()
	l, err := lockDirectory(filepath.Join(p.dir, volumesDir))
	if errors.Is(err, ErrBusy) {
		return nil, fmt.Errorf("pool %s is %w: another daemon keeps its volumes", p.dir, ErrBusy)
	}
	if err != nil {
		return nil, err
	}
	return &Keeper{pool: p, daemon: l, records: map[string]*keptRecord{}, told: map[string]string{}}, nil
}

// Close ends the keeping; the threads stay where they are, but for those in
// containers' own cgroups, which would hold up their end.
func (k *Keeper) Close() error {
	var errs []error
	for name, kept := range k.records {
		if a := kept.record.Attachment; a != nil && a.Placement == PlaceContainer && a.State == Attached {
			errs = append(errs, k.takeOut(name, kept.record))
		}
	}
	k.daemon.release()
	return public(errors.Join(errs...))
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

// Once looks at every attached volume and puts right what is not. Trouble with
// one is logged once, and does not hold up the others.
func (k *Keeper) Once() { k.look(true) }

// look passes over the volumes in parents' cgroups unless it is to look at all.
func (k *Keeper) look(all bool) {
	names, err := k.pool.names()
	if err != nil {
		k.tell("", err)
		return
	}
	seen := make(map[string]bool, len(names))
	for _, name := range names {
		seen[name] = true
		kept, err := k.read(name)
		if err == nil && kept != nil && kept.record.Frozen {
			err = k.thaw(name)
		}
		if err == nil && kept != nil {
			if !all && !kept.urgent() {
				continue // what was told of it still holds
			}
			err = k.keep(name, kept)
		}
		k.tell(name, err)
	}
	for name := range k.records {
		if !seen[name] {
			delete(k.records, name)
			delete(k.told, name)
		}
	}
}

func (k *Keeper) tell(name string, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if k.told[name] != text && text != "" {
		k.pool.log.Warn("cannot keep the volume", "volume", name, "why", text)
	}
	k.told[name] = text
}

// thaw lets a volume's writers go on that a dead process left frozen.
func (k *Keeper) thaw(name string) error {
	thawed, err := k.pool.thawAbandoned(name)
	if err != nil {
		return fmt.Errorf("it is frozen, and cannot be thawed: %w", err)
	}
	if thawed {
		k.pool.log.Warn("thawed a volume that a dead process had left frozen", "volume", name)
	}
	return nil
}

// urgent: a container's end waits for it.
func (k *keptRecord) urgent() bool {
	return k.record.Attachment != nil && k.record.Attachment.Placement == PlaceContainer
}

// keep looks at one volume. It takes no lock unless something is to be done:
// reading costs nobody anything.
func (k *Keeper) keep(name string, kept *keptRecord) error {
	a := kept.record.Attachment
	if a == nil || a.State != Attached || a.Placement == PlaceNone || a.ReadOnly {
		return nil
	}
	t, err := tree()
	if err != nil {
		return err
	}
	pid, err := k.thread(kept)
	if err != nil {
		return err
	}
	now, err := t.Of(pid)
	if err != nil {
		return err
	}
	if a.Placement == PlaceContainer {
		return k.keepInContainer(t, name, kept, pid, now)
	}
	if now == a.Journal {
		return nil
	}
	l, err := lockDirectory(k.pool.volumeDir(name))
	if errors.Is(err, ErrBusy) {
		return nil // whoever has it places the thread himself
	}
	if err != nil {
		return err
	}
	defer l.release()
	record, err := k.pool.read(name)
	if err != nil || record.Attachment == nil || record.Attachment.State != Attached {
		return err
	}
	return k.pool.place(record)
}

// keepInContainer has the thread in the container's cgroup as long as others
// are in it.
func (k *Keeper) keepInContainer(t *cgroup.Tree, name string, kept *keptRecord, pid int, now string) error {
	a := kept.record.Attachment
	pids, err := t.ProcessesBelow(a.Journal)
	if errors.Is(err, cgroup.ErrVanished) {
		pids, err = nil, nil
	}
	if err != nil {
		return err
	}
	alone := len(pids) == 0 || len(pids) == 1 && pids[0] == pid
	switch {
	case alone && now == a.Journal:
		return k.takeOut(name, kept.record)
	case alone || now == a.Journal:
		return nil
	}
	return t.Move(pid, a.Journal)
}

// thread is the volume's jbd2 thread: the one that was seen last, if it lives.
// To find it anew, all processes are looked at.
func (k *Keeper) thread(kept *keptRecord) (int, error) {
	if kept.thread != 0 && commOf(kept.thread) == kept.comm {
		return kept.thread, nil
	}
	pid, err := k.pool.thread(kept.record)
	if err != nil {
		return 0, err
	}
	kept.thread, kept.comm = pid, commOf(pid)
	return pid, nil
}

// commOf is a process's name; "" if it has ended.
func commOf(pid int) string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	return string(text)
}

// takeOut brings the thread back to the root cgroup, where the kernel had it.
func (k *Keeper) takeOut(name string, record Record) error {
	t, err := tree()
	if err != nil {
		return err
	}
	pid, err := k.pool.thread(record)
	if errors.Is(err, ErrDetached) {
		return nil // since the record was read
	}
	if err != nil {
		return err
	}
	if now, err := t.Of(pid); err != nil || now != record.Attachment.Journal {
		return err
	}
	k.pool.log.Info("took the jbd2 thread out of the container's cgroup, which has ended", "volume", name, "pid", pid, "cgroup", record.Attachment.Journal)
	return t.Move(pid, cgroup.RootPath)
}

// read gives a volume's record, from memory if its file is the same.
func (k *Keeper) read(name string) (*keptRecord, error) {
	modified, err := modificationTime(filepath.Join(k.pool.volumeDir(name), recordFile))
	if errors.Is(err, fs.ErrNotExist) {
		delete(k.records, name)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if kept, known := k.records[name]; known && kept.modified.Equal(modified) && kept.settled {
		return kept, nil
	}
	settled := time.Since(modified) > settledAge
	record, err := k.pool.read(name)
	if err != nil {
		return nil, err
	}
	kept := &keptRecord{modified: modified, settled: settled, record: record}
	if before, known := k.records[name]; known {
		kept.thread, kept.comm = before.thread, before.comm
	}
	k.records[name] = kept
	return kept, nil
}
