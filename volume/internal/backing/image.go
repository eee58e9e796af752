package backing

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/atomicfile"
	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/volume/internal/cause"
	"github.com/daybook-project/daybook/volume/internal/filesystem"
	"github.com/daybook-project/daybook/volume/internal/imagefile"
	"github.com/daybook-project/daybook/volume/internal/store"
	"github.com/daybook-project/daybook/volume/records"
)

// image is a file in the pool, under a loop device while the volume is attached.
type image struct {
	directory string
	record    records.Volume
	log       *slog.Logger
}

func (i image) Node() string { return filepath.Join(i.directory, store.ImageFile) }

// Create makes a file that reads as zeros: sparse, or with all its blocks. These are
// allocated at once, so that they are contiguous; otherwise the blocks that mke2fs writes
// would be allocated first, scattered.
func (i image) Create(context.Context, *os.File) error {
	err := imagefile.MakeSparse(i.Node(), i.record.SizeBytes)
	if err == nil && i.record.Provision == records.Full {
		err = imagefile.Allocate(i.Node(), 0)
	}
	return err
}

func (i image) Delete(context.Context) error { return nil }

func (i image) ReadsZeros(context.Context) (bool, error) { return true, nil }

func (i image) Activate(context.Context) error { return nil }

func (i image) Check(context.Context) error {
	info, err := os.Stat(i.Node())
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("its image %s is missing: it is %w", i.Node(), cause.ErrCorrupt)
	}
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || uint64(info.Size()) < i.record.SizeBytes {
		return fmt.Errorf("its image is %w: %d bytes long, want %d", cause.ErrCorrupt, info.Size(), i.record.SizeBytes)
	}
	return nil
}

func (i image) CheckUnused() error {
	loops, err := i.loops(Loops)
	if err != nil || len(loops) == 0 {
		return err
	}
	return fmt.Errorf("it is %w: %s has its image, and not by Daybook (losetup -d %s)", cause.ErrBusy, loops[0].Path(), loops[0].Path())
}

// Open makes a loop device of the image.
func (i image) Open(_ context.Context, o OpenOptions) (Device, error) {
	options := blockdev.AttachOptions{
		DirectIO: true, ReadOnly: o.ReadOnly, BlockSizeBytes: i.sectorBytes(), Label: i.label(),
	}
	loop, err := blockdev.Attach(i.Node(), options)
	if errors.Is(err, blockdev.ErrNoDirectIO) {
		if !o.AllowCache {
			return Device{}, fmt.Errorf("%w: the pool's file system %s; --allow-cache does without, and then data is cached twice and an fsync of one volume waits for the pool's writeback",
				err, parent(parent(i.directory)))
		}
		i.log.Warn("no direct I/O: the image is cached twice", "volume", i.record.Name, "why", err)
		options.DirectIO, options.BlockSizeBytes = false, i.record.SectorBytes
		loop, err = blockdev.Attach(i.Node(), options)
	}
	if err != nil {
		return Device{}, err
	}
	return Device{Dev: loop.Dev, Node: loop.Path(), Loop: &loop}, nil
}

// sectorBytes is the loop device's logical block size: the least for direct I/O now, if
// the file system's blocks are not smaller.
func (i image) sectorBytes() uint32 {
	sector := imagefile.DirectSectorBytes(i.Node(), i.record.SectorBytes)
	s, err := ext4.ReadSuperblock(i.Node())
	if err == nil && uint64(s.BlockSizeBytes) < uint64(sector) {
		return i.record.SectorBytes
	}
	return sector
}

// label marks the loop devices that Daybook made. Another program may attach the image,
// too.
func (i image) label() string { return "daybook volume " + i.record.ID }

