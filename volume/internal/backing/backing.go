// Package backing provides the blocks of volumes behind one interface: an image file
// under a loop device, a block device of the user, or a logical volume of
// LVM. Each has a file here. The package knows records and no operations: the caller has
// locked the volume and recorded the intent.
package backing

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
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
	// Node is the path of the file or block device with the file system while the
	// volume is detached.
	Node() string
	// Create makes the blocks, SizeBytes of the record, without a file system. Delete
	// undoes an interrupted Create. Each tool keeps held, a lock, open until it has
	// ended.
	Create(ctx context.Context, held *os.File) error
	// Delete removes the blocks that Create, or Snapshot and Clone of another volume,
	// made, except files in the pool's directory. Blocks that are gone already or now
	// belong to others are no error.
	Delete(ctx context.Context) error
	// ReadsZeros says whether blocks that Create has made read as zeros until they are
	// written.
	ReadsZeros(ctx context.Context) (bool, error)
	// CheckDelete refuses what Delete of the volume and of its snapshots would refuse,
	// before anything changes. The error wraps ErrBusy if the blocks are in use or
	// belong to others.
	CheckDelete(ctx context.Context, snapshots []records.Snapshot) error

	// Activate makes the node of a detached volume's blocks appear, where they need
	// it. Check and Open do so, too.
	Activate(ctx context.Context) error
	// Check checks that the blocks exist, are as many as recorded, and still belong to
	// the volume. The error wraps ErrCorrupt.
	Check(ctx context.Context) error
	// CheckUnused refuses blocks that others use. The error wraps ErrBusy.
	CheckUnused() error
	// Open makes a block device of the blocks that can be mounted.
	Open(ctx context.Context, options OpenOptions) (Device, error)
	// Opened returns the block devices of an attachment: one, unless something is
	// wrong. read lists the loop devices.
	Opened(read ReadLoops) ([]Device, error)
	// Close closes an opened device. unmounted says that it was just unmounted: then
	// Close waits until no one uses it. The error wraps ErrBusy if it is in use.
	Close(ctx context.Context, device Device, unmounted bool) error

	// CheckResize refuses a size that the blocks cannot have, before anything changes.
	CheckResize(ctx context.Context, bytes uint64) error
	// SetLength gives the volume that length, or more if the allocation unit is
	// larger. Doing it again changes nothing. It does not change a device.
	SetLength(ctx context.Context, bytes uint64) error
	// Length is the present length of the blocks in bytes.
	Length() (uint64, error)
	// Fill writes the blocks of a full image once, from that byte on, so that later
	// writes allocate none.
	Fill(ctx context.Context, from uint64, progress imagefile.Progress) error
	// Lengthened makes an opened device notice its new length.
	Lengthened(device string) error
	// Grown is called after the kernel has made a mounted file system longer, from
	// that byte on.
	Grown(from uint64) error

	// CheckCopy refuses if Snapshot and Clone are not possible. The error wraps
	// ErrUnsupported.
	CheckCopy() error
	// Snapshot copies the content of the volume. freeze keeps the file system of an
	// attached volume frozen while it calls do, so that the copy is consistent; nil if
	// the volume is detached.
	Snapshot(ctx context.Context, to Copy, freeze Freeze) (method records.Method, frozenSeconds float64, err error)
	// Clone copies the content of the volume, or of a snapshot of it, to new blocks of
	// another volume.
	Clone(ctx context.Context, snapshot *records.Snapshot, to Copy, freeze Freeze) error
	// SnapshotNode is the file or block device of a snapshot of the volume.
	SnapshotNode(snapshot records.Snapshot) string
	// ActivateSnapshot is Activate of a snapshot.
	ActivateSnapshot(ctx context.Context, snapshot records.Snapshot) error
	// DeleteSnapshot is Delete of a snapshot.
	DeleteSnapshot(ctx context.Context, snapshot records.Snapshot) error
	// CheckDeleteSnapshot is CheckDelete of a snapshot.
	CheckDeleteSnapshot(ctx context.Context, snapshot records.Snapshot) error

	// AllocatedBytes is the space that the blocks take in the pool, volume group or
	// thin pool. It may run a program.
	AllocatedBytes(ctx context.Context) (uint64, error)
}

// OpenOptions are the choices of [Backing.Open].
type OpenOptions struct {
	ReadOnly bool
	// AllowCache allows the page cache where direct I/O is not available.
	AllowCache bool
}

