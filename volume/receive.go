package volume

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/daybook-project/daybook/volume/internal/backing"
	"github.com/daybook-project/daybook/volume/internal/cause"
	"github.com/daybook-project/daybook/volume/internal/chunk"
	"github.com/daybook-project/daybook/volume/internal/imagefile"
	"github.com/daybook-project/daybook/volume/internal/journal"
	"github.com/daybook-project/daybook/volume/internal/store"
	"github.com/daybook-project/daybook/volume/internal/stream"
	"github.com/daybook-project/daybook/volume/internal/transfer"
	"github.com/daybook-project/daybook/volume/operation"
	"github.com/daybook-project/daybook/volume/records"
)

// ReceiveOptions are the choices of [Pool.Receive].
type ReceiveOptions struct {
	// Progress reports how much of the image has been received, and then
	// how much of it has been verified.
	Progress Progress
	// KeepSettings keeps the weight, the labels and the mount options of the
	// sender's volume.
	KeepSettings bool
	// VolumeGroup and ThinPool are as in [CreateOptions]: a new volume is on a logical
	// volume instead of an image. They are not for a stream with a base.
	VolumeGroup, ThinPool string
	// JournalMemory puts the journal of a new volume into a slice of persistent memory;
	// nil: it is in the volume, wherever that of the sender's volume is. It is not for
	// a stream with a base.
	JournalMemory *MemoryOptions
}

// Receive makes a volume, not attached, of a stream that [Pool.Send] wrote. It
// keeps the UUID, but the settings only with KeepSettings. An incremental stream updates
// an existing volume, which was received before and not attached since. Receive verifies
// the checksum of all that the sender read before a volume appears or changes. If a
// stream is cut off, damaged or does not fit, it leaves nothing, and the error wraps
// ErrCorrupt or ErrInvalid. It reads r to its end; anything after the stream is an error. After
// an error, a read of r can still be in progress.
//
// The kernel mounts the received file system: receive only from senders that you trust.
func (p *Pool) Receive(ctx context.Context, name string, r io.Reader, options ReceiveOptions) (Record, error) {
	record, err := p.receive(ctx, name, r, options)
	if err != nil {
		return Record{}, cause.Failed("cannot receive volume %s: %w", name, err)
	}
	return record, nil
}

func (p *Pool) receive(ctx context.Context, name string, r io.Reader, o ReceiveOptions) (Record, error) {
	lvm := CreateOptions{SizeBytes: MinSizeBytes, VolumeGroup: o.VolumeGroup, ThinPool: o.ThinPool}
	if err := errors.Join(CheckName(name), lvm.Check()); err != nil {
		return Record{}, err
	}
	var err error
	if o.JournalMemory, err = o.JournalMemory.located(); err != nil {
		return Record{}, err
	}
	r, stop := readUntil(ctx, r)
	defer stop()
	incoming, err := stream.NewReader(r)
	if err != nil {
		return Record{}, err
	}
	if incoming.Header.Base != nil {
		if o.VolumeGroup != "" {
			return Record{}, fmt.Errorf("%w: the stream has a base and changes an existing volume, so it creates no logical volume; send the whole volume, without --base", ErrInvalid)
		}
		if o.JournalMemory != nil {
			return Record{}, fmt.Errorf("%w: the stream has a base and changes an existing volume, whose journal stays where it is; daybook volume journal moves it", ErrInvalid)
		}
		return p.receiveChange(ctx, name, incoming, o)
	}
	return p.receiveWhole(ctx, name, incoming, o)
}

// placeReceived enters in the record where the blocks of a received volume will be.
func (p *Pool) placeReceived(ctx context.Context, record *Record, o ReceiveOptions) (err error) {
	if o.VolumeGroup == "" {
		record.SectorBytes, err = p.sectorBytes()
		return err
	}
	record.Provision, record.SectorBytes = Full, 512 // as in createOnLVM
	if o.ThinPool != "" {
		record.Provision = Thin
	}
	// Not with the UUID of the volume: the sender's may be in the same volume group.
	record.LVM = records.NewLogicalVolume(o.VolumeGroup, o.ThinPool, records.NewID())
	if err := backing.CheckGroup(ctx, *record.LVM); err != nil {
		return err
	}
	// How much of the volume has data is known only at the end of the stream.
	return p.checkThinSpace(ctx, *record, record.SizeBytes, 0)
}

