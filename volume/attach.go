package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/internal/kernel"
	"github.com/daybook-project/daybook/volume/internal/backing"
	"github.com/daybook-project/daybook/volume/internal/cause"
	"github.com/daybook-project/daybook/volume/internal/journal"
	"github.com/daybook-project/daybook/volume/internal/mountpoint"
	"github.com/daybook-project/daybook/volume/placement"
	"github.com/daybook-project/daybook/volume/records"
)

// AttachOptions are the choices of [Pool.Attach]. The target is needed.
type AttachOptions struct {
	// Target is the mount point; it is made if it is missing, and then
	// removed by Detach.
	Target string
	// Cgroup is the parent cgroup, or with PlaceContainer the container's;
	// "" is placement.DefaultParent(NAME), with PlaceParent. A parent may be named as a
	// slice of systemd, such as "databases.slice".
	Cgroup string
	// Placement is PlaceParent if it is empty.
	Placement Placement
	// Weight is the parent cgroup's, from MinWeight to MaxWeight (1 to 1000), relative to
	// other cgroups. Once the volume is attached, it is the volume's own weight, also for
	// later attaches. 0 leaves the volume's own.
	Weight uint64
	// ReadOnly mounts it so.
	ReadOnly bool
	// AllowCache allows reading and writing the image through the pool's page
	// cache where direct I/O is not available.
	AllowCache bool
	// Dev enables device nodes in the volume. Suid enables set-user-ID and
	// set-group-ID bits, and capabilities of programs. Without them it is
	// mounted nodev and nosuid.
	Dev, Suid bool
	// Persist records that the volume is attached with these options at each boot,
	// by AttachAllPersistent. The target must be missing or empty. While
	// nothing is attached it is immutable, so that no process can write into it.
	Persist bool
}

func (o AttachOptions) complete(name string) (AttachOptions, error) {
	var errs []error
	var err error
	if o.Placement, o.Cgroup, err = placement.Complete(o.Placement, o.Cgroup, name); err != nil {
		errs = append(errs, err)
	}
	if o.Target == "" {
		errs = append(errs, fmt.Errorf("%w: no mount point", ErrInvalid))
	}
	if o.Persist && o.Placement == PlaceContainer {
		errs = append(errs, fmt.Errorf("%w placement: at boot there is no container's cgroup; want %s or %s", ErrInvalid, PlaceParent, PlaceNone))
	}
	return o, errors.Join(append(errs, CheckWeight(o.Weight))...)
}

// Attach mounts a volume and places its jbd2 thread. If it fails, it leaves nothing. A
// volume that is attached with these options already is not changed; the error wraps ErrBusy
// if it is attached with others.
func (p *Pool) Attach(ctx context.Context, name string, options AttachOptions) (Status, error) {
	status, err := p.attach(ctx, name, options, (*held).attachAgain)
	if err != nil {
		return Status{}, cause.Failed("cannot attach volume %s: %w", name, err)
	}
	return status, nil
}

// attachAgainFunc handles a volume that is attached already.
type attachAgainFunc func(v *held, ctx context.Context, o AttachOptions) (Status, error)

func (p *Pool) attach(ctx context.Context, name string, o AttachOptions, again attachAgainFunc) (Status, error) {
	o, err := p.completeAttach(name, o)
	if err != nil {
		return Status{}, err
	}
	v, err := p.hold(ctx, name)
	if err != nil {
		return Status{}, err
	}
	defer v.release()
	if err := v.finishInterrupted(ctx); err != nil {
		return Status{}, err
	}
	if err := checkPersist(v.record, o); err != nil {
		return Status{}, err
	}
	if v.record.Attachment != nil {
		return again(v, ctx, o)
	}
	if err := v.guardTarget(ctx, o.Target); err != nil {
		return Status{}, err
	}
	if _, err := v.finishExchange(); err != nil {
		return Status{}, err
	}
	if err := v.checkBlocks(ctx); err != nil {
		return Status{}, err
	}
	if _, err := v.finishCheck(ctx); err != nil {
		return Status{}, err
	}
	return v.attachDetached(ctx, o)
}

