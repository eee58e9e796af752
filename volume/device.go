package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/internal/versioned"
	"github.com/daybook-project/daybook/volume/internal/cause"
	"github.com/daybook-project/daybook/volume/internal/chunk"
	"github.com/daybook-project/daybook/volume/internal/imagefile"
	"github.com/daybook-project/daybook/volume/internal/store"
	"github.com/daybook-project/daybook/volume/records"
)

// A volume with [OnDevice] has no image: its file system is on a block device
// of the host, a logical volume or a partition. The pool has its record.

// backing is the file that has a volume's file system: its image, or its device.
func (p *Pool) backing(record Record) string {
	if record.Device != "" {
		return record.Device
	}
	return p.files.Image(record.Name)
}

// lower is a block device that an attached volume's file system lies on.
type lower struct {
	dev  blockdev.Dev
	node string
	// loop is what Daybook made over an image; nil if the device is the
	// volume's own.
	loop *blockdev.Loop
}

// lowers are the block devices of an attachment: one, if all is well.
func (p *Pool) lowers(record Record) ([]lower, error) {
	if record.Device != "" {
		return ownDevice(record)
	}
	loops, err := p.ownLoops(record)
	if err != nil {
		return nil, err
	}
	var all []lower
	for _, loop := range loops {
		all = append(all, lower{dev: loop.Dev, node: loop.Node(), loop: &loop})
	}
	return all, nil
}

// ownDevice goes by the number that was attached: its node may be another's by
// now, and the numbers of another start of the host were others.
func ownDevice(record Record) ([]lower, error) {
	a := record.Attachment
	if a == nil || a.DeviceNumber == "" {
		return nil, nil
	}
	boot, err := store.BootID()
	if err != nil || boot != a.BootID {
		return nil, err
	}
	dev, err := blockdev.ParseDev(a.DeviceNumber)
	return []lower{{dev: dev, node: record.Device}}, err
}

// release lets go of what was attached: of a loop device for ever. A device that
// was just unmounted must then be nobody's.
func (d lower) release(ctx context.Context, unmounted bool) error {
	if d.loop != nil {
		return awaitFree(ctx, func() error { return d.loop.Detach(ctx) })
	}
	if facts, err := lookAtDevice(d.node); !unmounted || err != nil || facts.dev != d.dev {
		return nil // never mounted, or its node is gone or another's
	}
	return awaitUnused(ctx, d.node)
}

// awaitUnused waits a while for whoever is just leaving a device.
func awaitUnused(ctx context.Context, node string) error {
	return awaitFree(ctx, func() error { return checkDeviceUnused(node) })
}

// checkDeviceUnused asks the kernel, which knows of all that claim a device. The
// error wraps ErrBusy.
func checkDeviceUnused(node string) error {
	err := blockdev.CheckUnused(node)
	if errors.Is(err, blockdev.ErrBusy) {
		return fmt.Errorf("%s is %w: a file system, swap or the device mapper has it (lsblk %s)", node, ErrBusy, node)
	}
	return err
}

// isGone says that a device's node leads nowhere.
func isGone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENXIO) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENOMEDIUM)
}

// deviceFacts are what a volume has to know of its device.
type deviceFacts struct {
	dev         blockdev.Dev
	bytes       uint64
	sectorBytes uint32
}

func lookAtDevice(node string) (facts deviceFacts, err error) {
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
		return facts, fmt.Errorf("%w device: %s is no block device", ErrInvalid, node)
	}
	facts.dev = blockdev.Dev{Major: unix.Major(st.Rdev), Minor: unix.Minor(st.Rdev)}
	size, err := file.Seek(0, 2)
	if err != nil {
		return facts, err
	}
	facts.bytes = uint64(size)
	sector, err := unix.IoctlGetInt(int(file.Fd()), unix.BLKSSZGET)
	if err != nil {
		return facts, fmt.Errorf("%s: %w", node, err)
	}
	facts.sectorBytes = uint32(sector)
	return facts, nil
}

// checkDevice says whether a volume's device is there, as long as it was, and
// still the volume's: nodes change their devices from one start to the next.
func checkDevice(record Record) error {
	facts, err := lookAtDevice(record.Device)
	switch {
	case isGone(err):
		return fmt.Errorf("its device %s is missing: it is %w", record.Device, ErrCorrupt)
	case err != nil:
		return err
	case facts.bytes < record.SizeBytes:
		return fmt.Errorf("its device %s is %w: %d bytes long, want %d", record.Device, ErrCorrupt, facts.bytes, record.SizeBytes)
	}
	id, err := ext4.ReadUUID(record.Device)
	if err != nil {
		return fmt.Errorf("its device %s is %w: %w", record.Device, ErrCorrupt, err)
	}
	if id.String() != record.ID {
		return fmt.Errorf("its device is %w: %s has the file system %s, the volume's is %s: another device at that path, or formatted since", ErrCorrupt, record.Device, id, record.ID)
	}
	return nil
}

