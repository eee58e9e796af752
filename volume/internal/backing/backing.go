// Package backing has what blocks a volume uses, behind one interface: an image file
// under a loop device, a block device that the user gives, or a logical volume of
// LVM. Each is a file here. It knows records, and no operations: who calls it has
// locked the volume and has written in its record what is to be done.
package backing

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/volume/internal/cause"
	"github.com/daybook-project/daybook/volume/internal/imagefile"
	"github.com/daybook-project/daybook/volume/internal/store"
	"github.com/daybook-project/daybook/volume/records"
)

// Backing is the blocks of one volume.
type Backing interface {
	// Node is the file or block device that has the file system while the volume
	// is detached.
	Node() string
	// InPool says whether the blocks are the pool's, and count in its quota.
	InPool() bool
	// Create makes the blocks, SizeBytes of the record. A block device holds no
	// file system then. An interrupted one is undone by Delete.
	// A tool that it starts keeps held open, a lock, until it has ended.
	Create(ctx context.Context, held *os.File) error
	// Delete removes what Create made, and what Snapshot and Clone of others
	// made for it; what is in the pool's directory goes with that. What is gone
	// already, or another's by now, is no error.
	Delete(ctx context.Context) error
	// CheckDelete refuses what Delete of the volume and of its snapshots would, before
	// anything is changed. The error wraps ErrBusy if somebody uses it or it is
	// another's.
	CheckDelete(ctx context.Context, snapshots []records.Snapshot) error

	// Check says whether the blocks are there, as many as recorded, and still the
	// volume's. The error wraps ErrCorrupt.
	Check() error
	// CheckUnused refuses blocks that somebody else has open. The error wraps
	// ErrBusy.
	CheckUnused() error
	// Open makes a block device of them that can be mounted.
	Open(ctx context.Context, options OpenOptions) (Device, error)
	// Opened are the block devices of an attachment: one, if all is well.
	Opened() ([]Device, error)
	// Close lets go of a device that was opened; unmounted: it was mounted until
	// just now, and must then be nobody's. The error wraps ErrBusy if it is used.
	Close(ctx context.Context, device Device, unmounted bool) error

	// CheckResize refuses a size that the blocks cannot have, before anything is
	// changed.
	CheckResize(ctx context.Context, bytes uint64) error
	// SetLength gives the volume so many bytes, or more where blocks come in
	// larger units; doing it again changes nothing. A device is as long as it is.
	SetLength(ctx context.Context, bytes uint64) error
	// HasLength says whether there are so many bytes.
	HasLength(bytes uint64) (bool, error)
	// Fill writes the blocks from that byte on once, if no write of the volume is
	// to allocate any.
	Fill(ctx context.Context, from uint64, progress imagefile.Progress) error
	// Lengthened gives an opened device its new length.
	Lengthened(device string) error
	// Grown is called after the kernel has made a mounted file system longer, from
	// that byte on.
	Grown(from uint64) error

	// CheckCopy refuses where Snapshot and Clone cannot be. The error wraps
	// ErrUnsupported.
	CheckCopy() error
	// Snapshot copies what the volume holds. The copy is whole: freeze has the
	// file system of an attached volume frozen while it calls do, or is nil.
	Snapshot(ctx context.Context, to Copy, freeze Freeze) (method records.Method, frozenSeconds float64, err error)
	// Clone copies what the volume, or a snapshot of it, holds into the blocks of
	// another volume, which do not exist yet.
	Clone(ctx context.Context, snapshot *records.Snapshot, to Copy, freeze Freeze) error
	// SnapshotNode is the file or block device of a snapshot of the volume.
	SnapshotNode(snapshot records.Snapshot) string
	// DeleteSnapshot is Delete of a snapshot.
	DeleteSnapshot(ctx context.Context, snapshot records.Snapshot) error
	// CheckDeleteSnapshot is CheckDelete of a snapshot.
	CheckDeleteSnapshot(ctx context.Context, snapshot records.Snapshot) error

	// AllocatedBytes are those taken of the pool, volume group or thin pool. It may
	// run a program.
	AllocatedBytes() (uint64, error)
}

// OpenOptions are the choices of [Backing.Open].
type OpenOptions struct {
	ReadOnly bool
	// AllowCache allows reading and writing through a page cache of its own, where
	// direct I/O is not to be had.
	AllowCache bool
}

