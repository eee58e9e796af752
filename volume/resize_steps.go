package volume

import (
	"context"
	"fmt"

	"github.com/daybook-project/daybook/volume/internal/cause"
	"github.com/daybook-project/daybook/volume/internal/imagefile"
	"github.com/daybook-project/daybook/volume/internal/journal"
	"github.com/daybook-project/daybook/volume/operation"
)

// resizing is a resize as steps. Resize does them; after a kill, the next operation on
// the volume, or Repair, undoes them or does them again.
type resizing struct {
	*held
	from, to uint64
	// had is the length of the blocks before: more than from if another program has made
	// them longer; 0 if it is not known.
	had      uint64
	progress Progress
	// counted is called when the volume has its new length; nil: nothing.
	counted func()
	// rolledBack: the record has no resize again.
	rolledBack bool
}

// recordedResize is the resize that is in the record.
func (v *held) recordedResize() *resizing {
	return &resizing{held: v, from: v.record.SizeBytes, to: v.record.Resize}
}

// explain adds to an error that the resize is neither done nor rolled back.
func (r *resizing) explain(err error) error {
	if err == nil || r.rolledBack {
		return err
	}
	return fmt.Errorf("%w; the resize is unfinished until daybook volume repair", err)
}

// growSteps make a volume longer.
func (r *resizing) growSteps() []operation.Step {
	begin := r.begin()
	if r.record.Attachment == nil {
		return []operation.Step{begin, r.lengthened(), r.resizedInPlace(), r.checked(), r.sizeRecorded()}
	}
	return []operation.Step{begin, r.lengthened(), r.capacity(), r.grown(), r.sizeRecorded()}
}

// shrinkSteps make a detached volume shorter.
func (r *resizing) shrinkSteps() []operation.Step {
	return []operation.Step{r.begin(), r.shrunk(), r.shortened(), r.sizeRecorded()}
}

// begin records the new size.
func (r *resizing) begin() operation.Step {
	return operation.Step{
		Name: "resizing",
		Intent: func() (bool, error) {
			was := r.record.Resize
			r.record.Resize = r.to
			return was != r.to, nil
		},
		Undo: func(context.Context) error {
			r.record.Resize = 0
			err := r.write()
			r.rolledBack = err == nil
			return err
		},
	}
}

// sizeRecorded records that the volume has the new size. Undone, the record is as the
// steps before left it.
func (r *resizing) sizeRecorded() operation.Step {
	return operation.Step{
		Name: "size recorded",
		Intent: func() (bool, error) {
			r.record.SizeBytes, r.record.Resize = r.to, 0
			return true, nil
		},
		Undo: func(context.Context) error {
			r.record.SizeBytes, r.record.Resize = r.from, r.to
			return nil
		},
	}
}

// lengthened gives the blocks their new length, and writes a full image's new part.
func (r *resizing) lengthened() operation.Step {
	blocks := r.blocks()
	return operation.Step{
		Name: "lengthened",
		Do: func(ctx context.Context) error {
			bytes, err := r.fileSystemBytes()
			if err != nil {
				return err
			}
			length, err := blocks.Length()
			if err != nil {
				return err
			}
			if length < r.to {
				if err := blocks.SetLength(ctx, r.to); err != nil {
					return cause.NoSpace(err)
				}
			}
			if r.counted != nil {
				r.counted()
			}
			// A file system that has grown uses the new part already.
			if bytes <= r.from {
				if err := blocks.Fill(ctx, r.from, r.progress); err != nil {
					return err
				}
			}
			return imagefile.Sync(blocks.Node())
		},
		Undo: func(ctx context.Context) error {
			device, err := r.device()
			if err != nil {
				return err
			}
			bytes, err := fileSystemBytes(device)
			if err != nil {
				return err
			}
			if bytes > r.from {
				return fmt.Errorf("%w: the file system has grown already", operation.ErrForward)
			}
			if err := blocks.SetLength(ctx, max(r.from, r.had)); err != nil {
				return err
			}
			if r.record.Attachment == nil {
				return nil
			}
			return blocks.Lengthened(device)
		},
	}
}

