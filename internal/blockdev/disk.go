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

// ErrGone means that a disk does not exist any more.
var ErrGone = errors.New("the disk is gone")

// unknownError wraps ErrGone without its text: a name that was mistyped is of no disk that
// was there.
type unknownError struct{ text string }

func (e unknownError) Error() string { return e.text }

func (e unknownError) Unwrap() error { return ErrGone }

// SectorBytes is the unit of /sys/block counters and sizes, whatever the block
// size of the device is.
const SectorBytes = 512

// Host is the [Tree] of the running system.
var Host = Tree{Sys: "/sys", Proc: "/proc"}

// Tree names the directories of sysfs and procfs; tests use small fake ones.
type Tree struct{ Sys, Proc string }

// Disk is a whole disk (not a partition). It is a comparable value and holds no
// file open.
type Disk struct {
	// Name is the name of the directory in /sys/block, such as "loop0".
	Name string
	// Dev is the number of the disk.
	Dev  Dev
	tree Tree
}

// Lookup finds the whole disk of a disk's or partition's name ("loop0"), its
// node ("/dev/loop0"), its number ("7:0"), or a path on a mounted file system
// ("/mnt/data": the disk of that file system).
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

// LookupForWriting is [Lookup] for commands that change or load the disk. It refuses a path that is
// neither a block device nor a directory: "/etc/passwd" is more likely a mistake than the name of the
// disk below it.
func LookupForWriting(what string) (Disk, error) {
	disk, err := Lookup(what)
	if err != nil {
		return disk, err
	}
	if !strings.Contains(what, "/") {
		return disk, nil // a name or a number
	}
	info, err := os.Stat(what)
	if err != nil {
		return Disk{}, err
	}
	if mode := info.Mode(); !mode.IsDir() && mode.Type() != fs.ModeDevice {
		return Disk{}, fmt.Errorf("%s is a file, and not a disk; if you mean the disk below it, name that: %s", what, disk.Name)
	}
	return disk, nil
}

// LookupDev finds the whole disk of a device number, which may be that of a
// partition.
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
			return Disk{}, unknownError{fmt.Sprintf("no disk is called %q (see ls %s)", name, filepath.Join(t.Sys, "block"))}
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
	// btrfs, overlay and FUSE have device numbers of their own: the mount's
	// source names the disk, if there is only one.
	mount, err := t.mountOf(path)
	if err != nil {
		return Disk{}, err
	}
	if err := unix.Stat(mount.Source, &st); err == nil && st.Mode&unix.S_IFMT == unix.S_IFBLK {
		return t.LookupDev(DevOf(st.Rdev))
	}
	return Disk{}, fmt.Errorf("%s is on %s (%s from %q), which is not on a single disk", path, mount.Point, mount.Type, mount.Source)
}

// wholeDisk returns the Disk of a resolved sysfs directory. For a partition,
// the disk is the parent directory.
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

// orHost returns the tree, or the host's for a disk that was made without one.
func (t Tree) orHost() Tree {
	if t.Sys == "" {
		return Host
	}
	return t
}

// Node returns the path of the disk's device node.
func (d Disk) Node() string { return NodeOf(d.Name) }

// SizeBytes returns the capacity of the disk in bytes; 0 for a loop device
// without a file.
func (d Disk) SizeBytes() (uint64, error) {
	text, err := d.read("size")
	if err != nil {
		return 0, err
	}
	sectors, err := strconv.ParseUint(text, 10, 64)
	if err != nil || sectors > 1<<54 {
		return 0, fmt.Errorf("size of disk %s: %q is not a number of sectors", d.Name, text)
	}
	return sectors * SectorBytes, nil
}

// Present returns nil if the disk exists and has a capacity. Otherwise the
// error wraps ErrGone: the disk was removed, or is a loop device without a
// file.
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

// goneIfMissing marks the errors of a removed device: its directory is missing,
// or an open file of it returns ENODEV.
func goneIfMissing(name string, err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENXIO) {
		return fmt.Errorf("disk %s: %w (%w)", name, ErrGone, err)
	}
	return fmt.Errorf("disk %s: %w", name, err)
}
