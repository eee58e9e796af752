package disksim

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
)

// dismantle removes a disk whose owner or server is dead. It detaches mounts of
// the disk lazily (the only place that does so, because no process is left to
// report an error to), restores the queue of the loop device and detaches
// its file, and unmounts the FUSE file system. It finds them by the path of the
// disk's file, so that it needs no record and can be repeated.
//
// Each step is done even if an earlier one failed.
func (h home) dismantle(ctx context.Context, name string) error {
	record, err := h.readRecord(name)
	if err != nil {
		record = Record{} // damaged or missing: only the queue is not restored
	}
	var errs []error
	alone, err := h.awaitAlone(ctx, name)
	errs = append(errs, err)
	loops, err := h.loopsOf(name, record)
	errs = append(errs, err)
	for _, loop := range loops {
		errs = append(errs, unmountAll(loop), restoreQueue(loop.Disk, record), loop.DetachLazily())
	}
	alone.release()
	for _, loop := range loops {
		awaitDetached(ctx, loop)
	}
	errs = append(errs, unmountFUSE(h.mountPoint(name)))
	return errors.Join(errs...)
}

// awaitAlone excludes the other process that takes the disk's loop devices
// away: [Delete] may meet a server that dismantles its disk because the creator
// died, and each would see the scheduler that the other sets. The lock is on the
// record, which nobody writes any more. Without one there is no lock, and no
// scheduler to restore.
func (h home) awaitAlone(ctx context.Context, name string) (*lock, error) {
	alone, err := await(ctx, func() (*lock, error) {
		file, err := os.OpenFile(h.path(name, recordSuffix), os.O_RDWR, 0)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		return tryLock(file)
	})
	if errors.Is(err, errAlive) {
		err = fmt.Errorf("another process takes disk %s apart: %w", name, ctx.Err())
	}
	return alone, err
}

// loopsOf finds the loop devices of the disk's file; there is more than one
// only if another program attached the file. Once its FUSE file system is
// unmounted, the kernel prints the file's path as "/NAME": then the record
// identifies the device.
func (h home) loopsOf(name string, record Record) ([]blockdev.Loop, error) {
	all, err := blockdev.Loops()
	if err != nil {
		return nil, err
	}
	_, statErr := os.Lstat("/" + name)
	orphaned := errors.Is(statErr, fs.ErrNotExist)
	return slices.DeleteFunc(all, func(loop blockdev.Loop) bool {
		orphan := orphaned && loop.Name == record.Device && loop.File == "/"+name
		return loop.File != h.diskFile(name) && !orphan
	}), nil
}

// unmountAll detaches the mounts of the file system on the device, the last one
// first.
func unmountAll(loop blockdev.Loop) error {
	mounts, err := blockdev.MountsOf(loop.Dev)
	if err != nil {
		return err
	}
	slices.Reverse(mounts)
	var errs []error
	for _, mount := range mounts {
		err := unix.Unmount(mount.Point, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, fmt.Errorf("cannot unmount %s: %w", mount.Point, err))
		}
	}
	return errors.Join(errs...)
}

// restoreQueue restores what Create changed of the loop device's queue.
func restoreQueue(disk blockdev.Disk, record Record) error {
	// The throttling of writeback last: a scheduler that is set can change it.
	return errors.Join(restoreScheduler(disk, record), restoreRotational(disk, record), restoreWriteback(disk, record))
}

// restoreRotational restores queue/rotational, which the kernel keeps after the file is
// detached. It does not change what another program set.
func restoreRotational(disk blockdev.Disk, record Record) error {
	if record.PreviousRotational == "" || record.Device != disk.Name {
		return nil
	}
	now, err := disk.Queue("rotational")
	if err != nil || now == record.PreviousRotational || now != record.Parameters.rotational() {
		return err
	}
	return disk.SetQueue("rotational", record.PreviousRotational)
}

// restoreScheduler restores the scheduler of the loop device's number, which
// the kernel keeps from one file to the next, without the tunables that the
// disk's user set.
func restoreScheduler(disk blockdev.Disk, record Record) error {
	if record.PreviousScheduler == "" || record.Device != disk.Name {
		return nil
	}
	now, err := disk.Scheduler()
	if err != nil {
		return err
	}
	// Do not change a scheduler that another program set ("none" may be ours,
	// between two instances), and do not set one that the kernel never offered.
	ours := now.Current == record.Scheduler || now.Current == blockdev.NoScheduler
	if !ours || !slices.Contains(now.Available, record.PreviousScheduler) {
		return nil
	}
	return disk.RenewScheduler(record.PreviousScheduler)
}

// awaitDetached waits for the last users of the device: processes that were
// killed with the owner.
func awaitDetached(ctx context.Context, loop blockdev.Loop) {
	for {
		file, err := loop.BackingFile()
		if err != nil || file != loop.File {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(5 * time.Millisecond):
		}
	}
}
