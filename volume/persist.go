package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/daybook-project/daybook/internal/kernel"
	"github.com/daybook-project/daybook/volume/internal/backing"
	"github.com/daybook-project/daybook/volume/internal/cause"
	"github.com/daybook-project/daybook/volume/internal/journal"
	"github.com/daybook-project/daybook/volume/internal/mountpoint"
	"github.com/daybook-project/daybook/volume/operation"
)

// persistence is what is recorded of options that are complete.
func (o AttachOptions) persistence() *Persistence {
	return &Persistence{
		Target: o.Target, Placement: o.Placement, Cgroup: o.Cgroup, ReadOnly: o.ReadOnly, AllowCache: o.AllowCache, Dev: o.Dev, Suid: o.Suid,
	}
}

// persistentOptions are those with which a volume is attached at each start.
func persistentOptions(s *Persistence) AttachOptions {
	return AttachOptions{
		Target: s.Target, Placement: s.Placement, Cgroup: s.Cgroup, ReadOnly: s.ReadOnly, AllowCache: s.AllowCache, Dev: s.Dev, Suid: s.Suid, Persist: true,
	}
}

// checkPersist refuses to make a volume persistent in a second way.
func checkPersist(record Record, o AttachOptions) error {
	s := record.Persist
	if !o.Persist || s == nil || persistentOptions(s) == persistentOptions(o.persistence()) {
		return nil
	}
	return fmt.Errorf("it is %w: at each start of the host it is attached at %s (placement %s, cgroup %q, read-only %v); daybook volume detach %s ends that",
		ErrBusy, s.Target, s.Placement, s.Cgroup, s.ReadOnly, record.Name)
}

// planPersistence enters into the record that the volume becomes persistent.
// The mount point must be empty, or missing.
func planPersistence(record *Record, o AttachOptions) error {
	s := o.persistence()
	s.Unfinished = true
	var err error
	if s.ParentMount, err = mountpoint.MountOf(filepath.Dir(o.Target)); err != nil {
		return err
	}
	dir, err := mountpoint.OpenBelow(o.Target)
	if errors.Is(err, fs.ErrNotExist) {
		s.MadeTarget = true
		record.Persist = s
		return nil
	}
	if err != nil {
		return fmt.Errorf("mount point: %w", err)
	}
	defer func() { _ = dir.Close() }()
	if err := mountpoint.CheckEmpty(dir); err != nil {
		return err
	}
	record.Persist = s
	return nil
}

// persistAttached makes a volume persistent that is attached already.
func (p *Pool) persistAttached(ctx context.Context, record *Record, o AttachOptions) error {
	if err := planPersistence(record, o); err != nil {
		return err
	}
	err := p.run(record).Do(ctx,
		enter("persisting", func() {
			// The mount point goes with the persistence from now on.
			record.Persist.MadeTarget, record.Attachment.MadeTarget = record.Attachment.MadeTarget, false
		}),
		operation.Step{Name: "protection", Do: func(ctx context.Context) error {
			_, err := p.protect(ctx, record)
			return err
		}},
		enter("persistent", func() { record.Persist.Unfinished = false }),
	)
	if err != nil {
		return errors.Join(err, p.unpersistAttached(context.WithoutCancel(ctx), record))
	}
	return nil
}

// unpersistAttached rolls back what persistAttached did; the volume stays
// attached, and has its mount point again.
func (p *Pool) unpersistAttached(ctx context.Context, record *Record) error {
	return p.run(record).Do(ctx,
		operation.Step{Name: "unprotected", Do: func(context.Context) error {
			if record.Persist.Protected {
				p.clearFlag(*record)
			}
			return nil
		}},
		enter("not persistent", func() {
			record.Attachment.MadeTarget = record.Persist.MadeTarget
			record.Persist = nil
		}),
	)
}

// recordEnding records that the persistence is about to end.
func (p *Pool) recordEnding(ctx context.Context, record *Record) error {
	err := p.run(record).Do(ctx, enter("persistence ending", func() { record.Persist.Unfinished = true }))
	if err != nil {
		return fmt.Errorf("cannot record that it is no longer attached at the start of the host (free some space in pool %s, then: daybook volume detach %s): %w",
			p.dir, record.Name, err)
	}
	return nil
}