// completeAttach completes the options, and resolves the mount point.
func (p *Pool) completeAttach(name string, o AttachOptions) (AttachOptions, error) {
	if err := CheckName(name); err != nil {
		return o, err
	}
	o, err := o.complete(name)
	if err != nil {
		return o, err
	}
	if o.Target, err = mountpoint.Resolve(o.Target); err != nil {
		return o, err
	}
	if records.Within(o.Target, p.dir) || records.Within(p.dir, o.Target) {
		return o, fmt.Errorf("%w mount point %s: it would hide pool %s, or lie in it", ErrInvalid, o.Target, p.dir)
	}
	return o, nil
}

// attachedWith returns the options of an attached volume, without Persist.
func attachedWith(record Record) AttachOptions {
	a := record.Attachment
	return AttachOptions{
		Target: a.Target, Placement: a.Placement, Cgroup: a.Cgroup, Weight: record.Weight, ReadOnly: a.ReadOnly, AllowCache: a.AllowCache, Dev: a.Dev, Suid: a.Suid,
	}
}

// differences lists what is in force otherwise than complete options want it, such as "attached
// at /srv/db1; weight 300, not 700"; "" if nothing. Persist is not compared, nor a Weight of 0.
func (o AttachOptions) differences(inForce AttachOptions) string {
	if o.Weight == 0 {
		o.Weight = inForce.Weight
	}
	if o.Persist = inForce.Persist; o == inForce {
		return ""
	}
	text := "attached at " + inForce.Target
	if o.Target != inForce.Target {
		text += ", not at " + o.Target
	}
	for _, option := range []struct {
		name         string
		is, isWanted any
	}{
		{"placement", inForce.Placement, o.Placement},
		{"cgroup", strconv.Quote(inForce.Cgroup), strconv.Quote(o.Cgroup)}, // "" with none
		{"weight", inForce.Weight, o.Weight},
		{"read-only", inForce.ReadOnly, o.ReadOnly},
		{"allow-cache", inForce.AllowCache, o.AllowCache},
		{"dev", inForce.Dev, o.Dev},
		{"suid", inForce.Suid, o.Suid},
	} {
		if option.is != option.isWanted {
			text += fmt.Sprintf("; %s %v, not %v", option.name, option.is, option.isWanted)
		}
	}
	return text
}

// attachAgain changes nothing of a volume that is attached with these options, but may
// make it persistent, and places a new jbd2 thread.
func (v *held) attachAgain(ctx context.Context, o AttachOptions) (Status, error) {
	if differs := o.differences(attachedWith(v.record)); differs != "" {
		return Status{}, fmt.Errorf("it is %w: %s; to change that, detach it first", ErrBusy, differs)
	}
	if o.Persist && v.record.Persist == nil {
		if err := v.persistAttached(ctx, o); err != nil {
			return Status{}, err
		}
	}
	err := v.place(ctx)
	return v.pool.status(v.record), err
}

// guardTarget protects the mount point of a persistent volume, and refuses to attach the
// volume there while the file system of the mount point is not mounted.
func (v *held) guardTarget(ctx context.Context, target string) error {
	if v.record.PersistentAt(target) {
		if err := checkParentMounted(*v.record.Persist); err != nil {
			return err
		}
	}
	if v.record.Persist != nil {
		// First, because the rest may fail.
		if _, err := v.protect(ctx); err != nil {
			v.warnUnprotected(err)
		}
	}
	return nil
}

// attachDetached attaches a volume that can be attached. If that fails, the volume is
// detached again, and has its earlier weight.
func (v *held) attachDetached(ctx context.Context, o AttachOptions) (Status, error) {
	if err := v.planAttach(o); err != nil {
		return Status{}, err
	}
	if err := v.run().Do(ctx, enter("attaching", func() {})); err != nil {
		return Status{}, err
	}
	err := v.run().Do(ctx, v.attachSteps()...)
	if err == nil {
		unfinished := v.record
		if err = v.run().Do(ctx, enter("attached", func() { v.record = finished(v.record) })); err == nil {
			return v.pool.status(v.record), nil
		}
		v.record = unfinished
	}
	// Not with ctx, which may be why it failed.
	undoErr := v.rollback(context.WithoutCancel(ctx))
	if undoErr == nil {
		undoErr = v.writeDetached()
	}
	return Status{}, errors.Join(err, undoErr)
}

