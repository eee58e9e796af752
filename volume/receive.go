package volume

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/daybook-project/daybook/internal/ext4"
)

// ReceiveOptions are the choices of [Pool.Receive].
type ReceiveOptions struct {
	// Progress is told how much of the image has been received, and then
	// how much of it verified.
	Progress Progress
	// KeepSettings takes over the weight, the labels and the mount options
	// that the sender's volume has.
	KeepSettings bool
}

// Receive makes a volume, not attached, of a stream that [Pool.Send] wrote. It
// keeps its identity, but not its settings, unless asked. A stream of what differs from a base brings an existing
// volume up to date: one that was received and not attached since. All is
// verified, to the sum of what the sender read, before a volume appears or
// changes; of a stream that is cut off, damaged or does not fit nothing is
// left, and the error wraps ErrCorrupt or ErrInvalid.
//
// The kernel mounts what is received: take it only from whom you trust.
func (p *Pool) Receive(ctx context.Context, name string, r io.Reader, options ReceiveOptions) (Record, error) {
	record, err := p.receive(ctx, name, r, options)
	if err != nil {
		return Record{}, failed("cannot receive volume %s: %w", name, err)
	}
	return record, nil
}

func (p *Pool) receive(ctx context.Context, name string, r io.Reader, o ReceiveOptions) (Record, error) {
	if err := CheckName(name); err != nil {
		return Record{}, err
	}
	stream, err := newStreamReader(r)
	if err != nil {
		return Record{}, err
	}
	if stream.header.Base != nil {
		return p.receiveChange(ctx, name, stream, o)
	}
	return p.receiveWhole(ctx, name, stream, o)
}

func (p *Pool) receiveWhole(ctx context.Context, name string, stream *streamReader, o ReceiveOptions) (record Record, err error) {
	if _, err := os.Lstat(p.volumeDir(name)); err == nil {
		return Record{}, ErrExists
	}
	record = stream.header.record(name)
	if !o.KeepSettings {
		// They would be the sender's say in how this host divides its disk
		// and mounts.
		record.Weight, record.Labels, record.MountOptions, record.NoAtime = 0, nil, "", false
	}
	if record.SectorBytes, err = p.sectorBytes(); err != nil {
		return Record{}, err
	}
	w, err := p.newWork(ctx, record.SizeBytes, record.Provision)
	if err != nil {
		return Record{}, err
	}
	defer func() { err = errors.Join(err, w.discard()) }()
	if err := apply(ctx, stream, w.image(), sum{}, o.Progress); err != nil {
		return Record{}, err
	}
	p.reached("received")
	blockBytes, err := checkReceived(w.image(), record.SizeBytes, record.SectorBytes)
	if err != nil {
		return Record{}, err
	}
	record.SectorBytes = max(record.SectorBytes, p.sharedSectorBytes(blockBytes))
	return record, p.finishVolume(ctx, &w, record, o.Progress)
}

// nextFile is what will be a volume's image. Nothing is promised to it: the
// image that it takes the place of has the promise.
const nextFile = "next"

// receiveChange brings a volume up to date, on a copy of its image, which then
// takes its place in one rename.
func (p *Pool) receiveChange(ctx context.Context, name string, stream *streamReader, o ReceiveOptions) (_ Record, err error) {
	header := stream.header
	record, l, err := p.holdReady(ctx, name)
	if errors.Is(err, ErrNotFound) {
		return Record{}, fmt.Errorf("the stream holds only what differs from snapshot %s, which must be received first: %w", header.Base.Name, err)
	}
	if err != nil {
		return Record{}, err
	}
	defer l.release()
	switch {
	case record.Device != "":
		return Record{}, checkImaged(record)
	case record.Attachment != nil:
		return Record{}, fmt.Errorf("it is %w: attached at %s; detach it first", ErrBusy, record.Attachment.Target)
	case record.ID != header.ID:
		return Record{}, fmt.Errorf("%w: the stream is of another volume (%s, this one is %s)", ErrInvalid, header.ID, record.ID)
	case record.SizeBytes != header.Base.SizeBytes:
		return Record{}, fmt.Errorf("%w: it has %d bytes, and the stream's base %s had %d", ErrInvalid, record.SizeBytes, header.Base.Name, header.Base.SizeBytes)
	}
	w, err := p.changeWork(ctx, record.SizeBytes, header.SizeBytes)
	if err != nil {
		return Record{}, err
	}
	defer func() { err = errors.Join(err, w.discard()) }()
	next := filepath.Join(w.path, nextFile)
	if err := makeSparse(next, record.SizeBytes); err != nil {
		return Record{}, err
	}
	if _, err := copyStill(ctx, p.image(name), next, record.SizeBytes, nil); err != nil {
		return Record{}, err
	}
	sums, err := sumImage(ctx, next, record.SizeBytes, nil)
	if err != nil {
		return Record{}, err
	}
	base := imageSum(record.SizeBytes, sums)
	if err := os.Truncate(next, int64(header.SizeBytes)); err != nil {
		return Record{}, noSpace(err)
	}
	if err := apply(ctx, stream, next, base, o.Progress); err != nil {
		return Record{}, err
	}
	if _, err := checkReceived(next, header.SizeBytes, record.SectorBytes); err != nil {
		return Record{}, err
	}
	if record.Provision == Full {
		if err := writeOut(ctx, next, 0, o.Progress); err != nil {
			return Record{}, err
		}
	}
	if err := syncFile(next); err != nil {
		return Record{}, err
	}
	p.reached("received")
	return p.exchange(record, header, next)
}

