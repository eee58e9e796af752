package volume

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/internal/versioned"
	"github.com/daybook-project/daybook/internal/wholefile"
	"github.com/daybook-project/daybook/volume/internal/cause"
	"github.com/daybook-project/daybook/volume/internal/store"
)

// Repaired is what [Pool.Repair] did and found.
type Repaired struct {
	// Work is how many half-made or half-deleted things were removed.
	Work int `json:"work_removed"`
	// Volumes were brought to a whole state; the text says which.
	Volumes map[string]string `json:"volumes"`
	// Busy are in the hands of a living process.
	Busy []string `json:"busy"`
	// Damaged need a person; the text says why.
	Damaged map[string]string `json:"damaged"`
	// Newer were written by a newer Daybook, and are left alone.
	Newer map[string]string `json:"newer"`
}

// Repair finishes or rolls back what killed processes left: of what was being
// made nothing remains, a volume is attached with all that belongs to it or not
// at all. It may run at any time, beside others. The error wraps ErrCorrupt if
// a volume is damaged, and ErrUnsupported if a newer Daybook has written one;
// the other volumes are in order then. It wraps
// ErrWorkLeft if something that was being made or deleted could not be removed.
func (p *Pool) Repair(ctx context.Context) (_ Repaired, err error) {
	defer func() { err = cause.Public(err) }()
	// A tool that a killed process had started dies a moment after it, and
	// holds its lock as long.
	deadline := time.Now().Add(repairPatience)
	done := Repaired{Volumes: map[string]string{}, Busy: []string{}, Damaged: map[string]string{}, Newer: map[string]string{}}
	// What cannot be cleared does not hold up the volumes.
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
		what, err := p.repair(ctx, name, deadline)
		switch {
		case errors.Is(err, ErrNotFound):
		case errors.Is(err, ErrBusy):
			done.Busy = append(done.Busy, name)
		case errors.Is(err, versioned.ErrNewer):
			done.Newer[name] = err.Error()
		case err != nil:
			done.Damaged[name] = err.Error()
		case what != "":
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

// ErrWorkLeft is in an error of [Pool.Repair] after which the volumes are in order, and
// something half-made or half-deleted is left, such as a logical volume that LVM cannot
// remove now. Another repair tries again.
var ErrWorkLeft = errors.New("something half-made or half-deleted is left")

// repairPatience is how long a repair waits, in all, for volumes that somebody
// works on.
const repairPatience = time.Second

func (p *Pool) repair(ctx context.Context, name string, deadline time.Time) (what string, err error) {
	l, err := store.AwaitLockUntil(ctx, p.files.VolumeDir(name), deadline)
	if err != nil {
		return "", err
	}
	defer l.Release()
	for _, file := range []string{filepath.Join(p.files.VolumeDir(name), store.RecordFile), p.files.KeptSuperblock(name)} {
		if err := store.RemoveIfThere(file + wholefile.TemporarySuffix); err != nil {
			return "", err
		}
	}
	record, err := p.files.Read(name)
	if err != nil {
		return "", err
	}
	finished, err := p.finishCheck(ctx, record, l)
	if err != nil {
		return "", err
	}
	if finished {
		what = "check finished"
	}
	if record.Resize != 0 {
		if record, err = p.finishResize(ctx, record, l); err != nil {
			return "", err
		}
		what = fmt.Sprintf("resize finished: %d bytes", record.SizeBytes)
	}
	before := record.Attachment
	if record, err = p.finishInterrupted(ctx, record); err != nil {
		return what, err
	}
	switch {
	case before != nil && record.Attachment == nil:
		what = fmt.Sprintf("%s was interrupted: detached", before.State)
		if before.State == Attached {
			what = "no longer attached: cleared"
		}
	case record.Attachment != nil:
		if placed := p.status(record).Placed; !placed {
			if err := p.place(ctx, record); err != nil {
				return what, err
			}
			if p.status(record).Placed {
				what = "jbd2 thread placed again"
			}
		}
	default:
		if err := p.blocks(record).Check(); err != nil {
			return what, err
		}
	}
	if record.Persist != nil && record.Attachment == nil {
		// A mount point that cannot be protected does not damage the volume.
		protected, err := p.protect(ctx, &record)
		if err != nil {
			p.warnUnprotected(record, err)
		}
		if protected {
			what = strings.TrimPrefix(what+"; mount point protected again", "; ")
		}
	}
	// Whatever took the mount away may have left a journal.
	if record.Attachment == nil && p.replay(ctx, record, l) {
		what = strings.TrimPrefix(what+"; journal replayed", "; ")
	}
	return what, nil
}

// replay brings what waits in a detached volume's journal to its place, so that
// the image is whole by itself, after the host or a mounting was stopped. What
// holds it up is the next mount's matter.
func (p *Pool) replay(ctx context.Context, record Record, l *store.Lock) bool {
	s, err := ext4.ReadSuperblock(p.blocks(record).Node())
	if err != nil || !s.NeedsRecovery || s.External() {
		return false
	}
	if p.blocks(record).CheckUnused() != nil {
		return false
	}
	if err := p.offline(record, l).ReplayJournal(ctx); err != nil {
		p.log.Warn("the journal waits for the next attaching", "volume", record.Name, "why", err)
		return false
	}
	return true
}
