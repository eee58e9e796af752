package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/volume/internal/cause"
	"github.com/daybook-project/daybook/volume/internal/imagefile"
	"github.com/daybook-project/daybook/volume/internal/store"
	"github.com/daybook-project/daybook/volume/placement"
	"github.com/daybook-project/daybook/volume/records"
)

// AttachOptions are the choices of [Pool.Attach]. The target is needed.
type AttachOptions struct {
	// Target is the mount point; it is made if it is missing, and then
	// removed by Detach.
	Target string
	// Cgroup is the parent cgroup, or with PlaceContainer the container's;
	// "" is /daybook/NAME, with PlaceParent.
	Cgroup string
	// Placement is PlaceParent if it is empty.
	Placement Placement
	// Weight instead of the volume's own; 0 takes that.
	Weight uint64
	// ReadOnly mounts it so.
	ReadOnly bool
	// AllowCache lets the image be read and written through the pool's page
	// cache where direct I/O is not to be had.
	AllowCache bool
	// Dev lets device nodes in the volume work; Suid lets set-user-ID and
	// set-group-ID bits, and capabilities of programs. Without them it is
	// mounted nodev and nosuid.
	Dev, Suid bool
	// Persist records that the volume is attached so at each start of the
	// host, by AttachAllPersistent. The target must be missing or empty; while
	// nothing is attached it is immutable, so that nothing can write into it.
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
		errs = append(errs, fmt.Errorf("%w placement: at the start of the host there is no container's cgroup; want %s or %s", ErrInvalid, PlaceParent, PlaceNone))
	}
	return o, errors.Join(append(errs, CheckWeight(o.Weight))...)
}

// Attach mounts a volume and places its jbd2 thread. If it fails, nothing is
// left. A volume that is attached there already stays as it is.
func (p *Pool) Attach(ctx context.Context, name string, options AttachOptions) (Status, error) {
	status, err := p.attach(ctx, name, options)
	if err != nil {
		return Status{}, cause.Failed("cannot attach volume %s: %w", name, err)
	}
	return status, nil
}

func (p *Pool) attach(ctx context.Context, name string, o AttachOptions) (Status, error) {
	if err := CheckName(name); err != nil {
		return Status{}, err
	}
	o, err := o.complete(name)
	if err != nil {
		return Status{}, err
	}
	if o.Target, err = resolveTarget(o.Target); err != nil {
		return Status{}, err
	}
	if records.Within(o.Target, p.dir) || records.Within(p.dir, o.Target) {
		return Status{}, fmt.Errorf("%w mount point %s: it would hide pool %s, or lie in it", ErrInvalid, o.Target, p.dir)
	}
	record, l, err := p.files.Hold(ctx, name)
	if err != nil {
		return Status{}, err
	}
	defer l.Release()
	if record, err = p.settle(ctx, record); err != nil {
		return Status{}, err
	}
	if err := checkPersist(record, o); err != nil {
		return Status{}, err
	}
	if a := record.Attachment; a != nil {
		if a.Target != o.Target || a.Placement != o.Placement || a.Cgroup != o.Cgroup || a.ReadOnly != o.ReadOnly || a.Dev != o.Dev || a.Suid != o.Suid {
			return Status{}, fmt.Errorf("it is %w: attached at %s (placement %s, cgroup %q, read-only %v, dev %v, suid %v)", ErrBusy, a.Target, a.Placement, a.Cgroup, a.ReadOnly, a.Dev, a.Suid)
		}
		if o.Persist && record.Persist == nil {
			if err := p.persistAttached(&record, o); err != nil {
				return Status{}, err
			}
		}
		err := p.place(ctx, record)
		return p.status(record), err
	}
	if record.PersistentAt(o.Target) {
		if err := checkParentMounted(*record.Persist); err != nil {
			return Status{}, err
		}
	}
	if record.Persist != nil {
		// First, for what follows may fail.
		if _, err := p.protect(&record); err != nil {
			p.warnUnprotected(record, err)
		}
	}
	if err := p.checkImage(record); err != nil {
		return Status{}, err
	}
	if _, err := p.mend(ctx, record, l); err != nil {
		return Status{}, err
	}
	weight := record.Weight
	record, err = p.begin(record, o)
	if err != nil {
		return Status{}, err
	}
	p.reached("attaching")
	if err = p.build(ctx, &record); err == nil {
		record.Attachment.State = Attached
		if record.PersistentAt(o.Target) {
			record.Persist.Unfinished, record.Persist.DetachedBootID = false, ""
		}
		err = p.files.Write(record)
	}
	if err != nil {
		// Not with ctx, which may be why it failed.
		undone, undoErr := p.undo(context.WithoutCancel(ctx), record)
		if undoErr == nil {
			undone.Weight = weight
			undoErr = p.writeUndone(undone)
		}
		return Status{}, errors.Join(err, undoErr)
	}
	p.reached("attached")
	return p.status(record), nil
}