// changeWork makes a work in which nothing is promised but what the volume
// becomes longer.
func (p *Pool) changeWork(ctx context.Context, now, then uint64) (work, error) {
	all, err := p.lock(ctx)
	if err != nil {
		return work{}, err
	}
	defer all.release()
	if then > now {
		if err := p.checkQuota(then - now); err != nil {
			return work{}, err
		}
	}
	return p.emptyWork()
}

// exchange gives a volume its new image. At each moment the image is at least
// as long as the record says.
func (p *Pool) exchange(record Record, header streamHeader, next string) (Record, error) {
	before := record.SizeBytes
	record.SizeBytes, record.Origin = header.SizeBytes, header.record(record.Name).Origin
	if record.SizeBytes < before {
		if err := p.write(record); err != nil {
			return Record{}, err
		}
	}
	if err := os.Rename(next, p.image(record.Name)); err != nil {
		return Record{}, err
	}
	p.reached("exchanged")
	return record, p.write(record) // and syncs the directory
}

// apply brings what a stream says into an image and verifies the whole of it.
// base is the sum of what the image holds.
func apply(ctx context.Context, stream *streamReader, image string, base sum, progress Progress) error {
	size := stream.header.SizeBytes
	out, err := openDirect(image, os.O_WRONLY)
	if err != nil {
		return err
	}
	defer func() { _ = out.Close() }()
	var end frame
	for !end.end {
		if err := ctx.Err(); err != nil {
			return err
		}
		f, err := stream.frame()
		if err != nil {
			return err
		}
		switch {
		case f.end:
			end = f
			continue
		case f.data != nil:
			_, err = out.WriteAt(f.data, int64(f.offset))
		default:
			err = clearRange(out, int64(f.offset), int64(f.length))
		}
		if err != nil {
			return noSpace(err)
		}
		progress.tell(f.offset+f.length, size)
	}
	if end.base != base {
		if stream.header.Base != nil {
			return fmt.Errorf("%w: the volume does not hold what the stream's base %s held: it was written since, or is another; receive it whole under another name",
				ErrInvalid, stream.header.Base.Name)
		}
		return fmt.Errorf("%w: it has no base, and yet a sum of one", errStream)
	}
	if err := noSpace(out.Sync()); err != nil {
		return err
	}
	sums, err := sumImage(ctx, image, size, progress)
	if err != nil {
		return err
	}
	if imageSum(size, sums) != end.image {
		return fmt.Errorf("%w: what arrived is not what the sender read", errStream)
	}
	return nil
}

// checkReceived refuses what is no file system that this pool could attach, and
// tells its block size.
func checkReceived(image string, sizeBytes uint64, sectorBytes uint32) (blockBytes uint32, err error) {
	fs, err := ext4.ReadSuperblock(image)
	switch {
	case errors.Is(err, ext4.ErrNotExt4):
		err = fmt.Errorf("%w: what it carries is no ext4: %w", errStream, err)
	case err != nil:
	case fs.External() || fs.JournalDevice:
		err = fmt.Errorf("%w: its journal would be on another device", ErrUnsupported)
	case fs.Blocks > sizeBytes/uint64(fs.BlockSizeBytes):
		err = fmt.Errorf("%w: its file system is longer than the volume", errStream)
	case fs.BlockSizeBytes < sectorBytes:
		err = fmt.Errorf("%w: the pool's disk has sectors of %d bytes, and the volume blocks of %d", ErrUnsupported, sectorBytes, fs.BlockSizeBytes)
	}
	return fs.BlockSizeBytes, err
}
