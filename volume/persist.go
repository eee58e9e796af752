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

// persistence returns the record of complete options.
func (o AttachOptions) persistence() *Persistence {
	return &Persistence{
		Target: o.Target, Placement: o.Placement, Cgroup: o.Cgroup, ReadOnly: o.ReadOnly, AllowCache: o.AllowCache, Dev: o.Dev, Suid: o.Suid,
	}
}

// persistentOptions returns the options for attaching at each boot.
func persistentOptions(s *Persistence) AttachOptions {
	return AttachOptions{
		Target: s.Target, Placement: s.Placement, Cgroup: s.Cgroup, ReadOnly: s.ReadOnly, AllowCache: s.AllowCache, Dev: s.Dev, Suid: s.Suid, Persist: true,
	}
}

// checkPersist refuses to make a persistent volume persistent with other options.
func checkPersist(record Record, o AttachOptions) error {
	s := record.Persist
	if !o.Persist || s == nil {
		return nil
	}
	differs := persistentOptions(o.persistence()).differences(persistentOptions(s))
	if differs == "" {
		return nil
	}
	return fmt.Errorf("it is %w: at each boot it is %s; daybook volume detach %s ends that", ErrBusy, differs, record.Name)
}

// planPersistence enters in the record that the volume becomes persistent.
// The mount point must be empty or missing.
func (v *held) planPersistence(o AttachOptions) error {
	s := o.persistence()
	s.Unfinished = true
	var err error
	if s.ParentMount, err = mountpoint.MountOf(filepath.Dir(o.Target)); err != nil {
		return err
	}
	dir, err := mountpoint.OpenBelow(o.Target)
	if errors.Is(err, fs.ErrNotExist) {
		s.MadeTarget = true
		v.record.Persist = s
		return nil
	}
	if err != nil {
		return fmt.Errorf("mount point: %w", err)
	}
	defer func() { _ = dir.Close() }()
	if err := mountpoint.CheckEmpty(dir); err != nil {
		return err
	}
	v.record.Persist = s
	return nil
}

// persistAttached makes an attached volume persistent.
func (v *held) persistAttached(ctx context.Context, o AttachOptions) error {
	if err := v.planPersistence(o); err != nil {
		return err
	}
	s, a := v.record.Persist, v.record.Attachment
	err := v.run().Do(ctx,
		// The mount point goes with the persistence from now on.
		enter("persisting", func() { s.MadeTarget, a.MadeTarget = a.MadeTarget, false }),
		operation.Step{Name: "protection", Do: func(ctx context.Context) error {
			_, err := v.protect(ctx)
			return err
		}},
		enter("persistent", func() { s.Unfinished = false }),
	)
	if err != nil {
		return errors.Join(err, v.unpersistAttached(context.WithoutCancel(ctx)))
	}
	return nil
}

// unpersistAttached rolls back what persistAttached did. The volume stays attached, and
// its mount point belongs to the attachment again.
func (v *held) unpersistAttached(ctx context.Context) error {
	return v.run().Do(ctx,
		operation.Step{Name: "unprotected", Do: func(context.Context) error {
			if v.record.Persist.Protected {
				v.clearFlag()
			}
			return nil
		}},
		enter("not persistent", func() {
			v.record.Attachment.MadeTarget = v.record.Persist.MadeTarget
			v.record.Persist = nil
		}),
	)
}

// recordEnding records the intent to end the persistence.
func (v *held) recordEnding(ctx context.Context) error {
	err := v.run().Do(ctx, enter("persistence ending", func() { v.record.Persist.Unfinished = true }))
	if err != nil {
		return fmt.Errorf("cannot record that it is no longer attached at boot (free some space in pool %s, then: daybook volume detach %s): %w",
			v.pool.dir, v.record.Name, err)
	}
	return nil
}

// endPersistence ends the persistence of a volume that is not attached, after
// recordEnding.
func (v *held) endPersistence(ctx context.Context) error {
	if err := v.unprotect(ctx); err != nil {
		return err
	}
	v.record.Persist = nil
	return v.writeDetached()
}