// Device is a block device with a volume's file system.
type Device struct {
	Dev  blockdev.Dev
	Node string
	// Loop is the loop device over an image; nil if the device is the volume's own.
	Loop *blockdev.Loop
}

// Loop is a loop device over a file that has the name of an image.
type Loop struct {
	blockdev.Loop
	// Status is the device's own; Err wraps blockdev.ErrGone if it has no file by
	// now.
	Status blockdev.LoopStatus
	Err    error
}

// ReadLoops lists loop devices, as Loops does.
type ReadLoops func() ([]Loop, error)

// Loops asks the kernel.
func Loops() ([]Loop, error) {
	all, err := blockdev.Loops()
	if err != nil {
		return nil, err
	}
	var loops []Loop
	for _, loop := range all {
		if path, _ := loopFile(loop); filepath.Base(path) == store.ImageFile {
			status, err := loop.Status()
			loops = append(loops, Loop{loop, status, err})
		}
	}
	return loops, nil
}

// loopFile is the path of a loop device's file. To that of a removed one the kernel adds
// a word.
func loopFile(loop blockdev.Loop) (path string, removed bool) {
	return strings.CutSuffix(loop.File, " (deleted)")
}

// Copy describes the snapshot or clone that is made.
type Copy struct {
	// Directory is the work in which it is made; an image is in it.
	Directory string
	// Held is the work's lock, which each tool keeps open until it has ended.
	Held *os.File
	// Snapshot or Volume is the record of the copy.
	Snapshot *records.Snapshot
	Volume   *records.Volume
	// LongestFreeze is how long writers of an attached volume may wait.
	LongestFreeze time.Duration
	// Mountpoint is where the volume is attached; "" if it is not.
	Mountpoint string
	Progress   imagefile.Progress
}

// Freeze keeps the file system frozen while do runs, and returns how long writers waited
// at most.
type Freeze func(ctx context.Context, do func(context.Context) error) (seconds float64, err error)

// Of returns the blocks of a volume. directory is that of the volume in its pool, or the
// work in which it is made.
func Of(directory string, record records.Volume, log *slog.Logger) Backing {
	switch {
	case record.LVM != nil:
		return logical{device: device{record: record}}
	case record.Device != "":
		return device{record: record}
	}
	return image{directory: directory, record: record, log: log}
}

// ErrLeft is wrapped by errors of Delete, DeleteSnapshot and Clear after which a logical volume may
// still exist, or a device may still hold what Daybook made on it.
var ErrLeft = errors.New("blocks outside of the pool are left")

func left(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrLeft, err)
}

// Clear removes the blocks outside of the pool that belong to the record of a volume or
// snapshot in a directory. It wipes a journal device only in the work in which the volume is
// made, whose name is the volume's ID: a deleted volume leaves its journal. The error wraps
// ErrLeft if some of the blocks remain. For a record of a newer Daybook it wraps ErrUnsupported,
// because its parts are unknown.
func Clear(ctx context.Context, directory string, log *slog.Logger) error {
	if store.CheckDirectories(parent(directory), directory) != nil {
		return nil // its content is not trusted
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
		return nil // the work of an image, which has no record yet, or unknown
	}
	blocks := Of(directory, record, log)
	snapshots, _, err := store.SnapshotsIn(directory)
	var errs []error
	if filepath.Base(directory) == record.ID {
		errs = append(errs, wipeJournal(ctx, record))
	}
	if !record.InPool() {
		errs = append(errs, left(err)) // their logical volumes are unknown
	}
	for _, snapshot := range snapshots {
		errs = append(errs, blocks.DeleteSnapshot(ctx, snapshot))
	}
	return errors.Join(append(errs, blocks.Delete(ctx))...)
}

// leavePatience is how long AwaitFree waits: a container that is being started has copies
// of all the host's mounts for a moment.
const leavePatience = 3 * time.Second

// AwaitFree retries for a while as long as the error wraps ErrBusy. If ctx ends meanwhile,
// the error also wraps that of ctx.
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
			return fmt.Errorf("%w: %w", err, ctx.Err())
		case <-time.After(pause):
		}
	}
}

// IsGone says that the node of a device is missing, or has no device.
func IsGone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENXIO) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENOMEDIUM)
}

// Facts are the properties of a block device that a volume needs.
type Facts struct {
	Dev         blockdev.Dev
	Bytes       uint64
	SectorBytes uint32
}

// LookAt reads the facts of a block device.
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