// createOnDevice makes a volume of a device on which nothing is.
func (p *Pool) createOnDevice(ctx context.Context, name string, o CreateOptions) (record Record, err error) {
	node, err := filepath.Abs(o.Device)
	if err != nil {
		return Record{}, err
	}
	facts, err := lookAtDevice(node)
	if isGone(err) {
		return Record{}, fmt.Errorf("%w device %s: %w", ErrInvalid, o.Device, err)
	}
	if err != nil {
		return Record{}, fmt.Errorf("device %s: %w", o.Device, err)
	}
	size := facts.bytes / chunk.UnitBytes * chunk.UnitBytes
	if err := CheckSize(size); err != nil {
		return Record{}, fmt.Errorf("device %s: %w", node, err)
	}
	if facts.sectorBytes > o.BlockSizeBytes {
		return Record{}, fmt.Errorf("%w block size: %s has sectors of %d bytes, and blocks may not be smaller", ErrInvalid, node, facts.sectorBytes)
	}
	if err := checkDeviceUnused(node); err != nil {
		return Record{}, err
	}
	l, err := lockDevice(ctx, node)
	if err != nil {
		return Record{}, err
	}
	defer l.Release()
	if err := checkDeviceEmpty(ctx, node); err != nil {
		return Record{}, err
	}
	o.Device = node
	record = o.record(name, size, facts.sectorBytes)
	w, err := p.deviceWork(ctx, record)
	if err != nil {
		return Record{}, err
	}
	defer func() { err = errors.Join(err, w.discard()) }()
	// Unlike an image, the device does not go with the work: a tool that has yet
	// to die holds the lock.
	if err := makeFileSystem(ctx, node, record.ID, w.lock.File, o); err != nil {
		return Record{}, err
	}
	if err := imagefile.Sync(node); err != nil {
		return Record{}, err
	}
	p.reached("made")
	return record, p.finishVolume(ctx, &w, record, o.Progress)
}

// deviceWork is a work without an image: only the record, which says whose the
// device is.
func (p *Pool) deviceWork(ctx context.Context, record Record) (w work, err error) {
	all, err := p.files.Lock(ctx)
	if err != nil {
		return work{}, err
	}
	defer all.Release()
	if w, err = p.emptyWork(); err != nil {
		return work{}, err
	}
	if err := store.WriteVolume(w.path, record); err != nil {
		return work{}, errors.Join(err, w.discard())
	}
	p.reached("work")
	return w, nil
}

// lockDevice is for who makes a volume of a device. util-linux takes the same lock,
// and udev, for a moment, while it looks at a device that is new.
func lockDevice(ctx context.Context, node string) (*store.Lock, error) {
	file, err := os.OpenFile(node, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	err = awaitFree(ctx, func() error { return store.TryFlock(file) })
	if errors.Is(err, ErrBusy) {
		err = fmt.Errorf("%s is %w: another process has locked it", node, ErrBusy)
	}
	if err != nil {
		return nil, errors.Join(err, ctx.Err(), file.Close())
	}
	return &store.Lock{File: file}, nil
}

// checkDeviceEmpty refuses a device on which wipefs knows something.
func checkDeviceEmpty(ctx context.Context, node string) error {
	output, err := wipefs(ctx, "--no-act", "--noheadings", "--output", "TYPE", node)
	if err != nil {
		return err
	}
	if found := strings.Fields(output); len(found) > 0 {
		return fmt.Errorf("%s is %w: it holds %s; if that may go: wipefs --all %s", node, ErrBusy, strings.Join(found, ", "), node)
	}
	return nil
}

func wipefs(ctx context.Context, arguments ...string) (string, error) {
	output, err := exec.CommandContext(ctx, "wipefs", arguments...).CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		return "", fmt.Errorf("%w: install util-linux", err)
	}
	if err != nil {
		return "", fmt.Errorf("wipefs: %w: %s", err, strings.TrimSpace(string(output)))
	}
	return string(output), nil
}

// giveBack wipes the file system of a volume that is made, or deleted, in a
// directory, if it is on a device: so that the device is as free as it was. A
// device that is gone, or somebody else's by now, is left alone.
func giveBack(directory string) error {
	text, err := store.ReadFile(filepath.Join(directory, store.RecordFile))
	if err != nil || store.CheckDirectories(filepath.Dir(directory), directory) != nil {
		return nil // an image's work, which has none yet, or nobody can tell
	}
	record, err := records.DecodeVolume(text)
	if errors.Is(err, versioned.ErrNewer) {
		return cause.Unreadable("the record in "+directory, err)
	}
	if err != nil || record.Device == "" {
		return nil
	}
	if err := checkDevice(record); err != nil {
		return nil
	}
	ctx := context.Background() // the caller's may be why it is given back
	if err := awaitUnused(ctx, record.Device); err != nil {
		return err
	}
	_, err = wipefs(ctx, "--all", "--quiet", record.Device)
	return err
}

// checkImaged refuses what is made of an image.
func checkImaged(record Record) error {
	if record.Device == "" {
		return nil
	}
	return fmt.Errorf("%w: it lies on the device %s, whose copies are the volume manager's (lvcreate --snapshot)", ErrUnsupported, record.Device)
}