// AttachPersistent attaches a volume with the options that Attach has recorded for
// [AttachOptions].Persist. The error wraps ErrInvalid if there are none. A volume that is
// attached with them already is not changed, also if its AllowCache or Weight is another one.
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
	status, err := p.attach(ctx, name, persistentOptions(s), (*held).attachPersistentAgain)
	if err != nil {
		return Status{}, cause.Failed("cannot attach volume %s: %w", name, err)
	}
	return status, nil
}

// attachPersistentAgain is attachAgain with the recorded options. They have no weight. The
// volume keeps the AllowCache that its user attached it with since the boot.
func (v *held) attachPersistentAgain(ctx context.Context, o AttachOptions) (Status, error) {
	inForce, sameCache := attachedWith(v.record), o
	sameCache.AllowCache = inForce.AllowCache
	differs := o.differences(inForce)
	if differs == "" || sameCache.differences(inForce) != "" {
		return v.attachAgain(ctx, o)
	}
	v.pool.log.Warn("the volume is attached with another option than at each boot", "volume", v.record.Name, "differs", differs)
	return v.attachAgain(ctx, sameCache)
}

// AttachAllPersistent attaches all persistent volumes. If one fails, it continues with the
// others: the mount point is protected, and the errors are joined. Until the deadline it
// waits for devices that appear late at boot, activates logical volumes,
// and retries volumes that are busy or that need another file system mounted first.
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
		case errors.Is(err, ErrNotFound): // deleted meanwhile
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
			p.awaitNodes(ctx, deadline, record)
			status, err := p.AttachPersistent(ctx, record.Name)
			switch {
			case err == nil:
				attached = append(attached, status)
			case (errors.Is(err, ErrBusy) || errors.Is(err, errParentUnmounted)) && ctx.Err() == nil && time.Now().Before(deadline):
				busy = append(busy, record)
			case errors.Is(err, ErrNotFound) && p.isGone(record.Name): // deleted meanwhile
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

// isGone says whether there is no volume of that name.
func (p *Pool) isGone(name string) bool {
	_, err := p.files.Read(name)
	return errors.Is(err, ErrNotFound)
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

// activatePause is the time between two attempts to activate a logical volume, each of
// which runs a command.
const activatePause = time.Second

// awaitNodes waits for the device nodes outside of the pool that a volume needs. Blocks
// that need it are activated: without that, their node never appears. The attaching
// reports what is missing in the end.
func (p *Pool) awaitNodes(ctx context.Context, deadline time.Time, record Record) {
	blocks, nodes := p.blocks(record), journal.Of(record).Nodes()
	if !record.InPool() {
		nodes = append(nodes, blocks.Node())
	}
	var tried time.Time
	for _, node := range nodes {
		for time.Now().Before(deadline) && ctx.Err() == nil {
			if node == blocks.Node() && isMissing(node) && time.Since(tried) >= activatePause {
				if err := blocks.Activate(ctx); err != nil {
					p.log.Debug("the volume's blocks are not there yet", "volume", record.Name, "why", err)
				}
				tried = time.Now()
			}
			if !isMissing(node) {
				break
			}
			pause(ctx, 50*time.Millisecond)
		}
	}
}

func isMissing(node string) bool {
	_, err := os.Stat(node)
	return backing.IsGone(err)
}

// persistenceProblem reports a volume that should be attached and is not; "" if it is not
// persistent, or was detached by its user since the boot.
func persistenceProblem(record Record) string {
	s := record.Persist
	if s == nil || record.Attachment != nil {
		return ""
	}
	if s.Unfinished {
		return "a change of its persistence is unfinished: daybook volume repair"
	}
	if boot, err := kernel.BootID(); err != nil || s.DetachedBootID == boot {
		return ""
	}
	return fmt.Sprintf("it should be attached at %s since the last boot: daybook volume attach %s", s.Target, record.Name)
}
