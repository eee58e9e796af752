package volume

import (
	"context"

	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/volume/internal/backing"
	"github.com/daybook-project/daybook/volume/internal/journal"
	"github.com/daybook-project/daybook/volume/internal/store"
	"github.com/daybook-project/daybook/volume/operation"
)

// held is a volume that this process has locked. What works on it changes this one record in
// place and writes it from here, so that no older copy of the record is written.
type held struct {
	pool   *Pool
	record Record
	lock   *store.Lock
}

// hold locks a volume and reads its record; the caller releases it.
func (p *Pool) hold(ctx context.Context, name string) (*held, error) {
	record, l, err := p.files.Hold(ctx, name)
	if err != nil {
		return nil, err
	}
	return &held{pool: p, record: record, lock: l}, nil
}

// tryHold is hold without waiting. The error wraps ErrBusy if another process has the lock.
func (p *Pool) tryHold(name string) (*held, error) {
	l, err := store.LockDirectory(p.files.VolumeDir(name))
	if err != nil {
		return nil, err
	}
	record, err := p.files.Read(name)
	if err != nil {
		l.Release()
		return nil, err
	}
	return &held{pool: p, record: record, lock: l}, nil
}

// holdReady is hold, and then finishes or rolls back what a killed process left of the
// volume, and checks its blocks.
func (p *Pool) holdReady(ctx context.Context, name string) (*held, error) {
	v, err := p.hold(ctx, name)
	if err != nil {
		return nil, err
	}
	if err := v.ready(ctx); err != nil {
		v.release()
		return nil, err
	}
	return v, nil
}

func (v *held) ready(ctx context.Context) error {
	if err := v.finishInterrupted(ctx); err != nil {
		return err
	}
	if _, err := v.finishCheck(ctx); err != nil {
		return err
	}
	if v.record.Resize != 0 {
		if err := v.finishResize(ctx); err != nil {
			return err
		}
	}
	if _, err := v.finishExchange(); err != nil {
		return err
	}
	if err := v.blocks().Check(ctx); err != nil || v.record.Attachment != nil {
		return err
	}
	return v.blocks().CheckUnused()
}

// release releases the lock; releasing again changes nothing.
func (v *held) release() {
	v.lock.Release()
	v.lock = nil
}

// run runs steps that keep their intents in the record.
func (v *held) run() operation.Run { return v.pool.engine.On(v.write) }

// write replaces the record on disk.
func (v *held) write() error { return v.pool.files.Write(v.record) }

// blocks returns the blocks of the volume.
func (v *held) blocks() backing.Backing { return v.pool.blocks(v.record) }

// openedDevices returns the block devices of the attachment: one, unless something is wrong.
func (v *held) openedDevices() ([]backing.Device, error) { return v.blocks().Opened(backing.Loops) }

// isMounted says whether the image has its loop device, and that, or the volume's own device,
// its mount.
func (v *held) isMounted() (bool, error) {
	_, mounted, err := v.pool.readHost().mountedFrom(v.record)
	return mounted, err
}

// offline is the file system while it is not mounted. Its tools hold the volume's lock.
func (v *held) offline() ext4.Offline {
	fileSystem := ext4.Offline{Device: v.blocks().Node(), Lock: v.lock.File, Kept: v.pool.files.KeptSuperblock(v.record.Name)}
	journal.Of(v.record).Offline(&fileSystem)
	return fileSystem
}
