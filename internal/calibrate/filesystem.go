package calibrate

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/ext4"
)

// ErrUnsuitable is wrapped by errors that say why a directory cannot be
// calibrated.
var ErrUnsuitable = errors.New("cannot calibrate")

// target is the file system that a directory is on.
type target struct {
	FileSystem
	dev blockdev.Dev
	// dataJournaled: file data passes through the journal (data=journal).
	dataJournaled bool
}

func unsuitable(dir, format string, arguments ...any) error {
	return fmt.Errorf("%w %s: %w", ErrUnsuitable, dir, fmt.Errorf(format, arguments...))
}

// inspect finds the file system of a directory, and refuses those that cannot
// be measured.
func inspect(dir string) (target, error) {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return target{}, unsuitable(dir, "%w; want a directory on the ext4 to measure", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return target{}, unsuitable(dir, "it is no directory")
	}
	dev := blockdev.DevOf(st.Dev)
	mount, err := mountOf(dir, dev)
	if err != nil {
		return target{}, err
	}
	if mount.Type != "ext4" && mount.Type != "ext3" {
		return target{}, unsuitable(dir, "it is on %s (mounted on %s), and only ext4 journals through jbd2; "+
			"choose a directory on ext4, such as the data directory of a container", mount.Type, mount.Point)
	}
	journaled, err := hasJournal(dev)
	if err != nil {
		return target{}, unsuitable(dir, "%w", err)
	}
	if !journaled {
		return target{}, unsuitable(dir, "the %s on %s has no journal, so there is nothing to charge; "+
			"one is added, while it is not mounted, with: tune2fs -O has_journal %s", mount.Type, mount.Source, mount.Source)
	}
	var statfs unix.Statfs_t
	if err := unix.Statfs(dir, &statfs); err != nil {
		return target{}, unsuitable(dir, "%w", err)
	}
	t := target{dev: dev, FileSystem: newFileSystem(dev)}
	t.MountPoint = mount.Point
	t.BlockBytes = uint32(statfs.Bsize)
	for option := range strings.SplitSeq(mount.Options, ",") {
		t.dataJournaled = t.dataJournaled || option == "data=journal"
	}
	return t, nil
}

// mountOf finds a mount of the file system; the one that the directory is in,
// if this process can see it.
func mountOf(dir string, dev blockdev.Dev) (blockdev.Mount, error) {
	mounts, err := blockdev.MountsOf(dev)
	if err != nil {
		return blockdev.Mount{}, err
	}
	if len(mounts) == 0 {
		return blockdev.Mount{}, unsuitable(dir, "no mount of its file system (device %s) is to be seen", dev)
	}
	if absolute, err := filepath.Abs(dir); err == nil {
		if dir, err = filepath.EvalSymlinks(absolute); err == nil {
			for _, mount := range mounts {
				if dir == mount.Point || strings.HasPrefix(dir, mount.Point+"/") {
					return mount, nil
				}
			}
		}
	}
	return mounts[0], nil
}

// hasJournal asks the mounted file system; kernels before 5.6 do not tell, but
// then the superblock does.
func hasJournal(dev blockdev.Dev) (bool, error) {
	name, err := blockdev.DeviceName(dev)
	if err != nil {
		return false, err
	}
	text, err := os.ReadFile("/sys/fs/ext4/" + name + "/journal_task")
	if err == nil {
		return strings.TrimSpace(string(text)) != "<none>", nil
	}
	superblock, err := readSuperblock(dev)
	return superblock.HasJournal, err
}

func readSuperblock(dev blockdev.Dev) (ext4.Superblock, error) {
	name, err := blockdev.DeviceName(dev)
	if err != nil {
		return ext4.Superblock{}, err
	}
	return ext4.ReadSuperblock(blockdev.NodeOf(name))
}

// Room that a run needs besides an inode and two blocks for each call (its
// data, and its part of the directory).
const (
	spareInodes = 64
	spareBlocks = 1024
)

// checkRoom refuses a file system that is read-only or too full for the calls.
func checkRoom(dir string, calls int) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return unsuitable(dir, "%w", err)
	}
	if st.Flags&unix.ST_RDONLY != 0 {
		return unsuitable(dir, "it is mounted read-only")
	}
	if want := uint64(calls) + spareInodes; st.Ffree < want {
		return unsuitable(dir, "it has %d free inodes, and %d calls need %d; give fewer --calls", st.Ffree, calls, want)
	}
	if want := 2*uint64(calls) + spareBlocks; st.Bavail < want {
		return unsuitable(dir, "it has %d free blocks of %d bytes, and %d calls need %d; give fewer --calls",
			st.Bavail, st.Bsize, calls, want)
	}
	return nil
}

// DefaultPath is where the calibration of the file system on a device is kept.
func DefaultPath(dev blockdev.Dev) string { return newFileSystem(dev).DefaultPath() }

// newFileSystem knows the UUID, if the device can be read.
func newFileSystem(dev blockdev.Dev) FileSystem {
	fs := FileSystem{Dev: dev.String()}
	if superblock, err := readSuperblock(dev); err == nil && superblock.UUID != (ext4.UUID{}) {
		fs.UUID = superblock.UUID.String()
	}
	return fs
}

// DefaultPath is where the calibration of this file system is kept: by UUID,
// which survives a reboot, else by number.
func (f FileSystem) DefaultPath() string {
	name := f.UUID
	if name == "" {
		name = f.Dev
	}
	return filepath.Join(DefaultDir, "calibration-"+name+".json")
}

// DefaultDir is where calibrations are kept.
const DefaultDir = "/var/lib/daybook"