func (p *Pool) receiveWhole(ctx context.Context, name string, incoming *stream.Reader, o ReceiveOptions) (record Record, err error) {
	if _, err := os.Lstat(p.files.VolumeDir(name)); err == nil {
		return Record{}, ErrExists
	}
	record = incoming.Header.Record(name)
	if !o.KeepSettings {
		// Otherwise the sender would control mounts and shares of the disk on this
		// host.
		record.Weight, record.Labels, record.MountOptions, record.NoAtime = 0, nil, "", false
	}
	if err := p.placeReceived(ctx, &record, o); err != nil {
		return Record{}, err
	}
	if record.JournalMemory = o.JournalMemory.journal(); record.JournalMemory == nil {
		record.MountOptions = withoutMemoryOptions(record.MountOptions)
	}
	record.SetFormat()
	if err := journal.Of(record).CheckCreate(ctx); err != nil {
		return Record{}, err
	}
	var w work
	blocks := func() backing.Backing { return backing.Of(w.path, record, p.log) }
	steps := []operation.Step{
		making(&w, func(ctx context.Context) (work, error) { return p.newWork(ctx, record) }),
		{Name: "received", Do: func(ctx context.Context) error {
			zeros, err := blocks().ReadsZeros(ctx)
			if err != nil {
				return err
			}
			if err := transfer.Apply(ctx, incoming, blocks().Node(), chunk.Sum{}, !zeros, o.Progress); err != nil {
				return err
			}
			blockBytes, err := transfer.CheckReceived(blocks().Node(), record.SizeBytes, record.SectorBytes)
			if err == nil {
				err = checkCanBeInMemory(blocks().Node(), record)
			}
			if err != nil || !record.InPool() {
				return errors.Join(err, blocks().Check(ctx))
			}
			record.SectorBytes = max(record.SectorBytes, imagefile.SharedSectorBytes(filepath.Join(p.dir, store.WorkDir), blockBytes))
			return nil
		}},
	}
	if !record.InPool() {
		steps = slices.Insert(steps, 1, operation.Step{Name: "blocks", Do: func(ctx context.Context) error {
			if err := blocks().Create(ctx, w.lock.File); err != nil {
				return err
			}
			facts, err := backing.LookAt(blocks().Node())
			record.SectorBytes = facts.SectorBytes
			return err
		}})
	}
	steps = slices.Insert(steps, len(steps)-1, p.memorySteps(&w, &record)...)
	err = p.steps().DoOrUndo(ctx, append(steps, p.publishVolume(&w, &record, o.Progress)...)...)
	return record, err
}

// nextFile is a volume's next image. It does not count in the quota, because the present
// image does.
const nextFile = "next"

// receiveChange updates a volume on a copy of its image, which then replaces the image by
// one rename.
func (p *Pool) receiveChange(ctx context.Context, name string, incoming *stream.Reader, o ReceiveOptions) (_ Record, err error) {
	header := incoming.Header
	v, err := p.holdReady(ctx, name)
	if errors.Is(err, ErrNotFound) {
		return Record{}, fmt.Errorf("the stream holds only what differs from snapshot %s, which must be received first: %w", header.Base.Name, err)
	}
	if err != nil {
		return Record{}, err
	}
	defer v.release()
	switch {
	case !v.record.InPool():
		return Record{}, fmt.Errorf("%w: it has no image, and only a volume with an image can be updated by a stream with a base; send the whole volume, without --base, and receive it under another name", ErrUnsupported)
	case v.record.Attachment != nil:
		return Record{}, fmt.Errorf("it is %w: attached at %s; detach it first", ErrBusy, v.record.Attachment.Target)
	case v.record.ID != header.ID:
		return Record{}, fmt.Errorf("%w: the stream is of another volume (%s, this one is %s)", ErrInvalid, header.ID, v.record.ID)
	case v.record.SizeBytes != header.Base.SizeBytes:
		return Record{}, fmt.Errorf("%w: it has %d bytes, and the stream's base %s had %d", ErrInvalid, v.record.SizeBytes, header.Base.Name, header.Base.SizeBytes)
	}
	if err := v.recoverMemory(ctx); err != nil {
		return Record{}, err
	}
	var w work
	var next string
	err = p.steps().DoOrUndo(ctx,
		making(&w, func(ctx context.Context) (work, error) {
			return p.changeWork(ctx, v.record.SizeBytes, header.SizeBytes)
		}),
		operation.Step{Name: "received", Do: func(ctx context.Context) error {
			next = filepath.Join(w.path, nextFile)
			return v.receiveNext(ctx, incoming, next, o)
		}},
		operation.Step{Name: "exchanged", Do: func(ctx context.Context) error {
			err := v.exchange(ctx, header, next)
			return errors.Join(err, w.undo(context.WithoutCancel(ctx)))
		}},
	)
	return v.record, err
}

