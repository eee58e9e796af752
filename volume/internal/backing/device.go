package backing

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/internal/kernel"
	"github.com/daybook-project/daybook/internal/program"
	"github.com/daybook-project/daybook/internal/safetext"
	"github.com/daybook-project/daybook/volume/internal/cause"
	"github.com/daybook-project/daybook/volume/internal/filesystem"
	"github.com/daybook-project/daybook/volume/internal/imagefile"
	"github.com/daybook-project/daybook/volume/internal/store"
	"github.com/daybook-project/daybook/volume/records"
)

// device is a block device of the user: a partition, or a logical volume that Daybook does
// not manage.
type device struct{ record records.Volume }

func (d device) Node() string { return d.record.Device }

// Create does nothing: the device exists.
func (d device) Create(context.Context, *os.File) error { return nil }

// Delete wipes the file system's signature, so that the device is empty again. A device
// that is gone, or that has another file system now, is not changed.
func (d device) Delete(ctx context.Context) error {
	if d.Check(ctx) != nil {
		return nil
	}
	return wipeUnused(ctx, d.Node())
}

// ErrNotWiped is wrapped by an error after which a device of the user holds what Daybook made on
// it. It wraps ErrLeft.
var ErrNotWiped = fmt.Errorf("%w", ErrLeft)

// wipeUnused wipes a device as soon as nobody uses it. The error wraps ErrNotWiped.
func wipeUnused(ctx context.Context, node string) error {
	err := AwaitUnused(ctx, node)
	if err == nil {
		err = Wipe(ctx, node)
	}
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrNotWiped, err)
	}
	return err
}

// Wipe removes all signatures from a device.
func Wipe(ctx context.Context, node string) error {
	_, err := program.Run(ctx, program.Command{Path: "wipefs", Args: []string{"--all", "--quiet", node}, IfMissing: "install util-linux"})
	return err
}

// wipeJournal empties the journal device of a volume whose making was interrupted. A device that
// is gone, or has something else than the journal that was made, is not changed.
func wipeJournal(ctx context.Context, record records.Volume) error {
	if record.JournalDevice == "" {
		return nil
	}
	made, err := ext4.ReadSuperblock(record.JournalDevice)
	if err != nil || !made.JournalDevice || made.UUID.String() != record.JournalDeviceID() {
		return nil
	}
	return wipeUnused(ctx, record.JournalDevice)
}

// CheckDelete refuses a device in use. If the device is gone or has another file system,
// there is nothing to refuse.
func (d device) CheckDelete(ctx context.Context, _ []records.Snapshot) error {
	if d.Check(ctx) != nil {
		return nil
	}
	return d.CheckUnused()
}

func (d device) Activate(context.Context) error { return nil }

// Check also compares the UUID of the file system, because a node may be another device
// after a boot.
func (d device) Check(context.Context) error { return checkNode(d.Node(), d.record) }

func checkNode(node string, record records.Volume) error {
	facts, err := LookAt(node)
	switch {
	case IsGone(err):
		return fmt.Errorf("its device %s is missing: it is %w", node, cause.ErrCorrupt)
	case err != nil:
		return err
	case facts.Bytes < record.SizeBytes:
		return fmt.Errorf("its device %s is %w: %d bytes long, want %d", node, cause.ErrCorrupt, facts.Bytes, record.SizeBytes)
	}
	id, err := filesystem.UUID(record, node)
	if err != nil {
		return fmt.Errorf("its device %s is %w: %w", node, cause.ErrCorrupt, err)
	}
	if id.String() != record.ID {
		return fmt.Errorf("its device is %w: %s has the file system %s, the volume's is %s: another device at that path, or formatted since", cause.ErrCorrupt, node, id, record.ID)
	}
	return nil
}

func (d device) CheckUnused() error { return CheckUnused(d.Node()) }

// CheckUnused asks the kernel, which knows all users of a device. The error
// wraps ErrBusy.
func CheckUnused(node string) error {
	err := blockdev.CheckUnused(node)
	if errors.Is(err, blockdev.ErrBusy) {
		return fmt.Errorf("%s is %w: a file system, swap or the device mapper has it (lsblk %s)", node, cause.ErrBusy, safetext.Word(node))
	}
	return err
}

// Claim opens a device for reading and marks it as in use, so that CheckUnused refuses it
// until the file is closed. The error wraps ErrBusy if it is in use.
func Claim(node string) (*os.File, error) {
	file, err := os.OpenFile(node, os.O_RDONLY|unix.O_EXCL, 0)
	if errors.Is(err, unix.EBUSY) {
		return nil, fmt.Errorf("%s is %w: a file system or another send has it", node, cause.ErrBusy)
	}
	return file, err
}

// AwaitUnused waits a while until a device is no longer in use.
func AwaitUnused(ctx context.Context, node string) error {
	return AwaitFree(ctx, func() error { return CheckUnused(node) })
}

func (d device) Open(context.Context, OpenOptions) (Device, error) { return opened(d.Node()) }

