package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/internal/wholefile"
	"github.com/daybook-project/daybook/volume/internal/cause"
	"github.com/daybook-project/daybook/volume/internal/imagefile"
	"github.com/daybook-project/daybook/volume/internal/journal"
	"github.com/daybook-project/daybook/volume/internal/store"
	"github.com/daybook-project/daybook/volume/operation"
)

func (p *Pool) offline(record Record, l *store.Lock) ext4.Offline {
	fileSystem := ext4.Offline{Device: p.blocks(record).Node(), Lock: l.File, Kept: p.files.KeptSuperblock(record.Name)}
	journal.Of(record).Offline(&fileSystem)
	return fileSystem
}

// shrink makes a volume that is not attached shorter.
func (p *Pool) shrink(ctx context.Context, record Record, l *store.Lock, size uint64) (Record, error) {
	if record.Attachment != nil {
		return record, fmt.Errorf("it is %w: attached at %s, and ext4 becomes shorter only while it is not mounted; detach it first", ErrBusy, record.Attachment.Target)
	}
	offline := p.offline(record, l)
	if _, _, err := offline.Check(ctx, true); err != nil {
		return record, cause.Damaged(err)
	}
	least, err := offline.MinimumBytes(ctx)
	if err != nil {
		return record, err
	}
	if size < least {
		return record, fmt.Errorf("%w size: %d bytes, but its data need at least %d", ErrInvalid, size, least)
	}
	if err := p.blocks(record).CheckResize(ctx, size); err != nil {
		return record, err
	}
	if err := p.run(&record).Do(ctx, enter("resizing", func() { record.Resize = size })); err != nil {
		return record, err
	}
	onCopy := false
	if hasImage(record) {
		onCopy, err = p.shrinkOnCopy(ctx, record, size)
	}
	if err == nil && !onCopy {
		err = p.resizeOffline(ctx, record, l, size)
	}
	done, endErr := p.finishShrink(context.WithoutCancel(ctx), record, l)
	return done, errors.Join(err, endErr)
}

// shrinkOnCopy lets resize2fs work on a copy of the image, where the pool has
// reflinks or twice the room that the copy takes: the other volumes need some,
// too. It says false if not.
func (p *Pool) shrinkOnCopy(ctx context.Context, record Record, size uint64) (done bool, err error) {
	image := p.files.Image(record.Name)
	w, err := p.changeWork(ctx, 0, 0)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, w.discard()) }()
	next := filepath.Join(w.path, nextFile)
	if err := imagefile.MakeSparse(next, record.SizeBytes); err != nil {
		return false, err
	}
	can, err := imagefile.Reflink(image, next, record.SizeBytes)
	if err != nil {
		return false, err
	}
	if !can {
		if room, err := p.hasTwice(image); err != nil || !room {
			return false, err
		}
		if _, err := imagefile.Copy(ctx, image, next, record.SizeBytes, nil, nil); err != nil {
			return false, err
		}
	}
	err = p.steps().Do(ctx,
		operation.Step{Name: "resized", Do: func(ctx context.Context) error { return shrinkImage(ctx, record, next, size) }},
		operation.Step{Name: "exchanged", Do: func(context.Context) error { return os.Rename(next, image) }},
	)
	if err != nil {
		return false, err
	}
	return true, wholefile.SyncDirectory(filepath.Dir(image))
}

// shrinkImage makes the file system in a copy of a volume's image shorter, and the
// file.
func shrinkImage(ctx context.Context, record Record, next string, size uint64) error {
	offline := ext4.Offline{Device: next}
	journal.Of(record).Offline(&offline)
	if err := offline.Resize(ctx, size, ""); err != nil {
		return cause.NoSpace(err)
	}
	if err := offline.CheckResized(ctx); err != nil {
		return cause.Damaged(err)
	}
	if err := os.Truncate(next, int64(size)); err != nil {
		return err
	}
	if record.Provision == Full {
		if err := imagefile.WriteOut(ctx, next, 0, nil); err != nil {
			return err
		}
	}
	return imagefile.Sync(next)
}

