package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/atomicfile"
	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/volume/internal/cause"
	"github.com/daybook-project/daybook/volume/internal/imagefile"
	"github.com/daybook-project/daybook/volume/internal/journal"
	"github.com/daybook-project/daybook/volume/internal/store"
	"github.com/daybook-project/daybook/volume/operation"
)

// shrink makes a volume that is not attached shorter.
func (v *held) shrink(ctx context.Context, size uint64) error {
	if v.record.Attachment != nil {
		return fmt.Errorf("it is %w: attached at %s, and ext4 becomes shorter only while it is not mounted; detach it first", ErrBusy, v.record.Attachment.Target)
	}
	if err := v.pool.steps().Do(ctx, v.checking()); err != nil {
		return err
	}
	least, err := v.offline().MinimumBytes(ctx)
	if err != nil {
		return err
	}
	if size < least {
		return fmt.Errorf("%w size: %d bytes, but its data need at least %d", ErrInvalid, size, least)
	}
	if err := v.blocks().CheckResize(ctx, size); err != nil {
		return err
	}
	r := &resizing{held: v, from: v.record.SizeBytes, to: size}
	return r.explain(v.run().DoOrUndo(ctx, r.shrinkSteps()...))
}

// shrinkOnCopy has resize2fs work on a copy of the image, where the pool has
// reflinks or twice the space that the copy takes: the other volumes need some,
// too. Otherwise it does nothing and returns false.
func (v *held) shrinkOnCopy(ctx context.Context, size uint64) (done bool, err error) {
	image, bytes := v.pool.files.Image(v.record.Name), v.record.SizeBytes
	w, err := v.pool.changeWork(ctx, 0, 0)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, w.undo(context.WithoutCancel(ctx))) }()
	next := filepath.Join(w.path, nextFile)
	if err := imagefile.MakeSparse(next, bytes); err != nil {
		return false, err
	}
	can, err := imagefile.Reflink(image, next, bytes)
	if err != nil {
		return false, err
	}
	if !can {
		if room, err := v.pool.hasTwice(image); err != nil || !room {
			return false, err
		}
		if _, err := imagefile.Copy(ctx, image, next, bytes, nil, nil); err != nil {
			return false, err
		}
	}
	err = v.pool.steps().Do(ctx,
		operation.Step{Name: "resized", Do: func(ctx context.Context) error { return shrinkImage(ctx, v.record, next, size) }},
		operation.Step{Name: "exchanged", Do: func(context.Context) error { return os.Rename(next, image) }},
	)
	if err != nil {
		return false, err
	}
	return true, atomicfile.SyncDirectory(filepath.Dir(image))
}

// shrinkImage makes the copy of a volume's image shorter: its file system and the file.
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

// hasTwice says whether the pool has twice the space that a file takes.
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

// resizeInPlace has resize2fs work on the volume's blocks. What it overwrites is in the
// undo file.
func (v *held) resizeInPlace(ctx context.Context, size uint64) error {
	undo := v.undoFile()
	if err := makeUndoFile(undo); err != nil {
		return err
	}
	return cause.NoSpace(v.offline().Resize(ctx, size, undo))
}

// acceptResized checks what resize2fs has made, and then removes the undo file.
func (v *held) acceptResized(ctx context.Context) error {
	if err := v.offline().CheckResized(ctx); err != nil {
		return cause.Damaged(err)
	}
	if err := imagefile.Sync(v.blocks().Node()); err != nil {
		return err
	}
	return removeSynced(v.undoFile())
}

func (v *held) undoFile() string { return v.pool.files.UndoFile(v.record.Name) }

func (v *held) hasUndoFile() bool {
	_, err := os.Lstat(v.undoFile())
	return err == nil
}

// rollbackInPlace restores what an interrupted resize2fs has overwritten; without an
// undo file there is nothing.
func (v *held) rollbackInPlace(ctx context.Context) error {
	undo := v.undoFile()
	info, err := os.Stat(undo)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	err = v.pool.step(ctx, "undone", func(ctx context.Context) error {
		offline := v.offline()
		var undoErr error
		if info.Size() > 0 { // else nothing was overwritten
			undoErr = offline.Undo(ctx, undo)
		}
		if _, _, err := offline.Check(ctx, true); err != nil {
			return errors.Join(undoErr, cause.Damaged(err))
		}
		v.pool.log.Info("an interrupted resize was rolled back", "volume", v.record.Name, "e2undo", undoErr)
		return imagefile.Sync(v.blocks().Node())
	})
	if err != nil {
		return err
	}
	return removeSynced(undo)
}

// makeUndoFile creates the file. Where the pool's file system has the attribute, a write
// to it returns after the data are on disk: so the file is complete after a crash of the
// host, too.
func makeUndoFile(path string) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return cause.NoSpace(err)
	}
	flags, err := unix.IoctlGetInt(int(file.Fd()), unix.FS_IOC_GETFLAGS)
	if err == nil {
		_ = unix.IoctlSetPointerInt(int(file.Fd()), unix.FS_IOC_SETFLAGS, flags|syncFlag) // not everywhere
	}
	return errors.Join(file.Close(), atomicfile.SyncDirectory(filepath.Dir(path)))
}

// syncFlag is FS_SYNC_FL, include/uapi/linux/fs.h: chattr +S.
const syncFlag = 0x8

func removeSynced(path string) error {
	if err := store.RemoveIfThere(path); err != nil {
		return err
	}
	return atomicfile.SyncDirectory(filepath.Dir(path))
}
