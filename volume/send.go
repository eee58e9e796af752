package volume

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/daybook-project/daybook/internal/ext4"
)

// SendOptions are the choices of [Pool.Send].
type SendOptions struct {
	// MaxFreeze is how long the writers of an attached volume may wait: see
	// [SnapshotOptions].
	MaxFreeze time.Duration
	// Progress is told how much of the image has been looked at.
	Progress Progress
}

// Send writes a volume's snapshot to a stream, for [Pool.Receive]; with ""
// what the volume holds now, for which an attached one is frozen for a moment
// (see [Pool.Snapshot]). With base, an older snapshot of the same volume, only
// what differs from it is sent. A volume that is sent as it is now, and is not
// attached, cannot be attached meanwhile.
func (p *Pool) Send(ctx context.Context, name, snapshot, base string, w io.Writer, options SendOptions) error {
	if err := p.send(ctx, name, snapshot, base, w, options); err != nil {
		return failed("cannot send volume %s: %w", origin(name, snapshot), err)
	}
	return nil
}

func (p *Pool) send(ctx context.Context, name, snapshot, base string, w io.Writer, o SendOptions) (err error) {
	if err := CheckMaxFreeze(o.MaxFreeze); err != nil {
		return err
	}
	source, err := p.openSource(ctx, name, snapshot, base, longestFreeze(o.MaxFreeze))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, source.close()) }()
	p.reached("sending")
	out := bufio.NewWriterSize(w, chunkBytes)
	if err := source.send(ctx, out, o.Progress); err != nil {
		return err
	}
	return out.Flush()
}

// source is what is sent. Its images are open, so that a snapshot may be
// deleted and the volume worked on meanwhile.
type source struct {
	header streamHeader
	image  *reader
	base   *reader // nil without base
	// lock is held, and work is there, if it is no snapshot that is read.
	lock *lock
	work work
}

func (s *source) close() error {
	var errs []error
	for _, r := range []*reader{s.image, s.base} {
		if r != nil {
			errs = append(errs, r.close())
		}
	}
	errs = append(errs, s.work.discard())
	s.lock.release()
	return errors.Join(errs...)
}

func (p *Pool) openSource(ctx context.Context, name, snapshot, base string, longest time.Duration) (_ *source, err error) {
	record, l, err := p.holdReady(ctx, name)
	if err != nil {
		return nil, err
	}
	s := &source{lock: l, header: streamHeader{
		Format: streamFormat, Name: record.Name, ID: record.ID, Created: record.Created, SizeBytes: record.SizeBytes, Provision: record.Provision,
		SectorBytes: record.SectorBytes, Weight: record.Weight, Labels: record.Labels, MountOptions: record.MountOptions, NoAtime: record.NoAtime,
	}}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if err := checkImaged(record); err != nil {
		return nil, err
	}
	image := p.image(name)
	switch {
	case snapshot != "":
		of, err := p.readSnapshot(name, snapshot)
		if err != nil {
			return nil, err
		}
		image, s.header.SizeBytes = p.snapshotImage(name, snapshot), of.SizeBytes
		s.header.Snapshot = &streamSnapshot{Name: of.Name, ID: of.ID, Created: of.Created}
	case record.Attachment != nil:
		if s.work, err = p.newWork(ctx, record.SizeBytes, Thin); err != nil {
			return nil, err
		}
		if _, _, err := p.capture(ctx, &record, l, s.work.image(), longest, nil); err != nil {
			return nil, err
		}
		image = s.work.image()
	}
	fs, err := ext4.ReadSuperblock(image)
	if err != nil {
		return nil, fmt.Errorf("its image is %w: %w", ErrCorrupt, err)
	}
	if fs.External() {
		return nil, fmt.Errorf("%w: its journal is on another device: send a clone, which has it inside", ErrUnsupported)
	}
	if s.image, err = newReader(image, s.header.SizeBytes); err != nil {
		return nil, err
	}
	if base != "" {
		of, err := p.readSnapshot(name, base)
		if err != nil {
			return nil, fmt.Errorf("base: %w", err)
		}
		s.header.Base = &streamBase{Name: of.Name, ID: of.ID, SizeBytes: of.SizeBytes}
		if s.base, err = newReader(p.snapshotImage(name, base), of.SizeBytes); err != nil {
			return nil, err
		}
	}
	if snapshot != "" || record.Attachment != nil {
		l.release()
		s.lock = nil
	}
	return s, nil
}

// send reads image and base side by side.
func (s *source) send(ctx context.Context, w io.Writer, progress Progress) error {
	stream, err := newStreamWriter(w, s.header)
	if err != nil {
		return err
	}
	size := s.header.SizeBytes
	sums := make([]sum, chunksOf(size))
	var baseSums []sum
	if s.base != nil {
		baseSums = make([]sum, chunksOf(s.base.sizeBytes))
	}
	for index := range max(len(sums), len(baseSums)) {
		if err := ctx.Err(); err != nil {
			return err
		}
		var base []byte
		if index < len(baseSums) {
			if base, err = s.base.chunk(index); err != nil {
				return err
			}
			baseSums[index] = sumOf(base)
		}
		if index >= len(sums) {
			continue // the image has become shorter since
		}
		chunk, err := s.image.chunk(index)
		if err != nil {
			return err
		}
		sums[index] = sumOf(chunk)
		if err := stream.difference(uint64(index)*chunkBytes, min(chunkBytes, size-uint64(index)*chunkBytes), base, chunk); err != nil {
			return err
		}
		progress.tell(min(uint64(index+1)*chunkBytes, size), size)
	}
	var baseSum sum
	if s.base != nil {
		baseSum = imageSum(s.base.sizeBytes, baseSums)
	}
	return stream.end(baseSum, imageSum(size, sums))
}

// difference sends those blocks of a chunk that are not as in the base. Nil is
// a chunk of zeros; what the base does not have is zero.
func (s *streamWriter) difference(offset, length uint64, base, chunk []byte) error {
	at := func(of []byte, from uint64) []byte {
		if from >= uint64(len(of)) {
			return zeros[:sizeUnitBytes]
		}
		return of[from : from+sizeUnitBytes]
	}
	const same, zero, data = 0, 1, 2
	kind := func(from uint64) int {
		block := at(chunk, from)
		switch {
		case bytes.Equal(block, at(base, from)):
			return same
		case isZero(block):
			return zero
		}
		return data
	}
	if chunk == nil && base == nil {
		return nil
	}
	for from := uint64(0); from < length; {
		is, to := kind(from), from+sizeUnitBytes
		for to < length && kind(to) == is {
			to += sizeUnitBytes
		}
		var err error
		switch is {
		case zero:
			err = s.zero(offset+from, to-from)
		case data:
			err = s.data(offset+from, chunk[from:to])
		}
		if err != nil {
			return err
		}
		from = to
	}
	return nil
}