// Opened finds the loop devices that Daybook made of the image.
func (i image) Opened(read ReadLoops) ([]Device, error) {
	all, err := i.loops(read)
	if err != nil {
		return nil, err
	}
	var own []Device
	for _, loop := range all {
		switch {
		case errors.Is(loop.Err, blockdev.ErrGone): // detached since
		case loop.Err != nil:
			return nil, loop.Err
		case loop.Status.Label == i.label():
			own = append(own, Device{Dev: loop.Dev, Node: loop.Node(), Loop: &loop.Loop})
		}
	}
	return own, nil
}

// loops finds the loop devices over the image, whoever made them: by its path,
// also where the file was removed since; or by its inode, where the pool has several
// paths.
func (i image) loops(read ReadLoops) ([]Loop, error) {
	all, err := read()
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	there := unix.Stat(i.Node(), &st) == nil
	var found []Loop
	for _, loop := range all {
		path, removed := loopFile(loop.Loop)
		same := path == i.Node()
		if there && !removed && loop.Err == nil {
			// Another mount namespace may have another file at that path.
			same = loop.Status.Inode == st.Ino && loop.Status.FileSystem == st.Dev
		}
		if same {
			found = append(found, loop)
		}
	}
	return found, nil
}

// Close waits until the kernel has detached the loop device, also if ctx ends meanwhile. A
// detach that has started cannot be cancelled, and the kernel completes it when the last
// process (udev, blkid) has closed the device.
func (i image) Close(ctx context.Context, device Device, _ bool) error {
	return AwaitFree(ctx, func() error { return device.Loop.Detach(context.WithoutCancel(ctx)) })
}

func (i image) CheckResize(context.Context, uint64) error { return nil }

func (i image) SetLength(_ context.Context, bytes uint64) error {
	err := os.Truncate(i.Node(), int64(bytes))
	if errors.Is(err, unix.EFBIG) {
		return fmt.Errorf("the pool's file system has no files of %d bytes: %w", bytes, cause.ErrUnsupported)
	}
	return cause.NoSpace(err)
}

func (i image) Length() (uint64, error) {
	info, err := os.Stat(i.Node())
	if err != nil {
		return 0, err
	}
	return uint64(info.Size()), nil
}

func (i image) Fill(ctx context.Context, from uint64, progress imagefile.Progress) error {
	if i.record.Provision != records.Full {
		return nil
	}
	return imagefile.WriteOut(ctx, i.Node(), int64(from), progress)
}

// Lengthened gives a loop device the length of its file.
func (i image) Lengthened(device string) error {
	fd, err := unix.Open(device, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("%s: %w", device, err)
	}
	err = unix.IoctlSetInt(fd, unix.LOOP_SET_CAPACITY, 0)
	if err != nil {
		err = fmt.Errorf("cannot give %s its file's new length: %w", device, err)
	}
	return errors.Join(err, unix.Close(fd))
}

// Grown allocates again: the kernel zeroes new inode tables by a request that a loop
// device fulfils with holes.
func (i image) Grown(from uint64) error {
	if i.record.Provision != records.Full {
		return nil
	}
	return imagefile.Allocate(i.Node(), int64(from))
}

func (i image) CheckCopy() error { return nil }

func (i image) SnapshotNode(snapshot records.Snapshot) string {
	return filepath.Join(i.directory, store.SnapshotsDir, snapshot.Name, store.ImageFile)
}

func (i image) ActivateSnapshot(context.Context, records.Snapshot) error { return nil }

func (i image) DeleteSnapshot(context.Context, records.Snapshot) error { return nil }

func (i image) CheckDelete(context.Context, []records.Snapshot) error { return i.CheckUnused() }

func (i image) CheckDeleteSnapshot(context.Context, records.Snapshot) error { return nil }

func (i image) AllocatedBytes(context.Context) (uint64, error) {
	var st unix.Stat_t
	err := unix.Stat(i.Node(), &st)
	return uint64(st.Blocks) * 512, err
}

