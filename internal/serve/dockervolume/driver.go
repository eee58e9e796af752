package dockervolume

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/daybook-project/daybook/volume"
)

// driver performs the calls of the engines. Engines repeat a call if the answer
// was lost, so each call may come twice.
type driver struct {
	pool  *volume.Pool
	users *users
	names names
	// targets is the directory of the mount points, one directory for each
	// volume; absolute and without symbolic links.
	targets string
	// sizeBytes is the size of volumes that are created without one; 0 rejects
	// them.
	sizeBytes uint64
	parse     ParseBytes
	log       *slog.Logger
	// patience is how long Unmount waits until the kernel has removed a
	// container that has ended.
	patience time.Duration
}

// detachPause is between two attempts to detach.
const detachPause = 100 * time.Millisecond

func (d *driver) target(name string) string { return filepath.Join(d.targets, name) }

// made is where this plugin has attached a volume with users, also if it was started with
// another target directory then. An operator may have attached it elsewhere since.
func (d *driver) made(name string) string {
	if target := d.users.target(name); target != "" {
		return target
	}
	return d.target(name) // recorded by an earlier version
}

func (d *driver) create(ctx context.Context, name string, given map[string]string) error {
	if err := volume.CheckName(name); err != nil {
		return err
	}
	s, err := parseOptions(given, d.parse)
	if err != nil {
		return fmt.Errorf("cannot create volume %s: %w", name, err)
	}
	release, err := d.names.hold(ctx, name)
	if err != nil {
		return err
	}
	defer release()
	there, err := d.pool.Inspect(ctx, name)
	if err == nil {
		if maps.Equal(there.Labels, s.create.Labels) {
			return nil
		}
		return fmt.Errorf("cannot create volume %s: it %w, with other options: %s", name, volume.ErrExists, describe(there.Record))
	}
	if !errors.Is(err, volume.ErrNotFound) {
		return err
	}
	if s.create.SizeBytes == 0 && s.create.Device == "" {
		if s.create.SizeBytes = d.sizeBytes; s.create.SizeBytes == 0 {
			return fmt.Errorf("cannot create volume %s: no size: want -o size=10G or -o device=/dev/vg/db1, or a plugin that was started with --size", name)
		}
	}
	_, err = d.pool.Create(ctx, name, s.create)
	return err
}

// describe lists the options with which a volume was made.
func describe(record volume.Record) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(record.Labels)) {
		option, ours := strings.CutPrefix(name, labelPrefix)
		if !ours {
			option = userLabel + name
		}
		parts = append(parts, fmt.Sprintf("%s=%s", option, record.Labels[name]))
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, " ")
}

// remove deletes a volume. An engine calls it only if none of its containers
// has the volume, so recorded users are dead. A living user, of whatever
// engine, keeps the volume busy.
func (d *driver) remove(ctx context.Context, name string) error {
	release, err := d.names.hold(ctx, name)
	if err != nil {
		return err
	}
	defer release()
	if ids, known := d.users.get(name); known {
		if len(ids) > 0 {
			d.log.Warn("removing a volume with recorded users that were never unmounted", "volume", name, "users", len(ids))
		}
		if err := d.pool.DetachFrom(ctx, name, d.made(name), false); err != nil && !errors.Is(err, volume.ErrNotFound) {
			return err
		}
		if err := d.users.forget(name); err != nil {
			return err
		}
	}
	err = d.pool.Delete(ctx, name, volume.DeleteOptions{})
	if errors.Is(err, volume.ErrNotFound) {
		return nil
	}
	return err
}

// mount attaches a volume for one more user and returns its mount point.
func (d *driver) mount(ctx context.Context, name, id string) (mountpoint string, err error) {
	if err := checkID(id); err != nil {
		return "", fmt.Errorf("cannot mount volume %s: %w", name, err)
	}
	release, err := d.names.hold(ctx, name)
	if err != nil {
		return "", err
	}
	defer release()
	before, err := d.pool.Inspect(ctx, name)
	if err != nil {
		return "", err
	}
	options, err := attachOptions(before.Labels)
	if err != nil {
		return "", fmt.Errorf("the labels of volume %s: %w", name, err)
	}
	ids, known := d.users.get(name)
	target := d.made(name)
	held := known && before.Mountpoint != "" && before.Attachment.Target == target
	if !held {
		// A volume that is not attached, or that another has attached, has no users.
		target = d.target(name)
	}
	options.Target = target
	// The directory may be gone if /run was cleared.
	if err := os.MkdirAll(d.targets, 0o711); err != nil {
		return "", fmt.Errorf("cannot mount volume %s: %w", name, err)
	}
	if held {
		err = d.users.join(name, target, id)
	} else {
		err = d.users.set(name, target, []string{id})
	}
	if err != nil {
		return "", fmt.Errorf("cannot mount volume %s: %w", name, err)
	}
	status, err := d.pool.Attach(ctx, name, options)
	if err == nil {
		ids, _ = d.users.get(name)
		d.log.Info("mounted", "volume", name, "at", status.Mountpoint, "users", len(ids), "journal_cgroup", status.JournalCgroup)
		return status.Mountpoint, nil
	}
	switch {
	case !held:
		err = errors.Join(err, d.users.forget(name))
	case !slices.Contains(ids, id): // else this is a repeated call
		_, _, undone := d.users.leave(name, id)
		err = errors.Join(err, undone)
	}
	return "", err
}

