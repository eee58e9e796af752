package volume

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/volume/internal/backing"
	"github.com/daybook-project/daybook/volume/internal/chunk"
	"github.com/daybook-project/daybook/volume/internal/imagefile"
	"github.com/daybook-project/daybook/volume/internal/journal"
	"github.com/daybook-project/daybook/volume/operation"
)

// createOnDevice makes a volume of an empty device.
func (p *Pool) createOnDevice(ctx context.Context, name string, o CreateOptions) (record Record, err error) {
	node, facts, err := lookAtDevice(o.Device)
	if err != nil {
		return Record{}, err
	}
	size := facts.Bytes / chunk.UnitBytes * chunk.UnitBytes
	if err := CheckSize(size); err != nil {
		return Record{}, fmt.Errorf("device %s: %w", node, err)
	}
	if facts.SectorBytes > o.BlockSizeBytes {
		return Record{}, fmt.Errorf("%w block size: %s has sectors of %d bytes, and blocks may not be smaller", ErrInvalid, node, facts.SectorBytes)
	}
	l, err := backing.LockEmpty(ctx, node)
	if err != nil {
		return Record{}, err
	}
	defer l.Release()
	o.Device = node
	return p.createOutside(ctx, o.record(name, size, facts.SectorBytes), o)
}

// lookAtDevice gives the absolute path of a block device that the user names.
func lookAtDevice(given string) (node string, facts backing.Facts, err error) {
	if node, err = filepath.Abs(given); err != nil {
		return "", facts, err
	}
	facts, err = backing.LookAt(node)
	if backing.IsGone(err) {
		return "", facts, fmt.Errorf("%w device %s: %w", ErrInvalid, given, err)
	}
	if err != nil {
		return "", facts, fmt.Errorf("device %s: %w", given, err)
	}
	return node, facts, nil
}

// withJournalDevice locks the device that becomes the journal while create makes the volume, with
// options that have its absolute path. The work in which the volume is made names the device: if it
// is discarded, the device is empty again.
func withJournalDevice(ctx context.Context, o CreateOptions, create func(CreateOptions) (Record, error)) (Record, error) {
	node, _, err := lookAtDevice(o.JournalDevice)
	if err != nil {
		return Record{}, err
	}
	if strings.Contains(node, ",") {
		return Record{}, fmt.Errorf("%w journal device %s: a comma ends a mount option; name it by another path", ErrInvalid, node)
	}
	l, err := backing.LockEmpty(ctx, node)
	if err != nil {
		return Record{}, err
	}
	defer l.Release()
	o.JournalDevice = node
	return create(o)
}

// createOnLVM makes a volume of a new logical volume.
func (p *Pool) createOnLVM(ctx context.Context, name string, o CreateOptions) (Record, error) {
	// The size of its sectors is known when it exists; 512 is valid in a record.
	record := o.record(name, o.SizeBytes, 512)
	// A work with the name of a missing volume group could not be cleared.
	if err := backing.CheckGroup(ctx, *record.LVM); err != nil {
		return Record{}, err
	}
	zeros, err := writtenZeros(ctx, record, o)
	if err != nil {
		return Record{}, err
	}
	if err := p.checkThinSpace(ctx, record, record.SizeBytes, zeros); err != nil {
		return Record{}, err
	}
	return p.createOutside(ctx, record, o)
}

// writtenZeros is how many zeros mke2fs writes to a new volume in a thin pool. With LazyInit a
// kernel thread writes them later.
func writtenZeros(ctx context.Context, record Record, o CreateOptions) (uint64, error) {
	zeros, err := backing.Of("", record, nil).ReadsZeros(ctx)
	if err != nil || record.FileSystem == JFS || zeros && !o.LazyInit && ext4.KnowsZeros(ctx) {
		return 0, err
	}
	make := ext4.MakeOptions{BlockSizeBytes: o.BlockSizeBytes, BytesPerInode: o.BytesPerInode}
	journal.Of(record).Make(&make, o.JournalBytes)
	return make.WrittenBytes(record.SizeBytes, o.InodeSizeBytes), nil
}

// checkThinSpace refuses so many bytes more of a volume if its thin pool has no space for the
// tables of the file system: the tools would fill the pool, and its other volumes would fail
// with it. It warns if the pool has no space for all of them. zeros is as in CheckThinSpace.
func (p *Pool) checkThinSpace(ctx context.Context, record Record, bytes, zeros uint64) error {
	if record.LVM == nil {
		return nil
	}
	space, overcommits, err := backing.CheckThinSpace(ctx, *record.LVM, bytes, zeros)
	if err == nil && overcommits {
		p.log.Warn("the volume is longer than the free space of its thin pool: extend the pool before it is full", "volume", record.Name,
			"pool", record.LVM.VolumeGroup+"/"+record.LVM.ThinPool, "size_bytes", bytes, "free_bytes", space.FreeBytes, "pool_bytes", space.SizeBytes)
	}
	return err
}

// createOutside makes a volume with blocks outside of the pool. Unlike an image, they
// are not removed with the work: so each tool holds the lock until it has ended.
func (p *Pool) createOutside(ctx context.Context, record Record, o CreateOptions) (Record, error) {
	if err := journal.Of(record).CheckCreate(ctx); err != nil {
		return Record{}, err
	}
	var w work
	node := backing.Of("", record, p.log).Node()
	steps := []operation.Step{
		making(&w, func(ctx context.Context) (work, error) { return p.newWork(ctx, record) }),
		{Name: "blocks", Do: func(ctx context.Context) error { return w.makeBlocks(ctx, &record, o) }},
	}
	steps = append(steps, p.memorySteps(&w, &record)...)
	steps = append(steps, operation.Step{Name: "made", Do: func(ctx context.Context) error {
		if err := makeFileSystem(ctx, node, record, w.lock.File, o); err != nil {
			return err
		}
		return imagefile.Sync(node)
	}})
	err := p.steps().DoOrUndo(ctx, append(steps, p.publishVolume(&w, &record, o.Progress)...)...)
	return record, err
}

// makeBlocks makes the blocks of a volume, and enters their size in the record.
func (w *work) makeBlocks(ctx context.Context, record *Record, o CreateOptions) error {
	blocks := backing.Of(w.path, *record, w.log)
	if err := blocks.Create(ctx, w.lock.File); err != nil {
		return err
	}
	facts, err := backing.LookAt(blocks.Node())
	if err != nil {
		return err
	}
	// LVM allocates whole extents.
	record.SizeBytes = facts.Bytes / chunk.UnitBytes * chunk.UnitBytes
	if record.SectorBytes = facts.SectorBytes; record.SectorBytes > o.BlockSizeBytes {
		return fmt.Errorf("%w block size: %s has sectors of %d bytes, and blocks may not be smaller", ErrInvalid, blocks.Node(), facts.SectorBytes)
	}
	return nil
}