// endPersistence ends what recordEnding has recorded, of a volume that is not
// attached.
func (p *Pool) endPersistence(ctx context.Context, record *Record) error {
	if err := p.unprotect(ctx, *record); err != nil {
		return err
	}
	record.Persist = nil
	return p.writeDetached(*record)
}

// AttachPersistent attaches a volume as it was recorded by Attach with
// [AttachOptions].Persist. The error wraps ErrInvalid if that never was. One that
// is attached so already stays as it is.
func (p *Pool) AttachPersistent(ctx context.Context, name string) (_ Status, err error) {
	defer func() { err = cause.Public(err) }()
	record, err := p.files.Read(name)
	if err != nil {
		return Status{}, err
	}
	s := record.Persist
	if s == nil || s.Unfinished {
		return Status{}, fmt.Errorf("cannot attach volume %s: %w mount point: none is given, and none was recorded: want --target, once with --persist", name, ErrInvalid)
	}
	return p.Attach(ctx, name, persistentOptions(s))
}

// AttachAllPersistent attaches all volumes that are persistent. One that fails
// does not hold up the others: its mount point is protected, and its error is
// among those joined. Until the deadline it waits for devices that appear late, as
// logical volumes do at the start of the host, and retries volumes that are busy or
// whose mount point's file system is not mounted.
func (p *Pool) AttachAllPersistent(ctx context.Context, deadline time.Time) (_ []Status, err error) {
	defer func() { err = cause.Public(err) }()
	names, err := p.files.Names()
	if err != nil {
		return nil, err
	}
	var errs []error
	var persistent []Record
	for _, name := range names {
		record, err := p.files.Read(name)
		switch {
		case errors.Is(err, ErrNotFound): // deleted since
		case err != nil:
			errs = append(errs, err)
		case record.Persist != nil && !record.Persist.Unfinished:
			persistent = append(persistent, record)
		}
	}
	// A mount point may be in another volume.
	slices.SortFunc(persistent, func(a, b Record) int { return strings.Compare(a.Persist.Target, b.Persist.Target) })
	var attached []Status
	for len(persistent) > 0 {
		var busy []Record
		for _, record := range persistent {
			awaitNodes(ctx, deadline, p.outsideNodes(record)...)
			status, err := p.AttachPersistent(ctx, record.Name)
			switch {
			case err == nil:
				attached = append(attached, status)
			case (errors.Is(err, ErrBusy) || errors.Is(err, errParentUnmounted)) && ctx.Err() == nil && time.Now().Before(deadline):
				busy = append(busy, record)
			default:
				errs = append(errs, err)
			}
		}
		if persistent = busy; len(busy) > 0 {
			pause(ctx, busyPause)
		}
	}
	return attached, errors.Join(errs...)
}

// busyPause is the time between two attempts to attach volumes that are busy.
const busyPause = 100 * time.Millisecond

// pause waits for a time, or until the context ends.
func pause(ctx context.Context, length time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(length):
	}
}

// outsideNodes are the device nodes outside of the pool that a volume needs.
func (p *Pool) outsideNodes(record Record) []string {
	nodes := journal.Of(record).Nodes()
	if blocks := p.blocks(record); !blocks.InPool() {
		nodes = append(nodes, blocks.Node())
	}
	return nodes
}

// awaitNodes waits for device nodes that are not there yet. Whether they came is for
// the attaching to say.
func awaitNodes(ctx context.Context, deadline time.Time, nodes ...string) {
	for _, node := range nodes {
		for node != "" && time.Now().Before(deadline) {
			if _, err := os.Stat(node); !backing.IsGone(err) {
				break
			}
			if pause(ctx, 50*time.Millisecond); ctx.Err() != nil {
				return
			}
		}
	}
}

// persistenceProblem says that a volume should be attached and is not; "" if it
// is not to be, or its user has detached it since the host was started.
func persistenceProblem(record Record) string {
	s := record.Persist
	if s == nil || record.Attachment != nil {
		return ""
	}
	if s.Unfinished {
		return "it is half persistent: daybook volume repair"
	}
	if boot, err := kernel.BootID(); err != nil || s.DetachedBootID == boot {
		return ""
	}
	return fmt.Sprintf("it should be attached at %s since the start of the host: daybook volume attach %s", s.Target, record.Name)
}