// hasTwice says whether the pool has twice the room that a file takes.
func (p *Pool) hasTwice(path string) (bool, error) {
	usage, err := p.Usage()
	if err != nil {
		return false, err
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return false, err
	}
	return usage.FreeBytes/2 >= uint64(st.Blocks)*512, nil
}

// resizeOffline lets resize2fs work on the image. It has succeeded when the
// undo file is gone.
func (p *Pool) resizeOffline(ctx context.Context, record Record, l *store.Lock, size uint64) error {
	undo := p.files.UndoFile(record.Name)
	if err := makeUndoFile(undo); err != nil {
		return err
	}
	err := p.step(ctx, "resized", func(ctx context.Context) error {
		return cause.NoSpace(p.offline(record, l).Resize(ctx, size, undo))
	})
	if err != nil {
		return err
	}
	if err := p.offline(record, l).CheckResized(ctx); err != nil {
		return cause.Damaged(err)
	}
	if err := imagefile.Sync(p.blocks(record).Node()); err != nil {
		return err
	}
	return removeSynced(undo)
}

// finishShrink ends a shrinking from wherever it is.
func (p *Pool) finishShrink(ctx context.Context, record Record, l *store.Lock) (Record, error) {
	image := p.blocks(record).Node()
	long, err := p.blocks(record).HasLength(record.SizeBytes)
	if err != nil {
		return record, err
	}
	if long {
		if err := p.rollbackOffline(ctx, record, l); err != nil {
			return record, err
		}
	} else {
		// It was exchanged, or cut off, which resize2fs does last: what the
		// undo file leads back to is gone.
		if err := p.offline(record, l).CheckResized(ctx); err != nil {
			return record, cause.Damaged(err)
		}
		if err := removeSynced(p.files.UndoFile(record.Name)); err != nil {
			return record, err
		}
	}
	now, err := fileSystemBytes(image)
	if err != nil {
		return record, err
	}
	if now <= record.Resize {
		if err := p.blocks(record).SetLength(ctx, record.Resize); err != nil {
			return record, err
		}
		if err := imagefile.Sync(image); err != nil {
			return record, err
		}
		record.SizeBytes = record.Resize
	}
	record.Resize = 0
	return record, p.files.Write(record)
}

// rollbackOffline puts back what an interrupted tool has overwritten; without an
// undo file there is nothing.
func (p *Pool) rollbackOffline(ctx context.Context, record Record, l *store.Lock) error {
	undo := p.files.UndoFile(record.Name)
	info, err := os.Stat(undo)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	err = p.step(ctx, "undone", func(ctx context.Context) error {
		offline := p.offline(record, l)
		var undoErr error
		if info.Size() > 0 { // else nothing was overwritten
			undoErr = offline.Undo(ctx, undo)
		}
		if _, _, err := offline.Check(ctx, true); err != nil {
			return errors.Join(undoErr, cause.Damaged(err))
		}
		p.log.Info("an interrupted resize was rolled back", "volume", record.Name, "e2undo", undoErr)
		return imagefile.Sync(p.blocks(record).Node())
	})
	if err != nil {
		return err
	}
	return removeSynced(undo)
}

// makeUndoFile makes the file such that its data are on disk before a write
// returns, where the pool's file system knows the attribute: then it holds also
// what was overwritten before the host crashed.
func makeUndoFile(path string) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return cause.NoSpace(err)
	}
	flags, err := unix.IoctlGetInt(int(file.Fd()), unix.FS_IOC_GETFLAGS)
	if err == nil {
		_ = unix.IoctlSetPointerInt(int(file.Fd()), unix.FS_IOC_SETFLAGS, flags|syncFlag) // not everywhere
	}
	return errors.Join(file.Close(), wholefile.SyncDirectory(filepath.Dir(path)))
}

// syncFlag is FS_SYNC_FL, include/uapi/linux/fs.h: chattr +S.
const syncFlag = 0x8

func removeSynced(path string) error {
	if err := store.RemoveIfThere(path); err != nil {
		return err
	}
	return wholefile.SyncDirectory(filepath.Dir(path))
}
