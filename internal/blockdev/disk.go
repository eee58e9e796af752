package blockdev

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrGone says that a disk that was there before is there no longer.
var ErrGone = errors.New("the disk is gone")

// SectorBytes is the unit of /sys/block counters and sizes, whatever the
// device's own block size is.
const SectorBytes = 512

// Host is the running system's [Tree].
var Host = Tree{Sys: "/sys", Proc: "/proc"}

// Tree says where sysfs and procfs are found; tests point it at small fakes.
type Tree struct{ Sys, Proc string }

// Disk is a whole disk (not a partition) known to the kernel. It is a value:
// comparable, and not held open.
type Disk struct {
	// Name is the directory's name in /sys/block, such as "loop0".
	Name string
	// Dev is the disk's number.
	Dev  Dev
	tree Tree
}

// Lookup finds the whole disk meant by a disk's or partition's name ("loop0"),
// its node ("/dev/loop0"), its number ("7:0"), or a path on a mounted file
// system ("/mnt/data": the disk that the file system lies on).
func Lookup(what string) (Disk, error) { return Host.Lookup(what) }

// Lookup is [Lookup] in this tree.
func (t Tree) Lookup(what string) (Disk, error) {
	if dev, err := ParseDev(what); err == nil {
		return t.LookupDev(dev)
	}
	if what == "" {
		return Disk{}, errors.New("no disk named: give a name such as loop0, a node such as /dev/loop0, major:minor, or a mount point")
	}
	if !strings.Contains(what, "/") && what != "." && what != ".." {
		return t.lookupName(what)
	}
	return t.lookupPath(what)
}

// LookupDev finds the whole disk of a device number, which may be a
// partition's.
func (t Tree) LookupDev(dev Dev) (Disk, error) {
	dir, err := t.directoryOf(dev)
	if err != nil {
		return Disk{}, err
	}
	return t.wholeDisk(dir)
}

func (t Tree) lookupName(name string) (Disk, error) {
	dir, err := filepath.EvalSymlinks(filepath.Join(t.Sys, "class/block", name))
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return Disk{}, fmt.Errorf("no disk is called %q (see ls %s): %w", name, filepath.Join(t.Sys, "block"), ErrGone)
		}
		return Disk{}, fmt.Errorf("cannot resolve disk %q: %w", name, err)
	}
	return t.wholeDisk(dir)
}

func (t Tree) lookupPath(path string) (Disk, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return Disk{}, fmt.Errorf("cannot find the disk of %s: %w", path, err)
	}
	if st.Mode&unix.S_IFMT == unix.S_IFBLK {
		return t.LookupDev(DevOf(st.Rdev))
	}
	if dev := DevOf(st.Dev); dev.Major != 0 {
		return t.LookupDev(dev)
	}
	// File systems with numbers of their own (btrfs, overlay, FUSE): the
	// mount's source names the disk, where there is just one.
	mount, err := t.mountOf(path)
	if err != nil {
		return Disk{}, err
	}
	if err := unix.Stat(mount.Source, &st); err == nil && st.Mode&unix.S_IFMT == unix.S_IFBLK {
		return t.LookupDev(DevOf(st.Rdev))
	}
	return Disk{}, fmt.Errorf("%s is on %s (%s from %q), which lies on no single disk", path, mount.Point, mount.Type, mount.Source)
}

// wholeDisk makes the Disk of a resolved sysfs directory, which may be a
// partition's: then the disk is the directory above.
func (t Tree) wholeDisk(dir string) (Disk, error) {
	if _, err := os.Stat(filepath.Join(dir, "partition")); err == nil {
		dir = filepath.Dir(dir)
	}
	text, err := os.ReadFile(filepath.Join(dir, "dev"))
	if err != nil {
		return Disk{}, goneIfMissing(filepath.Base(dir), err)
	}
	dev, err := ParseDev(string(text))
	if err != nil {
		return Disk{}, fmt.Errorf("%s/dev: %w", dir, err)
	}
	return Disk{Name: filepath.Base(dir), Dev: dev, tree: t}, nil
}

// orHost is the tree, or the host's for a disk that was made without.
func (t Tree) orHost() Tree {
	if t.Sys == "" {
		return Host
	}
	return t
}

// Node is the path of the disk's device node.
func (d Disk) Node() string { return NodeOf(d.Name) }

// SizeBytes is the disk's capacity; 0 for a loop device without a file.
func (d Disk) SizeBytes() (uint64, error) {
	text, err := d.read("size")
	if err != nil {
		return 0, err
	}
	sectors, err := strconv.ParseUint(text, 10, 64)
	if err != nil || sectors > 1<<54 {
		return 0, fmt.Errorf("size of disk %s: %q is no number of sectors", d.Name, text)
	}
	return sectors * SectorBytes, nil
}

// Present returns nil if the disk exists and has a capacity, else an error
// that wraps ErrGone: removed, or a loop device that lost its file.
func (d Disk) Present() error {
	size, err := d.SizeBytes()
	if err != nil {
		return err
	}
	if size == 0 {
		return fmt.Errorf("disk %s has no medium: %w", d.Name, ErrGone)
	}
	return nil
}

func (d Disk) path(file string) string {
	return filepath.Join(d.tree.orHost().Sys, "block", d.Name, file)
}

func (d Disk) read(file string) (string, error) {
	text, err := os.ReadFile(d.path(file))
	if err != nil {
		return "", goneIfMissing(d.Name, err)
	}
	return strings.TrimSpace(string(text)), nil
}

// goneIfMissing marks the errors of a device that was removed: its directory
// is missing, or an open file of it answers ENODEV.
func goneIfMissing(name string, err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENXIO) {
		return fmt.Errorf("disk %s: %w (%w)", name, ErrGone, err)
	}
	return fmt.Errorf("disk %s: %w", name, err)
}
