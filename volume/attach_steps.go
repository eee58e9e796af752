package volume

import (
	"context"
	"errors"
	"fmt"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/kernel"
	"github.com/daybook-project/daybook/volume/internal/backing"
	"github.com/daybook-project/daybook/volume/internal/mountpoint"
	"github.com/daybook-project/daybook/volume/operation"
)

// attachSteps returns the steps that attaching does, and that detaching and a repair undo
// from any point. The record has an attachment.
func (v *held) attachSteps() []operation.Step {
	a := v.record.Attachment
	var device backing.Device
	unmounted := map[blockdev.Dev]bool{}
	return []operation.Step{
		{
			Name: "target",
			Do:   v.makeTarget,
			Undo: v.unmakeTarget,
		},
		{
			// Undone after the unmount, with which the thread ends.
			Name: "placement",
			Undo: v.releasePlacement,
		},
		{
			Name: "opened",
			Do: func(ctx context.Context) (err error) {
				device, err = v.blocks().Open(ctx, backing.OpenOptions{ReadOnly: a.ReadOnly, AllowCache: a.AllowCache})
				return err
			},
			Undo: func(ctx context.Context) error { return v.closeBlocks(ctx, unmounted) },
		},
		{
			Name: "device known",
			Intent: func() (bool, error) {
				if device.Loop == nil {
					return false, nil
				}
				a.LoopDevice = device.Loop.Name
				return true, nil
			},
		},
		{
			Name: "mounted",
			Do: func(ctx context.Context) error {
				if err := ctx.Err(); err != nil {
					return err
				}
				return v.mount(device.Node)
			},
			Undo: func(ctx context.Context) error { return v.unmountAll(ctx, unmounted) },
		},
		{Name: "placed", Do: v.place},
	}
}

// makeTarget creates what is missing of the mount point, and protects a new
// persistent one.
func (v *held) makeTarget(ctx context.Context) error {
	a := v.record.Attachment
	if a.MadeTarget {
		if err := mountpoint.Create(a.Target); err != nil {
			return err
		}
	}
	if v.record.PersistentAt(a.Target) && v.record.Persist.Unfinished {
		if _, err := v.protect(ctx); err != nil {
			return err
		}
	}
	return nil
}

// unmakeTarget removes the mount point if it is ours, and ends a persistence that is
// unfinished.
func (v *held) unmakeTarget(ctx context.Context) error {
	if a := v.record.Attachment; a.MadeTarget {
		v.removeTarget(a.Target)
	}
	if v.record.Persist != nil && v.record.Persist.Unfinished {
		return v.unprotect(ctx)
	}
	return nil
}

// releasePlacement removes the cgroups of an attachment. After another boot
// there are none of it.
func (v *held) releasePlacement(ctx context.Context) error {
	boot, err := kernel.BootID()
	if err != nil || boot != v.record.Attachment.BootID {
		return err
	}
	return v.placed().Release(ctx, v.run())
}

// unmountAll unmounts the devices of an attachment from its mount point, and enters them
// in unmounted.
func (v *held) unmountAll(ctx context.Context, unmounted map[blockdev.Dev]bool) error {
	devices, err := v.openedDevices()
	if err != nil {
		return err
	}
	for _, device := range devices {
		mounts, err := blockdev.MountsOf(device.Dev)
		if err != nil {
			return err
		}
		for _, mount := range mounts {
			if mount.Point == v.record.Attachment.Target {
				if err := unmount(ctx, mount.Point, device.Dev); err != nil {
					return err
				}
				unmounted[device.Dev] = true
			}
		}
	}
	return nil
}

// closeBlocks closes the devices of an attachment.
func (v *held) closeBlocks(ctx context.Context, unmounted map[blockdev.Dev]bool) error {
	devices, err := v.openedDevices()
	if err != nil {
		return err
	}
	for _, device := range devices {
		err := v.blocks().Close(ctx, device, unmounted[device.Dev])
		if errors.Is(err, blockdev.ErrBusy) || errors.Is(err, ErrBusy) {
			err = fmt.Errorf("%w: a container or another mount namespace still uses it: %w", ErrBusy, err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