// resolveTarget makes the path such as /proc/self/mountinfo will show it.
func resolveTarget(target string) (string, error) {
	target, err := filepath.Abs(target)
	if err != nil {
		return "", err
	}
	if target == "/" {
		return "", fmt.Errorf("%w mount point %q", ErrInvalid, target)
	}
	real, err := filepath.EvalSymlinks(target)
	if errors.Is(err, fs.ErrNotExist) {
		parent, err := filepath.EvalSymlinks(filepath.Dir(target))
		if err != nil {
			return "", fmt.Errorf("%w mount point %s: %w", ErrInvalid, target, err)
		}
		return filepath.Join(parent, filepath.Base(target)), nil
	}
	return real, err
}

// checkImage refuses what cannot be mounted, before anything is done.
func (p *Pool) checkImage(record Record) error {
	if err := p.checkImageThere(record); err != nil {
		return err
	}
	if record.Resize != 0 {
		return fmt.Errorf("it is %w: a resize to %d bytes was interrupted: daybook volume repair finishes it", ErrBusy, record.Resize)
	}
	return p.checkNoLoop(record)
}

// checkImageThere says whether the image is a file of the volume's size, or the
// device the volume's.
func (p *Pool) checkImageThere(record Record) error {
	if record.Device != "" {
		return checkDevice(record)
	}
	info, err := os.Stat(p.files.Image(record.Name))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("its image %s is missing: it is %w", p.files.Image(record.Name), ErrCorrupt)
	}
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || uint64(info.Size()) < record.SizeBytes {
		return fmt.Errorf("its image is %w: %d bytes long, want %d", ErrCorrupt, info.Size(), record.SizeBytes)
	}
	return nil
}

// begin records what is about to be done.
func (p *Pool) begin(record Record, o AttachOptions) (Record, error) {
	boot, err := store.BootID()
	if err != nil {
		return record, err
	}
	a := &Attachment{
		State: Attaching, BootID: boot, Target: o.Target, AllowCache: o.AllowCache, ReadOnly: o.ReadOnly,
		Dev: o.Dev, Suid: o.Suid, Placed: placement.Placed{Placement: o.Placement, Cgroup: o.Cgroup},
	}
	info, err := os.Stat(o.Target)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		a.MadeTarget = !o.Persist && !record.PersistentAt(o.Target)
	case err != nil:
		return record, err
	case !info.IsDir():
		return record, fmt.Errorf("%w mount point: %s is no directory", ErrInvalid, o.Target)
	}
	mounted, err := mountsAt(o.Target)
	if err != nil {
		return record, err
	}
	if mounted != "" {
		return record, fmt.Errorf("the mount point %s is %w: %s is mounted there", o.Target, ErrBusy, mounted)
	}
	if o.Weight != 0 {
		record.Weight = o.Weight
	}
	if record.Device != "" {
		facts, err := lookAtDevice(record.Device)
		if err != nil {
			return record, err
		}
		a.DeviceNumber = facts.dev.String()
	}
	record.Attachment = a
	if err := p.placed(record).Plan(); err != nil {
		return record, err
	}
	if o.Persist && record.Persist == nil {
		if err := planPersistence(&record, o); err != nil {
			return record, err
		}
	}
	return record, p.files.Write(record)
}