// unmount ends one use, and detaches the volume after the last one. A volume
// that cannot be detached yet is not an error for the engine: it is recorded,
// and tidy detaches it. The same holds for a call that waits for another until ctx ends: the
// engine does not repeat it, and the user would stay recorded.
func (d *driver) unmount(ctx context.Context, name, id string) error {
	release, waited := d.names.hold(ctx, name)
	if waited == nil {
		defer release()
	}
	left, known, err := d.users.leave(name, id)
	if err != nil || !known {
		return err
	}
	if left > 0 {
		d.log.Info("unmounted for one user", "volume", name, "users", left)
		return nil
	}
	if waited != nil {
		d.log.Warn("the volume stays attached for now", "volume", name, "why", waited)
		return nil
	}
	err = d.detach(context.WithoutCancel(ctx), name, d.patience)
	if errors.Is(err, volume.ErrBusy) {
		d.log.Warn("the volume stays attached while it is in use", "volume", name, "why", err)
		return nil
	}
	return err
}

// detach detaches a volume without users from where mount attached it. It retries for a
// while, because a container's mounts exist a little longer than its last process.
func (d *driver) detach(ctx context.Context, name string, patience time.Duration) error {
	for deadline := time.Now().Add(patience); ; {
		err := d.pool.DetachFrom(ctx, name, d.made(name), true) // keep the record of attach --persist
		if errors.Is(err, volume.ErrNotFound) {
			d.log.Warn("the mount of the last user is gone already", "volume", name, "why", err)
			return d.users.forget(name)
		}
		if err == nil {
			d.log.Info("unmounted", "volume", name)
			return d.users.forget(name)
		}
		if !errors.Is(err, volume.ErrBusy) || time.Now().After(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(detachPause):
		}
	}
}

// Pause between two attempts to detach. Each attempt unmounts, and mounts again
// if another mount namespace still uses the volume.
const (
	tidyPause    = 2 * time.Second
	tidyPauseMax = 2 * time.Minute
)

// tidy detaches volumes without users, and saves who has left, until ctx ends. It logs an error
// once for each volume.
func (d *driver) tidy(ctx context.Context) {
	logged := map[string]string{}
	for pause := tidyPause; ; {
		left := false
		check := func(err error, name, text string, attributes ...any) {
			if err == nil {
				delete(logged, name)
				return
			}
			left = true
			if logged[name] != err.Error() {
				d.log.Warn(text, append(attributes, "why", err)...)
				logged[name] = err.Error()
			}
		}
		check(d.users.save(), "", "cannot record yet who has left; retrying")
		for _, name := range d.users.all() {
			check(d.tidyOne(ctx, name), name, "cannot detach a volume that no container uses; retrying", "volume", name)
		}
		if pause = min(2*pause, tidyPauseMax); !left {
			pause = tidyPause
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// tidyOne detaches a volume without users. It leaves one that a call works on, which may take for
// ever, to the next round.
func (d *driver) tidyOne(ctx context.Context, name string) error {
	release := d.names.tryHold(name)
	if release == nil {
		return nil
	}
	defer release()
	if ids, known := d.users.get(name); !known || len(ids) > 0 {
		return nil
	}
	return d.detach(ctx, name, 0)
}

// recall drops the users of volumes that are deleted, not attached (after a reboot, or
// after a detach by hand), or attached elsewhere by hand.
func (d *driver) recall(ctx context.Context) error {
	for _, name := range d.users.all() {
		status, err := d.pool.Inspect(ctx, name)
		if err != nil && !errors.Is(err, volume.ErrNotFound) {
			d.log.Warn("cannot read the state of a volume in use", "volume", name, "why", err)
			continue
		}
		if err == nil && status.Attachment != nil && status.Attachment.Target == d.made(name) {
			ids, _ := d.users.get(name)
			d.log.Info("still attached", "volume", name, "at", status.Mountpoint, "users", len(ids))
			continue
		}
		if err := d.users.forget(name); err != nil {
			return err
		}
	}
	return nil
}

// info is a volume as the engines show it. "docker volume inspect" shows the
// details.
type info struct {
	Name       string
	Mountpoint string         `json:",omitempty"`
	CreatedAt  string         `json:",omitempty"`
	Status     map[string]any `json:",omitempty"`
}

func (d *driver) get(ctx context.Context, name string) (info, error) {
	status, err := d.pool.Inspect(ctx, name)
	if err != nil {
		return info{}, err
	}
	ids, _ := d.users.get(name)
	details := map[string]any{
		"pool": status.Pool, "size_bytes": status.SizeBytes, "allocated_bytes": status.AllocatedBytes, "provision": status.Provision,
		"weight": status.Weight, "users": len(ids),
	}
	if status.Mountpoint != "" {
		details["block_device"], details["direct_io"] = status.BlockDevice, status.DirectIO
		if status.LoopDevice != "" {
			details["loop_device"] = status.LoopDevice
		}
		details["jbd2_pid"], details["journal_cgroup"], details["placed"] = status.JBD2PID, status.JournalCgroup, status.Placed
		details["parent_cgroup"], details["weight_in_force"] = status.ParentCgroup, status.WeightInForce
	}
	if status.Problem != "" {
		details["problem"] = status.Problem
	}
	return info{
		Name: name, Mountpoint: status.Mountpoint, CreatedAt: status.Created.Format(time.RFC3339), Status: details,
	}, nil
}

func (d *driver) path(ctx context.Context, name string) (mountpoint string, err error) {
	status, err := d.pool.Inspect(ctx, name)
	return status.Mountpoint, err
}

// list returns all volumes of the pool at a small cost for each, including those
// that the engine has not made and damaged ones.
func (d *driver) list() ([]info, error) {
	all, err := d.pool.Overview()
	if err != nil {
		return nil, err
	}
	infos := make([]info, 0, len(all))
	for _, v := range all {
		infos = append(infos, info{Name: v.Name, Mountpoint: v.Mountpoint})
	}
	return infos, nil
}
