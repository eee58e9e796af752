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

// ErrUnsuitable is wrapped by errors that explain why a directory cannot be
// calibrated.
var ErrUnsuitable = errors.New("cannot calibrate")

// target is the file system that a directory is on.
type target struct {
	FileSystem
	dev blockdev.Dev
	// dataJournaled means that file data passes through the journal
	// (data=journal).
	dataJournaled bool
}

func unsuitable(dir, format string, arguments ...any) error {
	return fmt.Errorf("%w %s: %w", ErrUnsuitable, dir, fmt.Errorf(format, arguments...))
}

// inspect finds the file system of a directory, and rejects those that cannot
// be measured.
func inspect(dir string) (target, error) {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return target{}, unsuitable(dir, "%w; want a directory on the ext4 to measure", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return target{}, unsuitable(dir, "it is not a directory")
	}
	dev := blockdev.DevOf(st.Dev)
	mount, err := mountOf(dir, dev)
	if err != nil {
		return target{}, err
	}
	if mount.Type != "ext4" && mount.Type != "ext3" {
		return target{}, unsuitable(dir, "it is on %s (mounted on %s), and only ext4 journals through jbd2; "+
			"choose a directory on ext4, such as the parent of a container's data directory", mount.Type, mount.Point)
	}
	journaled, err := hasJournal(dev)
	if err != nil {
		return target{}, unsuitable(dir, "%w", err)
	}
	if !journaled {
		return target{}, unsuitable(dir, "the %s on %s has no journal, so there is nothing to charge; "+
			"add one, while it is not mounted, with: tune2fs -O has_journal %s", mount.Type, mount.Source, mount.Source)
	}
	var statfs unix.Statfs_t
	if err := unix.Statfs(dir, &statfs); err != nil {
		return target{}, unsuitable(dir, "%w", err)
	}
	name, err := blockdev.DeviceName(dev)
	if err != nil {
		return target{}, unsuitable(dir, "%w", err)
	}
	options, err := ext4.MountedOptions(name)
	if err != nil {
		return target{}, unsuitable(dir, "%w", err)
	}
	t := target{dev: dev, FileSystem: newFileSystem(dev), dataJournaled: ext4.DataMode(options) == "journal"}
	t.MountPoint = mount.Point
	t.BlockBytes = uint32(statfs.Bsize)
	return t, nil
}

// mountOf finds a mount of the file system; if possible the one that contains
// the directory.
func mountOf(dir string, dev blockdev.Dev) (blockdev.Mount, error) {
	mounts, err := blockdev.MountsOf(dev)
	if err != nil {
		return blockdev.Mount{}, err
	}
	if len(mounts) == 0 {
		return blockdev.Mount{}, unsuitable(dir, "this process sees no mount of its file system (device %s)", dev)
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

// hasJournal queries the mounted file system, or the superblock on kernels
// before 5.6.
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

// Space that a run needs in addition to an inode and two blocks for each call
// (its data, and its part of the directory).
const (
	spareInodes = 64
	spareBlocks = 1024
)

// checkRoom rejects a file system that is read-only or too full for the calls.
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

// DefaultPath is the path of the calibration of the file system on a device.
func DefaultPath(dev blockdev.Dev) string { return newFileSystem(dev).DefaultPath() }

// newFileSystem includes the UUID, if the device can be read.
func newFileSystem(dev blockdev.Dev) FileSystem {
	fs := FileSystem{Dev: dev.String()}
	if superblock, err := readSuperblock(dev); err == nil && superblock.UUID != (ext4.UUID{}) {
		fs.UUID = superblock.UUID.String()
	}
	return fs
}

// DefaultPath is the path of the calibration of this file system: by UUID,
// which survives a reboot, else by number.
func (f FileSystem) DefaultPath() string {
	name := f.UUID
	if name == "" {
		name = f.Dev
	}
	return filepath.Join(DefaultDir, "calibration-"+name+".json")
}

// DefaultDir is the directory of calibrations.
const DefaultDir = "/var/lib/daybook"