func opened(node string) (Device, error) {
	facts, err := LookAt(node)
	return Device{Dev: facts.Dev, Node: node}, err
}

// Opened uses the recorded device number, because the node may be another device now. A
// number of an earlier boot is not valid, nor is one that the kernel has given to a device with
// another file system since.
func (d device) Opened(ReadLoops) ([]Device, error) { return attached(d.Node(), d.record) }

func attached(node string, record records.Volume) ([]Device, error) {
	a := record.Attachment
	if a == nil || a.DeviceNumber == "" {
		return nil, nil
	}
	boot, err := kernel.BootID()
	if err != nil || boot != a.BootID {
		return nil, err
	}
	dev, err := blockdev.ParseDev(a.DeviceNumber)
	if err != nil || isAnothers(dev, record) {
		return nil, err
	}
	return []Device{{Dev: dev, Node: node}}, nil
}

// isAnothers says whether a device has another file system than the volume's. If that cannot be
// read, such as that of a broken disk, it is the volume's.
func isAnothers(dev blockdev.Dev, record records.Volume) bool {
	name, err := blockdev.DeviceName(dev)
	if err != nil {
		return false
	}
	id, err := filesystem.UUID(record, blockdev.NodeOf(name))
	return err == nil && id.String() != record.ID
}

func (d device) Close(ctx context.Context, open Device, unmounted bool) error {
	if facts, err := LookAt(open.Node); !unmounted || err != nil || facts.Dev != open.Dev {
		return nil // never mounted, or the node is gone or another device
	}
	return AwaitUnused(ctx, open.Node)
}

func (d device) CheckResize(_ context.Context, bytes uint64) error {
	length, err := d.Length()
	if err == nil && length < bytes {
		err = fmt.Errorf("%w size: its device %s is shorter than %d bytes; make that longer first (lvextend)", cause.ErrInvalid, d.Node(), bytes)
	}
	return err
}

func (d device) SetLength(context.Context, uint64) error { return nil }

func (d device) Length() (uint64, error) {
	facts, err := LookAt(d.Node())
	return facts.Bytes, err
}

func (d device) Fill(context.Context, uint64, imagefile.Progress) error { return nil }
func (d device) Lengthened(string) error                                { return nil }
func (d device) Grown(uint64) error                                     { return nil }

// CheckCopy refuses copies: the user's volume manager makes them.
func (d device) CheckCopy() error {
	return fmt.Errorf("%w: it lies on the device %s, whose copies are the volume manager's (lvcreate --snapshot)", cause.ErrUnsupported, d.Node())
}

func (d device) Snapshot(context.Context, Copy, Freeze) (records.Method, float64, error) {
	return "", 0, d.CheckCopy()
}

func (d device) Clone(context.Context, *records.Snapshot, Copy, Freeze) error { return d.CheckCopy() }

func (d device) SnapshotNode(records.Snapshot) string { return "" }

func (d device) ActivateSnapshot(context.Context, records.Snapshot) error { return nil }

func (d device) ReadsZeros(context.Context) (bool, error) { return false, nil }

func (d device) DeleteSnapshot(context.Context, records.Snapshot) error { return nil }

func (d device) CheckDeleteSnapshot(context.Context, records.Snapshot) error { return nil }

func (d device) AllocatedBytes(context.Context) (uint64, error) {
	_, err := LookAt(d.Node())
	return 0, err
}

// LockNode locks a device of which a volume is made. util-linux takes the same lock, and
// so does udev for a moment while it probes a new device.
func LockNode(ctx context.Context, node string) (*store.Lock, error) {
	file, err := os.OpenFile(node, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	err = AwaitFree(ctx, func() error { return store.TryFlock(file) })
	if errors.Is(err, cause.ErrBusy) {
		err = fmt.Errorf("%s is %w: another process has locked it", node, cause.ErrBusy)
	}
	if err != nil {
		return nil, errors.Join(err, ctx.Err(), file.Close())
	}
	return &store.Lock{File: file}, nil
}

// LockEmpty locks a device on which nothing may be, and which nobody may use. The errors wrap
// ErrBusy.
func LockEmpty(ctx context.Context, node string) (*store.Lock, error) {
	if err := CheckUnused(node); err != nil {
		return nil, err
	}
	l, err := LockNode(ctx, node)
	if err != nil {
		return nil, err
	}
	if err := CheckEmpty(ctx, node); err != nil {
		l.Release()
		return nil, err
	}
	return l, nil
}

// CheckEmpty refuses a device on which wipefs finds a signature.
func CheckEmpty(ctx context.Context, node string) error {
	found, err := ext4.Signatures(ctx, node)
	if err != nil {
		return err
	}
	if len(found) > 0 {
		return fmt.Errorf("%s is %w: it holds %s; to erase that: wipefs --all %s", node, cause.ErrBusy, strings.Join(found, ", "), safetext.Word(node))
	}
	return nil
}