// receiveNext makes the next image of a volume: a copy of the present one, with the
// changes of the stream.
func (v *held) receiveNext(ctx context.Context, incoming *stream.Reader, next string, o ReceiveOptions) error {
	header, record := incoming.Header, v.record
	if err := imagefile.MakeSparse(next, record.SizeBytes); err != nil {
		return err
	}
	if _, err := imagefile.CopyStill(ctx, v.pool.files.Image(record.Name), next, record.SizeBytes, nil); err != nil {
		return err
	}
	sums, err := imagefile.Sums(ctx, next, record.SizeBytes, nil)
	if err != nil {
		return err
	}
	base := chunk.ImageSum(record.SizeBytes, sums)
	if err := os.Truncate(next, int64(header.SizeBytes)); err != nil {
		return cause.NoSpace(err)
	}
	if err := transfer.Apply(ctx, incoming, next, base, false, o.Progress); err != nil {
		return err
	}
	if _, err := transfer.CheckReceived(next, header.SizeBytes, record.SectorBytes); err != nil {
		return err
	}
	if record.Provision == Full {
		if err := imagefile.WriteOut(ctx, next, 0, o.Progress); err != nil {
			return err
		}
	}
	return imagefile.Sync(next)
}

// changeWork makes a work of which only the growth of the volume counts in the quota.
func (p *Pool) changeWork(ctx context.Context, now, then uint64) (work, error) {
	all, err := p.files.Lock(ctx)
	if err != nil {
		return work{}, err
	}
	defer all.Release()
	if then > now {
		if err := p.checkQuota(then - now); err != nil {
			return work{}, err
		}
	}
	return p.emptyWork(records.NewID())
}

// exchange replaces a volume's image. At each moment the image is at least as long as
// recorded. If it is longer, finishExchange corrects the record.
//
// The quota is checked again, because only the present image counted in it until here: other
// volumes may have become longer meanwhile.
func (v *held) exchange(ctx context.Context, header stream.Header, next string) error {
	name, before := v.record.Name, v.record.SizeBytes
	if header.SizeBytes > before {
		all, err := v.pool.files.Lock(ctx)
		if err != nil {
			return err
		}
		defer all.Release()
		if err := v.pool.checkQuota(header.SizeBytes - before); err != nil {
			return err
		}
	}
	v.record.SizeBytes, v.record.Origin = header.SizeBytes, header.Record(name).Origin
	if v.record.SizeBytes < before {
		if err := v.pool.step(ctx, "shorter recorded", func(context.Context) error { return v.write() }); err != nil {
			return err
		}
	}
	err := v.pool.step(ctx, "renamed", func(context.Context) error { return os.Rename(next, v.pool.files.Image(name)) })
	if err != nil {
		return err
	}
	return v.write() // and syncs the directory
}

// finishExchange gives the record of a detached volume the length of its image, after an
// exchange that was interrupted: then the image is longer than recorded, and it is the
// whole old or new one.
func (v *held) finishExchange() (finished bool, err error) {
	if !v.record.InPool() || v.record.Attachment != nil || v.record.Resize != 0 {
		return false, nil
	}
	info, err := os.Stat(v.blocks().Node())
	if err != nil || !info.Mode().IsRegular() {
		return false, nil // blocks().Check reports it
	}
	bytes := uint64(info.Size())
	if bytes <= v.record.SizeBytes || CheckSize(bytes) != nil {
		return false, nil
	}
	v.pool.log.Info("a receive was interrupted: the volume has the length of its image", "volume", v.record.Name, "size_bytes", bytes)
	v.record.SizeBytes = bytes
	return true, v.write()
}
