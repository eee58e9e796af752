package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"strings"
	"time"

	"github.com/daybook-project/daybook/internal/atomicfile"
	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/internal/versioned"
	"github.com/daybook-project/daybook/volume/internal/cause"
	"github.com/daybook-project/daybook/volume/internal/store"
)

// Repaired is what [Pool.Repair] did and found.
type Repaired struct {
	// Work is how many unfinished creations and deletions were removed.
	Work int `json:"work_removed"`
	// Volumes have the repaired volumes; the text says what was done.
	Volumes map[string]string `json:"volumes"`
	// Busy are volumes that a living process works on.
	Busy []string `json:"busy"`
	// Damaged are volumes that an administrator must repair; the text says why.
	Damaged map[string]string `json:"damaged"`
	// Failed are volumes whose repair failed, such as because a disk is full or a program
	// is missing; the text says why. They may be sound: repair them again.
	Failed map[string]string `json:"failed"`
	// Newer are volumes whose record a newer Daybook has written. They are not changed.
	Newer map[string]string `json:"newer"`
}

// Unrepaired are the volumes that are damaged, failed or newer, each with the reason.
func (r Repaired) Unrepaired() map[string]string {
	all := make(map[string]string, len(r.Damaged)+len(r.Failed)+len(r.Newer))
	for _, some := range []map[string]string{r.Damaged, r.Failed, r.Newer} {
		maps.Copy(all, some)
	}
	return all
}

// Repair finishes or rolls back what killed processes left. Unfinished creations and
// deletions are then gone, and a volume is attached completely or not at all. Repair
// may run at any time, beside other operations. The error wraps ErrCorrupt if
// a volume is damaged, ErrSystem if the repair of one failed, and ErrUnsupported if a newer
// Daybook has written one; the other volumes are repaired then. It wraps
// ErrWorkLeft if an unfinished creation or deletion could not be removed. If ctx ends, the
// rest is not repaired, and the error wraps ctx.Err().
func (p *Pool) Repair(ctx context.Context) (_ Repaired, err error) {
	defer func() { err = cause.Public(err) }()
	// A tool that a killed process had started ends a moment after it, and
	// holds the lock until then.
	deadline := time.Now().Add(repairPatience)
	done := Repaired{Volumes: map[string]string{}, Busy: []string{}, Damaged: map[string]string{}, Failed: map[string]string{}, Newer: map[string]string{}}
	// The volumes are repaired even if this fails.
	cleared, workErr := p.clearWork(ctx, deadline)
	done.Work = cleared
	if workErr != nil {
		workErr = fmt.Errorf("cannot clear the work of pool %s: %w", p.dir, workErr)
	}
	names, err := p.files.Names()
	if err != nil {
		return done, errors.Join(workErr, err)
	}
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return done, errors.Join(workErr, err)
		}
		did, err := p.repair(ctx, name, deadline)
		err = cause.Public(err)
		switch {
		case err != nil && ctx.Err() != nil:
			return done, errors.Join(workErr, fmt.Errorf("the repair of volume %s was interrupted: %w", name, ctx.Err()))
		case errors.Is(err, ErrNotFound):
		case errors.Is(err, ErrBusy):
			done.Busy = append(done.Busy, name)
		case errors.Is(err, versioned.ErrNewer):
			done.Newer[name] = err.Error()
		case errors.Is(err, ErrCorrupt):
			done.Damaged[name] = err.Error()
		case err != nil:
			done.Failed[name] = err.Error()
		case len(did) > 0:
			what := strings.Join(did, "; ")
			done.Volumes[name] = what
			p.log.Info("repaired", "volume", name, "what", what)
		}
	}
	if workErr != nil {
		workErr = cause.Because(workErr, ErrWorkLeft)
	}
	if len(done.Damaged) > 0 {
		workErr = errors.Join(workErr, fmt.Errorf("%d volumes of pool %s are %w", len(done.Damaged), p.dir, ErrCorrupt))
	}
	if len(done.Failed) > 0 {
		workErr = errors.Join(workErr, cause.Because(fmt.Errorf("%d volumes of pool %s could not be repaired", len(done.Failed), p.dir), ErrSystem))
	}
	if len(done.Newer) > 0 {
		workErr = errors.Join(workErr, cause.Because(fmt.Errorf("%d volumes of pool %s were %w", len(done.Newer), p.dir, versioned.ErrNewer), ErrUnsupported))
	}
	return done, workErr
}

// ErrWorkLeft is wrapped by an error of [Pool.Repair] after which the volumes are
// repaired, but an unfinished creation or deletion is left, such as a logical volume that
// LVM cannot remove now. Another repair tries again; see also [Pool.Forget].
var ErrWorkLeft = errors.New("an unfinished creation or deletion is left")

// repairPatience is how long a repair waits, in all, for volumes that other processes
// work on. A variable, because tests are more patient.
var repairPatience = time.Second