// Device is a block device that a volume's file system lies on.
type Device struct {
	Dev  blockdev.Dev
	Node string
	// Loop is what Daybook made over an image; nil if the device is the volume's
	// own.
	Loop *blockdev.Loop
}

// Copy is what a snapshot or a clone is made in.
type Copy struct {
	// Directory is the work in which it is made; an image is in it.
	Directory string
	// Held is the work's lock, which a tool keeps open until it has ended.
	Held *os.File
	// Snapshot or Volume is the record of what is made.
	Snapshot *records.Snapshot
	Volume   *records.Volume
	// LongestFreeze is how long writers of an attached volume may wait.
	LongestFreeze time.Duration
	// Mountpoint is where the volume is attached; "" if it is not.
	Mountpoint string
	Progress   imagefile.Progress
}

// Freeze has the file system frozen while do runs, and says how long its writers
// waited at most.
type Freeze func(ctx context.Context, do func(context.Context) error) (seconds float64, err error)

// Of gives the blocks of a volume, whose directory in a pool, or in the work in
// which it is made, is given.
func Of(directory string, record records.Volume, log *slog.Logger) Backing {
	switch {
	case record.LVM != nil:
		return logical{device: device{record: record}}
	case record.Device != "":
		return device{record: record}
	}
	return image{directory: directory, record: record, log: log}
}

// Clear removes what the volume or snapshot of which a directory holds the record
// has outside of that directory. A record of a newer Daybook is left alone, by an
// error that wraps ErrUnsupported: nobody knows what belongs to it.
func Clear(ctx context.Context, directory string, log *slog.Logger) error {
	if store.CheckDirectories(parent(directory), directory) != nil {
		return nil // nobody knows what is in it
	}
	snapshot, err := store.ReadSnapshotIn(directory)
	if err == nil {
		return logical{}.DeleteSnapshot(ctx, snapshot)
	}
	if errors.Is(err, cause.ErrUnsupported) {
		return err
	}
	record, err := store.ReadVolumeIn(directory)
	if errors.Is(err, cause.ErrUnsupported) {
		return err
	}
	if err != nil {
		return nil // an image's work, which has none yet, or nobody knows
	}
	blocks := Of(directory, record, log)
	var errs []error
	for _, snapshot := range store.SnapshotsIn(directory) {
		errs = append(errs, blocks.DeleteSnapshot(ctx, snapshot))
	}
	return errors.Join(append(errs, blocks.Delete(ctx))...)
}

// leavePatience is how long AwaitFree waits for others: a container that is just
// being started has copies of all the host's mounts for a moment.
const leavePatience = 3 * time.Second

// AwaitFree tries again for a while as long as the error is that somebody uses
// what is tried on.
func AwaitFree(ctx context.Context, try func() error) error {
	deadline := time.Now().Add(leavePatience)
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		err := try()
		busy := errors.Is(err, cause.ErrBusy) || errors.Is(err, blockdev.ErrBusy)
		if !busy || time.Now().After(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}

// IsGone says that a device's node leads nowhere.
func IsGone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENXIO) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENOMEDIUM)
}

// Facts are what a volume has to know of a block device.
type Facts struct {
	Dev         blockdev.Dev
	Bytes       uint64
	SectorBytes uint32
}

// LookAt asks for the facts of a block device.
func LookAt(node string) (facts Facts, err error) {
	file, err := os.OpenFile(node, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return facts, err
	}
	defer func() { _ = file.Close() }()
	var st unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &st); err != nil {
		return facts, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFBLK {
		return facts, fmt.Errorf("%w device: %s is no block device", cause.ErrInvalid, node)
	}
	facts.Dev = blockdev.DevOf(st.Rdev)
	size, err := file.Seek(0, 2)
	if err != nil {
		return facts, err
	}
	facts.Bytes = uint64(size)
	sector, err := unix.IoctlGetInt(int(file.Fd()), unix.BLKSSZGET)
	if err != nil {
		return facts, fmt.Errorf("%s: %w", node, err)
	}
	facts.SectorBytes = uint32(sector)
	return facts, nil
}

func syncFileSystem(directory string) error {
	fd, err := unix.Open(directory, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(fd), unix.Close(fd))
}