// build does what was recorded; what it learns it records as it goes.
func (p *Pool) build(ctx context.Context, record *Record) error {
	a := record.Attachment
	node := record.Device
	if node == "" {
		loop, err := p.buildLoop(record)
		if err != nil {
			return err
		}
		node = loop.Path()
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if a.MadeTarget {
		if err := makeTarget(a.Target); err != nil {
			return err
		}
	}
	if record.PersistentAt(a.Target) && record.Persist.Unfinished {
		if _, err := p.protect(record); err != nil {
			return err
		}
	}
	p.reached("target")
	if err := p.mount(*record, node); err != nil {
		return err
	}
	p.reached("mounted")
	return p.place(ctx, *record)
}

// buildLoop makes a loop device of the image, and records which.
func (p *Pool) buildLoop(record *Record) (blockdev.Loop, error) {
	a := record.Attachment
	options := blockdev.AttachOptions{
		DirectIO: true, ReadOnly: a.ReadOnly, BlockSizeBytes: p.loopSectorBytes(*record), Label: loopLabel(*record),
	}
	loop, err := blockdev.Attach(p.files.Image(record.Name), options)
	if errors.Is(err, blockdev.ErrNoDirectIO) {
		if !a.AllowCache {
			return loop, fmt.Errorf("%w: the pool's file system %s; --allow-cache does without, and then data is cached twice and an fsync of one volume waits for the pool's writeback", err, p.dir)
		}
		p.log.Warn("no direct I/O: the image is cached twice", "volume", record.Name, "why", err)
		options.DirectIO, options.BlockSizeBytes = false, record.SectorBytes
		loop, err = blockdev.Attach(p.files.Image(record.Name), options)
	}
	if err != nil {
		return loop, err
	}
	p.reached("looped")
	a.LoopDevice = loop.Name
	return loop, p.files.Write(*record)
}

// loopSectorBytes is the loop device's logical block size: what direct I/O takes
// now, if the file system's blocks are not smaller.
func (p *Pool) loopSectorBytes(record Record) uint32 {
	sector := imagefile.DirectSectorBytes(p.files.Image(record.Name), record.SectorBytes)
	s, err := ext4.ReadSuperblock(p.files.Image(record.Name))
	if err == nil && uint64(s.BlockSizeBytes) < uint64(sector) {
		return record.SectorBytes
	}
	return sector
}

func (p *Pool) mount(record Record, device string) error {
	a := record.Attachment
	target, err := openWithoutLinks(a.Target, unix.O_PATH)
	if err != nil {
		return fmt.Errorf("mount point: %w", err)
	}
	defer func() { _ = target.Close() }()
	return ext4.Mount(device, a.Target, ext4.MountOptions{
		At: target, ReadOnly: a.ReadOnly, NoAtime: record.NoAtime, NoDev: !a.Dev, NoSuid: !a.Suid, Data: mountData(record), JournalDevice: record.JournalDevice,
	})
}

// mountData are the volume's mount options. The inode tables of what a full one
// has grown by stay as they are: the kernel would zero them in the background,
// by a request that a loop device fulfils with holes.
func mountData(record Record) string {
	const asTheyAre = "noinit_itable"
	switch {
	case record.Provision != Full:
		return record.MountOptions
	case record.MountOptions == "":
		return asTheyAre
	}
	return asTheyAre + "," + record.MountOptions // the last word is the user's
}

// loopLabel is by what the loop devices that Daybook made are known: another
// program may attach the image, too.
func loopLabel(record Record) string { return "daybook volume " + record.ID }

// ownLoops finds the loop devices that Daybook made of a volume's image.
func (p *Pool) ownLoops(record Record) ([]blockdev.Loop, error) {
	all, err := p.loopsOf(record.Name)
	if err != nil {
		return nil, err
	}
	var own []blockdev.Loop
	for _, loop := range all {
		status, err := loop.Status()
		switch {
		case errors.Is(err, blockdev.ErrGone): // detached since
		case err != nil:
			return nil, err
		case status.Label == loopLabel(record):
			own = append(own, loop)
		}
	}
	return own, nil
}

// loopsOf finds the loop devices that have a volume's image, whoever made them:
// by its path, also where the file was removed since, which the kernel adds to
// it; or by its inode, where the pool has several paths.
func (p *Pool) loopsOf(name string) ([]blockdev.Loop, error) {
	all, err := blockdev.Loops()
	if err != nil {
		return nil, err
	}
	var image unix.Stat_t
	there := unix.Stat(p.files.Image(name), &image) == nil
	var found []blockdev.Loop
	for _, loop := range all {
		path, removed := strings.CutSuffix(loop.File, " (deleted)")
		if filepath.Base(path) != store.ImageFile {
			continue
		}
		same := path == p.files.Image(name)
		if there && !removed {
			// Another mount namespace may have another file at that path.
			if status, err := loop.Status(); err == nil {
				same = status.Inode == image.Ino && status.FileSystem == image.Dev
			}
		}
		if same {
			found = append(found, loop)
		}
	}
	return found, nil
}

// mountsAt says what is mounted on a directory; "" if nothing is.
func mountsAt(target string) (string, error) {
	mounts, err := blockdev.Mounts()
	if err != nil {
		return "", err
	}
	for _, mount := range mounts {
		if mount.Point == target {
			return mount.Source, nil
		}
	}
	return "", nil
}
