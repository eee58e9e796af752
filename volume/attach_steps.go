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
func (p *Pool) attachSteps(record *Record) []operation.Step {
	a := record.Attachment
	var device backing.Device
	unmounted := map[blockdev.Dev]bool{}
	return []operation.Step{
		{
			Name: "target",
			Do:   func(ctx context.Context) error { return p.makeTargetOf(ctx, record) },
			Undo: func(ctx context.Context) error { return p.removeTargetOf(ctx, record) },
		},
		{
			// Undone after the unmount, with which the thread ends.
			Name: "placement",
			Undo: func(ctx context.Context) error { return p.releasePlacement(ctx, record) },
		},
		{
			Name: "opened",
			Do: func(ctx context.Context) (err error) {
				device, err = p.blocks(*record).Open(ctx, backing.OpenOptions{ReadOnly: a.ReadOnly, AllowCache: a.AllowCache})
				return err
			},
			Undo: func(ctx context.Context) error { return p.closeBlocks(ctx, *record, unmounted) },
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
				return p.mount(*record, device.Node)
			},
			Undo: func(ctx context.Context) error { return p.unmountAll(ctx, *record, unmounted) },
		},
		{Name: "placed", Do: func(ctx context.Context) error { return p.place(ctx, *record) }},
	}
}

// makeTargetOf creates what is missing of the mount point, and protects a new
// persistent one.
func (p *Pool) makeTargetOf(ctx context.Context, record *Record) error {
	a := record.Attachment
	if a.MadeTarget {
		if err := mountpoint.Create(a.Target); err != nil {
			return err
		}
	}
	if record.PersistentAt(a.Target) && record.Persist.Unfinished {
		if _, err := p.protect(ctx, record); err != nil {
			return err
		}
	}
	return nil
}

// removeTargetOf removes the mount point if it is ours, and ends a persistence that is
// unfinished.
func (p *Pool) removeTargetOf(ctx context.Context, record *Record) error {
	if a := record.Attachment; a.MadeTarget {
		p.removeTarget(record.Name, a.Target)
	}
	if record.Persist != nil && record.Persist.Unfinished {
		return p.unprotect(ctx, *record)
	}
	return nil
}

// releasePlacement removes the cgroups of an attachment. After another start of the host
// there are none of it.
func (p *Pool) releasePlacement(ctx context.Context, record *Record) error {
	boot, err := kernel.BootID()
	if err != nil || boot != record.Attachment.BootID {
		return err
	}
	return p.placed(*record).Release(ctx, p.run(record))
}

// unmountAll unmounts the devices of an attachment from its mount point, and enters them
// in unmounted.
func (p *Pool) unmountAll(ctx context.Context, record Record, unmounted map[blockdev.Dev]bool) error {
	devices, err := p.openedDevices(record)
	if err != nil {
		return err
	}
	for _, device := range devices {
		mounts, err := blockdev.MountsOf(device.Dev)
		if err != nil {
			return err
		}
		for _, mount := range mounts {
			if mount.Point == record.Attachment.Target {
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
func (p *Pool) closeBlocks(ctx context.Context, record Record, unmounted map[blockdev.Dev]bool) error {
	devices, err := p.openedDevices(record)
	if err != nil {
		return err
	}
	for _, device := range devices {
		err := p.blocks(record).Close(ctx, device, unmounted[device.Dev])
		if errors.Is(err, blockdev.ErrBusy) || errors.Is(err, ErrBusy) {
			err = fmt.Errorf("%w: a container or another mount namespace still uses it: %w", ErrBusy, err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