// repair repairs one volume, and returns what it did.
func (p *Pool) repair(ctx context.Context, name string, deadline time.Time) (did []string, err error) {
	l, err := store.AwaitLockUntil(ctx, p.files.VolumeDir(name), deadline)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("volume %s %w", name, ErrNotFound) // deleted since it was listed
	}
	if err != nil {
		return nil, err
	}
	defer l.Release()
	for _, file := range []string{filepath.Join(p.files.VolumeDir(name), store.RecordFile), p.files.KeptSuperblock(name)} {
		if err := store.RemoveIfThere(file + atomicfile.TemporarySuffix); err != nil {
			return nil, err
		}
	}
	record, err := p.files.Read(name)
	if err != nil {
		return nil, err
	}
	r := &repairing{held: &held{pool: p, record: record, lock: l}}
	for _, step := range []func(context.Context) error{
		r.check, r.resize, r.attachment, r.length, r.target, r.memory, r.journal,
	} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	return r.did, nil
}

// repairing is the repair of one volume. Its steps are named after what they repair, because a
// name of held's would hide held's step; repair calls them in their order.
type repairing struct {
	*held
	did []string
}

func (r *repairing) report(format string, a ...any) {
	r.did = append(r.did, fmt.Sprintf(format, a...))
}

func (r *repairing) check(ctx context.Context) error {
	finished, err := r.finishCheck(ctx)
	if finished {
		r.report("check finished")
	}
	return err
}

func (r *repairing) resize(ctx context.Context) error {
	if r.record.Resize == 0 {
		return nil
	}
	if err := r.finishResize(ctx); err != nil {
		return err
	}
	r.report("resize finished: %d bytes", r.record.SizeBytes)
	return nil
}

// attachment finishes or rolls back attaching, detaching, a freeze and a move of
// the journal. It places the thread of a volume that stays attached, and checks that the
// blocks of a detached one are there.
func (r *repairing) attachment(ctx context.Context) (err error) {
	before, memory := r.record.Attachment, r.record.JournalMemory
	if err := r.finishInterrupted(ctx); err != nil {
		return err
	}
	switch {
	case r.record.Attachment != nil:
		err = r.placement(ctx)
	case before == nil:
		err = r.blocks().Check(ctx)
	case before.State == Attached:
		r.report("no longer attached: cleared")
	default:
		r.report("%s was interrupted: detached", before.State)
	}
	if memory != nil && r.record.JournalMemory == nil {
		r.report("the journal is on the disk: its move was interrupted")
	}
	return err
}

// length corrects the recorded size after a receive.
func (r *repairing) length(context.Context) error {
	finished, err := r.finishExchange()
	if finished {
		r.report("receive was interrupted: %d bytes", r.record.SizeBytes)
	}
	return err
}

// placement places the jbd2 thread of an attached volume again.
func (r *repairing) placement(ctx context.Context) error {
	if r.pool.status(r.record).Placed {
		return nil
	}
	if err := r.place(ctx); err != nil {
		return err
	}
	if r.pool.status(r.record).Placed {
		r.report("jbd2 thread placed again")
	}
	return nil
}

// target protects the mount point of a persistent volume while it is detached. A mount
// point that cannot be protected does not damage the volume.
func (r *repairing) target(ctx context.Context) error {
	if r.record.Persist == nil || r.record.Attachment != nil {
		return nil
	}
	protected, err := r.protect(ctx)
	if err != nil {
		r.warnUnprotected(err)
	}
	if protected {
		r.report("mount point protected again")
	}
	return nil
}

// memory repairs the journal in memory of a detached volume: its mount may have
// ended without writing it back.
func (r *repairing) memory(ctx context.Context) error {
	if r.record.Attachment != nil || r.record.JournalMemory == nil {
		return nil
	}
	repaired, err := r.repairMemory(ctx)
	if repaired != "" {
		r.report("%s", repaired)
	}
	return err
}

// journal replays the journal of a detached volume, after the host or a mount ended
// uncleanly, so that the image alone is a complete file system. If that fails, the next
// mount replays it.
func (r *repairing) journal(ctx context.Context) error {
	if r.record.Attachment != nil || r.record.FileSystem == JFS {
		return nil // the journal in memory of JFS was recovered
	}
	blocks := r.blocks()
	s, err := ext4.ReadSuperblock(blocks.Node())
	if err != nil || !s.NeedsRecovery || s.External() || s.InMemory {
		return nil
	}
	if blocks.CheckUnused() != nil {
		return nil
	}
	if err := r.pool.step(ctx, "journal replayed", r.offline().ReplayJournal); err != nil {
		r.pool.log.Warn("the journal could not be replayed; the next attach replays it", "volume", r.record.Name, "why", err)
		return nil
	}
	r.report("journal replayed")
	return nil
}