// capacity gives the opened device of an attached volume its new length.
func (r *resizing) capacity() operation.Step {
	return operation.Step{Name: "capacity", Do: func(context.Context) error {
		device, err := r.device()
		if err != nil {
			return err
		}
		return r.blocks().Lengthened(device)
	}}
}

// grown has the kernel make the mounted file system longer.
func (r *resizing) grown() operation.Step {
	return operation.Step{Name: "grown", Do: func(ctx context.Context) error {
		device, err := r.device()
		if err != nil {
			return err
		}
		if err := journal.Of(r.record).Grow(ctx, device, r.record.Attachment.Target, r.to); err != nil {
			return cause.NoSpace(err)
		}
		return r.blocks().Grown(r.from)
	}}
}

// resizedInPlace has resize2fs work on the volume's own blocks. The undo file is
// there until its result is checked.
func (r *resizing) resizedInPlace() operation.Step {
	return operation.Step{
		Name: "resized",
		Do:   func(ctx context.Context) error { return r.resizeInPlace(ctx, r.to) },
		Undo: r.rollbackInPlace,
	}
}

// checked checks what resize2fs has made. Then it is not undone any more.
func (r *resizing) checked() operation.Step {
	return operation.Step{Name: "resize checked", Do: r.acceptResized}
}

// shrunk makes the file system shorter, on a copy of the image or in place.
func (r *resizing) shrunk() operation.Step {
	return operation.Step{
		Name: "resized",
		Do: func(ctx context.Context) error {
			if isShort, err := r.isShort(); err != nil || isShort && !r.hasUndoFile() {
				return err // by an earlier attempt
			}
			onCopy := false
			if r.record.InPool() {
				var err error
				if onCopy, err = r.shrinkOnCopy(ctx, r.to); err != nil {
					return err
				}
			}
			if onCopy {
				return nil
			}
			return r.resizeInPlace(ctx, r.to)
		},
		Undo: func(ctx context.Context) error {
			length, err := r.blocks().Length()
			if err != nil {
				return err
			}
			if length >= r.from {
				err = r.rollbackInPlace(ctx)
			} else {
				// It is the copy, or was cut off, which resize2fs does last: the
				// part that the undo file leads back to is gone.
				err = r.acceptResized(ctx)
			}
			if err != nil {
				return err
			}
			isShort, err := r.isShort()
			if err == nil && isShort {
				err = fmt.Errorf("%w: the file system has shrunk already", operation.ErrForward)
			}
			return err
		},
	}
}

// shortened checks the file system, and gives the blocks their new length.
func (r *resizing) shortened() operation.Step {
	return operation.Step{Name: "shortened", Do: func(ctx context.Context) error {
		if err := r.acceptResized(ctx); err != nil {
			return err
		}
		blocks := r.blocks()
		if err := blocks.SetLength(ctx, r.to); err != nil {
			return err
		}
		return imagefile.Sync(blocks.Node())
	}}
}

func (r *resizing) fileSystemBytes() (uint64, error) {
	device, err := r.device()
	if err != nil {
		return 0, err
	}
	return fileSystemBytes(device)
}

// isShort says whether the file system has become shorter.
func (r *resizing) isShort() (bool, error) {
	bytes, err := r.fileSystemBytes()
	return bytes <= r.to, err
}

// finishResize finishes an interrupted resize, or rolls it back: a growing one is done
// again, a shrinking one is undone unless the file system is short already.
func (v *held) finishResize(ctx context.Context) error {
	if err := v.finishInterrupted(ctx); err != nil {
		return err
	}
	if v.record.Attachment == nil {
		if err := v.blocks().Activate(ctx); err != nil {
			return err
		}
	}
	r, run := v.recordedResize(), v.run()
	if r.to < r.from {
		_, err := run.UndoOrDo(ctx, r.shrinkSteps()...)
		return err
	}
	if v.record.Attachment == nil {
		if err := run.Undo(ctx, r.resizedInPlace()); err != nil {
			return err
		}
		// The journal may hold a growing that the superblock does not have yet.
		if err := run.Do(ctx, v.checking()); err != nil {
			return err
		}
	}
	err := r.explain(run.DoOrUndo(ctx, r.growSteps()...))
	if err != nil && r.rolledBack {
		v.pool.log.Warn("an interrupted resize was rolled back", "volume", v.record.Name, "why", err)
		return nil
	}
	return err
}