// Snapshot copies the content of the volume to the sparse image of the work.
func (i image) Snapshot(ctx context.Context, to Copy, freeze Freeze) (records.Method, float64, error) {
	source, target, size := i.Node(), filepath.Join(to.Directory, store.ImageFile), i.record.SizeBytes
	if freeze == nil {
		if err := filesystem.CheckCopy(i.record, source); err != nil {
			return "", 0, err
		}
		how, err := copyStill(ctx, source, target, size, to.Progress)
		return how, 0, err
	}
	// A reflink of a live image is no snapshot, but shows whether reflinks work.
	can, err := imagefile.Reflink(source, target, size)
	if err != nil {
		return "", 0, err
	}
	how := records.Reflink
	var before *imagefile.Copied
	if !can {
		how = records.Copied
		if before, err = copyLive(ctx, source, target, size, to.LongestFreeze, to.Progress); err != nil {
			return "", 0, err
		}
	}
	// Data written now need not be written while the file system is frozen.
	if err := atomicfile.SyncFileSystem(to.Mountpoint); err != nil {
		return "", 0, err
	}
	if err := ctx.Err(); err != nil {
		return "", 0, err
	}
	seconds, err := freeze(ctx, func(ctx context.Context) error {
		if can {
			_, err := imagefile.Reflink(source, target, size)
			return err
		}
		_, err := imagefile.Copy(ctx, source, target, size, before, to.Progress)
		return err
	})
	return how, seconds, err
}

func (i image) Clone(ctx context.Context, snapshot *records.Snapshot, to Copy, freeze Freeze) error {
	if snapshot == nil {
		_, _, err := i.Snapshot(ctx, to, freeze)
		return err
	}
	_, err := copyStill(ctx, i.SnapshotNode(*snapshot), filepath.Join(to.Directory, store.ImageFile), snapshot.SizeBytes, to.Progress)
	return err
}

// Passes over a volume in use, before it is frozen. Each reads the whole image, and
// leaves less to write for the next. The one during the freeze writes at most about
// fewBytes, unless the writers of the volume are faster.
const (
	maxPasses = 3
	fewBytes  = 64 << 20
)

// copyLive copies an image in use, so that little is left to write during the freeze. It
// refuses an image that cannot be read in the time that its writers may wait.
func copyLive(ctx context.Context, source, target string, size uint64, longest time.Duration, progress imagefile.Progress) (before *imagefile.Copied, err error) {
	if err := checkReadable(ctx, source, size, longest); err != nil {
		return nil, err
	}
	for pass := 0; pass < maxPasses && (before == nil || before.ChangedBytes > fewBytes); pass++ {
		if before, err = imagefile.Copy(ctx, source, target, size, before, progress); err != nil {
			return nil, err
		}
	}
	return before, nil
}

// checkReadable reads an image as the copy during the freeze does, and refuses it if that
// takes longer than the freeze may.
func checkReadable(ctx context.Context, image string, size uint64, longest time.Duration) error {
	var read uint64
	reading, stop := context.WithTimeoutCause(ctx, longest, cause.ErrNotFrozen)
	defer stop()
	_, err := imagefile.Sums(reading, image, size, func(done, _ uint64) { read = done })
	if !errors.Is(err, cause.ErrNotFrozen) {
		return err
	}
	return fmt.Errorf("%w: the pool's file system has no reflinks, so the image must be read while its writers wait, and in the %v that they may wait (--max-freeze) %d of %d bytes were read; "+
		"detach the volume first, put the pool on XFS, or allow more time, such as --max-freeze 10m", cause.ErrNotFrozen, longest, read, size)
}

// copyStill copies an image that is not written meanwhile.
func copyStill(ctx context.Context, source, target string, size uint64, progress imagefile.Progress) (records.Method, error) {
	reflinked, err := imagefile.CopyStill(ctx, source, target, size, progress)
	switch {
	case err != nil:
		return "", err
	case reflinked:
		return records.Reflink, nil
	}
	return records.Copied, nil
}

func parent(directory string) string { return filepath.Dir(directory) }
