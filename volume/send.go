package volume

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/daybook-project/daybook/volume/internal/backing"
	"github.com/daybook-project/daybook/volume/internal/cause"
	"github.com/daybook-project/daybook/volume/internal/chunk"
	"github.com/daybook-project/daybook/volume/internal/imagefile"
	"github.com/daybook-project/daybook/volume/internal/stream"
	"github.com/daybook-project/daybook/volume/internal/transfer"
	"github.com/daybook-project/daybook/volume/records"
)

// SendOptions are the choices of [Pool.Send].
type SendOptions struct {
	// MaxFreeze is how long the writers of an attached volume may wait: see
	// [SnapshotOptions].
	MaxFreeze time.Duration
	// Progress reports how much of the image has been read.
	Progress Progress
}

// Send writes a volume's snapshot to a stream, for [Pool.Receive]; with ""
// its present content, for which an attached volume is frozen for a moment
// (see [Pool.Snapshot]). With base, an older snapshot of the same volume, it sends only
// the differences. While the present content of a detached volume is sent, the volume
// cannot be attached. When ctx ends, a write to w can still be in progress.
func (p *Pool) Send(ctx context.Context, name, snapshot, base string, w io.Writer, options SendOptions) error {
	if err := p.send(ctx, name, snapshot, base, w, options); err != nil {
		return cause.Failed("cannot send volume %s: %w", records.Origin(name, snapshot), err)
	}
	return nil
}

func (p *Pool) send(ctx context.Context, name, snapshot, base string, w io.Writer, o SendOptions) (err error) {
	if err := CheckMaxFreeze(o.MaxFreeze); err != nil {
		return err
	}
	var from *source
	err = p.step(ctx, "sending", func(ctx context.Context) (err error) {
		from, err = p.openSource(ctx, name, snapshot, base, longestFreeze(o.MaxFreeze))
		return err
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.close()) }()
	until, finish := writeUntil(ctx, w)
	out := bufio.NewWriterSize(until, chunk.Bytes)
	if err = transfer.Send(ctx, out, from.header, from.image, from.base, o.Progress); err == nil {
		err = out.Flush()
	}
	return finish(err)
}

// source is the volume or snapshot that is sent. Its images are open, so that meanwhile
// a snapshot may be deleted and operations on the volume may run. Its logical volumes are
// claimed: meanwhile they cannot be deleted.
type source struct {
	// held keeps its lock only while the present content of a detached volume is sent.
	*held
	header stream.Header
	image  *imagefile.Reader
	base   *imagefile.Reader // nil without base
	claims []*os.File
	// work exists if the present content of an attached volume is sent.
	work work
}

func (s *source) close() error {
	var errs []error
	for _, r := range []*imagefile.Reader{s.image, s.base} {
		if r != nil {
			errs = append(errs, r.Close())
		}
	}
	for _, claim := range s.claims {
		errs = append(errs, claim.Close())
	}
	errs = append(errs, s.work.undo(context.Background()))
	s.release()
	return errors.Join(errs...)
}

// openSource opens a snapshot of a volume, or with "" its present content, and its base.
func (p *Pool) openSource(ctx context.Context, name, snapshot, base string, longest time.Duration) (_ *source, err error) {
	v, err := p.holdReady(ctx, name)
	if err != nil {
		return nil, err
	}
	record := v.record
	s := &source{held: v, header: stream.Header{
		Format: stream.Format, Name: record.Name, ID: record.ID, Created: record.Created, SizeBytes: record.SizeBytes, Provision: record.Provision,
		SectorBytes: record.SectorBytes, Weight: record.Weight, Labels: record.Labels, MountOptions: record.MountOptions, NoAtime: record.NoAtime,
	}}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if record.FileSystem == JFS {
		return nil, fmt.Errorf("%w: only volumes with ext4 are sent; this one has JFS: clone it, or copy its files", ErrUnsupported)
	}
	blocks := v.blocks()
	if err := blocks.CheckCopy(); err != nil {
		return nil, err
	}
	if err := v.recoverMemory(ctx); err != nil {
		return nil, err
	}
	node := blocks.Node()
	switch {
	case snapshot != "":
		node, err = s.snapshot(ctx, snapshot)
	case record.Attachment != nil:
		node, err = s.freeze(ctx, longest)
	}
	if err != nil {
		return nil, err
	}
	if err := transfer.CheckSendable(node); err != nil {
		return nil, err
	}
	if s.image, err = s.open(node, s.header.SizeBytes); err != nil {
		return nil, err
	}
	if base != "" {
		if err := s.openBase(ctx, base); err != nil {
			return nil, fmt.Errorf("base: %w", err)
		}
	}
	if snapshot != "" || record.Attachment != nil {
		s.release()
	}
	return s, nil
}

// snapshot enters a snapshot in the header, and returns its blocks.
func (s *source) snapshot(ctx context.Context, name string) (node string, err error) {
	of, err := s.pool.files.ReadSnapshot(s.record.Name, name)
	if err != nil {
		return "", err
	}
	blocks := s.blocks()
	if err := blocks.ActivateSnapshot(ctx, of); err != nil {
		return "", err
	}
	s.header.SizeBytes = of.SizeBytes
	s.header.Snapshot = &stream.Snapshot{Name: of.Name, ID: of.ID, Created: of.Created}
	return blocks.SnapshotNode(of), nil
}

// freeze makes a temporary snapshot of an attached volume, and returns its blocks.
func (s *source) freeze(ctx context.Context, longest time.Duration) (node string, err error) {
	temporary := newSnapshot(s.record, "sent")
	if s.work, err = s.pool.snapshotWork(ctx, s.record, temporary); err != nil {
		return "", err
	}
	freeze, err := s.freezer(longest)
	if err != nil {
		return "", err
	}
	blocks := s.blocks()
	to := backing.Copy{Directory: s.work.path, Held: s.work.lock.File, Snapshot: &temporary, LongestFreeze: longest, Mountpoint: mountpointOf(s.record)}
	if _, _, err := blocks.Snapshot(ctx, to, freeze); err != nil {
		return "", err
	}
	if temporary.LVM != nil {
		return blocks.SnapshotNode(temporary), nil
	}
	return s.work.image(), nil
}

// openBase enters the base in the header, and opens it.
func (s *source) openBase(ctx context.Context, name string) error {
	of, err := s.pool.files.ReadSnapshot(s.record.Name, name)
	if err != nil {
		return err
	}
	s.header.Base = &stream.Base{Name: of.Name, ID: of.ID, SizeBytes: of.SizeBytes}
	blocks := s.blocks()
	if err := blocks.ActivateSnapshot(ctx, of); err != nil {
		return err
	}
	s.base, err = s.open(blocks.SnapshotNode(of), of.SizeBytes)
	return err
}

// open opens an image, or a logical volume, which it claims.
func (s *source) open(node string, bytes uint64) (*imagefile.Reader, error) {
	if !s.record.InPool() {
		claim, err := backing.Claim(node)
		if err != nil {
			return nil, err
		}
		s.claims = append(s.claims, claim)
	}
	return imagefile.NewReader(node, bytes)
}
