package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
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
	// Newer are volumes whose record a newer Daybook has written. They are not changed.
	Newer map[string]string `json:"newer"`
}

// Repair finishes or rolls back what killed processes left. Unfinished creations and
// deletions are then gone, and a volume is attached completely or not at all. Repair
// may run at any time, beside other operations. The error wraps ErrCorrupt if
// a volume is damaged, and ErrUnsupported if a newer Daybook has written one;
// the other volumes are repaired then. It wraps
// ErrWorkLeft if an unfinished creation or deletion could not be removed.
func (p *Pool) Repair(ctx context.Context) (_ Repaired, err error) {
	defer func() { err = cause.Public(err) }()
	// A tool that a killed process had started ends a moment after it, and
	// holds the lock until then.
	deadline := time.Now().Add(repairPatience)
	done := Repaired{Volumes: map[string]string{}, Busy: []string{}, Damaged: map[string]string{}, Newer: map[string]string{}}
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
		switch {
		case errors.Is(err, ErrNotFound):
		case errors.Is(err, ErrBusy):
			done.Busy = append(done.Busy, name)
		case errors.Is(err, versioned.ErrNewer):
			done.Newer[name] = err.Error()
		case err != nil:
			done.Damaged[name] = err.Error()
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
		return did, fmt.Errorf("volume %s %w", name, ErrNotFound) // deleted since it was listed
	}
	if err != nil {
		return did, err
	}
	defer l.Release()
	for _, file := range []string{filepath.Join(p.files.VolumeDir(name), store.RecordFile), p.files.KeptSuperblock(name)} {
		if err := store.RemoveIfThere(file + atomicfile.TemporarySuffix); err != nil {
			return did, err
		}
	}
	record, err := p.files.Read(name)
	if err != nil {
		return did, err
	}
	finished, err := p.finishCheck(ctx, record, l)
	if err != nil {
		return did, err
	}
	if finished {
		did = append(did, "check finished")
	}
	if record.Resize != 0 {
		if record, err = p.finishResize(ctx, record, l); err != nil {
			return did, err
		}
		did = append(did, fmt.Sprintf("resize finished: %d bytes", record.SizeBytes))
	}
	before, memory := record.Attachment, record.JournalMemory
	if record, err = p.finishInterrupted(ctx, record); err != nil {
		return did, err
	}
	switch {
	case before != nil && record.Attachment == nil && before.State == Attached:
		did = append(did, "no longer attached: cleared")
	case before != nil && record.Attachment == nil:
		did = append(did, fmt.Sprintf("%s was interrupted: detached", before.State))
	case record.Attachment != nil:
		if placed := p.status(record).Placed; !placed {
			if err := p.place(ctx, record); err != nil {
				return did, err
			}
			if p.status(record).Placed {
				did = append(did, "jbd2 thread placed again")
			}
		}
	default:
		if err := p.blocks(record).Check(ctx); err != nil {
			return did, err
		}
	}
	if memory != nil && record.JournalMemory == nil {
		did = append(did, "the journal is on the disk: its move was interrupted")
	}
	if record.Persist != nil && record.Attachment == nil {
		// A mount point that cannot be protected does not damage the volume.
		protected, err := p.protect(ctx, &record)
		if err != nil {
			p.warnUnprotected(record, err)
		}
		if protected {
			did = append(did, "mount point protected again")
		}
	}
	// The mount may have ended without writing back its journal.
	if record.Attachment == nil && record.JournalMemory != nil {
		repaired, err := p.repairMemory(ctx, record, l)
		if err != nil {
			return did, err
		}
		if repaired != "" {
			did = append(did, repaired)
		}
	}
	if record.Attachment == nil && p.replay(ctx, record, l) {
		did = append(did, "journal replayed")
	}
	return did, nil
}

// replay replays the journal of a detached volume, after the host or a mount ended
// uncleanly, so that the image alone is a complete file system. If that fails, the next
// mount replays it.
func (p *Pool) replay(ctx context.Context, record Record, l *store.Lock) bool {
	if record.FileSystem == JFS {
		return false // its journal in memory was recovered
	}
	s, err := ext4.ReadSuperblock(p.blocks(record).Node())
	if err != nil || !s.NeedsRecovery || s.External() || s.InMemory {
		return false
	}
	if p.blocks(record).CheckUnused() != nil {
		return false
	}
	if err := p.step(ctx, "journal replayed", p.offline(record, l).ReplayJournal); err != nil {
		p.log.Warn("the journal could not be replayed; the next attach replays it", "volume", record.Name, "why", err)
		return false
	}
	return true
}