// finished returns the record of a finished attach. The given one can still be rolled back.
func finished(record Record) Record {
	a := *record.Attachment
	a.State, a.EarlierWeight = Attached, nil
	if record.PersistentAt(a.Target) {
		s := *record.Persist
		s.Unfinished, s.DetachedBootID = false, ""
		record.Persist = &s
	}
	record.Attachment = &a
	return record
}

// blocks returns the blocks of a volume in the pool.
func (p *Pool) blocks(record Record) backing.Backing {
	return backing.Of(p.files.VolumeDir(record.Name), record, p.log)
}

// checkBlocks refuses blocks that cannot be mounted, before anything changes.
func (v *held) checkBlocks(ctx context.Context) error {
	if v.record.Resize != 0 {
		return fmt.Errorf("it is %w: a resize to %d bytes was interrupted: daybook volume repair finishes it", ErrBusy, v.record.Resize)
	}
	if err := v.blocks().Check(ctx); err != nil {
		return err
	}
	if err := v.blocks().CheckUnused(); err != nil {
		return err
	}
	return journal.Of(v.record).Check(ctx, v.blocks().Node())
}

// planAttach enters the attachment in the record.
func (v *held) planAttach(o AttachOptions) error {
	boot, err := kernel.BootID()
	if err != nil {
		return err
	}
	a := &Attachment{
		State: Attaching, BootID: boot, Target: o.Target, AllowCache: o.AllowCache, ReadOnly: o.ReadOnly,
		Dev: o.Dev, Suid: o.Suid, Placed: placement.Placed{Placement: o.Placement, Cgroup: o.Cgroup},
	}
	info, err := os.Stat(o.Target)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		a.MadeTarget = !o.Persist && !v.record.PersistentAt(o.Target)
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%w mount point: %s is no directory", ErrInvalid, o.Target)
	}
	mounted, err := mountpoint.Mounted(o.Target)
	if err != nil {
		return err
	}
	if mounted != "" {
		return fmt.Errorf("the mount point %s is %w: %s is mounted there", o.Target, ErrBusy, mounted)
	}
	if earlier := v.record.Weight; o.Weight != 0 && o.Weight != earlier {
		a.EarlierWeight, v.record.Weight = &earlier, o.Weight
	}
	if !v.record.InPool() {
		facts, err := backing.LookAt(v.blocks().Node())
		if err != nil {
			return err
		}
		a.DeviceNumber = facts.Dev.String()
	}
	v.record.Attachment = a
	if err := v.placed().Plan(); err != nil {
		return err
	}
	if o.Persist && v.record.Persist == nil {
		return v.planPersistence(o)
	}
	return nil
}

func (v *held) mount(device string) error {
	a := v.record.Attachment
	target, err := mountpoint.OpenWithoutLinks(a.Target, unix.O_PATH)
	if err != nil {
		return fmt.Errorf("mount point: %w", err)
	}
	defer func() { _ = target.Close() }()
	options := ext4.MountOptions{At: target, ReadOnly: a.ReadOnly, NoAtime: v.record.NoAtime, NoDev: !a.Dev, NoSuid: !a.Suid, Data: mountData(v.record)}
	journal.Of(v.record).Mount(&options)
	return ext4.Mount(device, a.Target, options)
}

// mountData returns the volume's mount options. The kernel must not zero the inode
// tables of the part that a full volume has grown by: it would do so in the background, by
// a request that a loop device fulfils with holes.
func mountData(record Record) string {
	const asTheyAre = "noinit_itable"
	switch {
	case record.Provision != Full || !record.InPool() || record.FileSystem == records.JFS:
		return record.MountOptions
	case record.MountOptions == "":
		return asTheyAre
	}
	return asTheyAre + "," + record.MountOptions // the user's come last and win
}
