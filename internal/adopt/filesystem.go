package adopt

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/internal/safetext"
)

// Errors that callers distinguish.
var (
	// ErrNotMounted means that nothing is mounted on a mount point.
	ErrNotMounted = errors.New("nothing is mounted there")
	// ErrUnsupported means that a file system has no journal that can be placed.
	ErrUnsupported = errors.New("it cannot be adopted")
	// ErrReplaced means that the device has another file system than the recorded one.
	ErrReplaced = errors.New("the device has another file system now")
)

// types are the file systems whose journal is written by a kernel thread of its own.
var types = []string{"ext4", "ext3", ext4.MemoryType, ext4.MemoryJFSType}

// Filesystem is a mounted file system.
type Filesystem struct {
	// Name is that of its device in /sys/class/block, such as "dm-3".
	Name string
	Dev  blockdev.Dev
	UUID string
	Type string
	// Mountpoint is the mount point by which it was found.
	Mountpoint string
}

// At finds the file system that is mounted on a mount point. The error wraps ErrNotMounted
// or ErrUnsupported.
func At(mountpoint string) (Filesystem, error) {
	point, err := filepath.Abs(mountpoint)
	if err != nil {
		return Filesystem{}, err
	}
	if resolved, err := filepath.EvalSymlinks(point); err == nil {
		point = resolved
	}
	mounts, err := blockdev.Mounts()
	if err != nil {
		return Filesystem{}, err
	}
	for _, mount := range slices.Backward(mounts) { // the last one is on top
		if mount.Point == point {
			return Of(mount)
		}
	}
	return Filesystem{}, fmt.Errorf("cannot adopt %s: %w: name the mount point, as in findmnt --target %s", point, ErrNotMounted, safetext.Word(point))
}

// Of is the file system of a mount. The error wraps ErrUnsupported if its journal cannot
// be placed.
func Of(mount blockdev.Mount) (Filesystem, error) {
	if !slices.Contains(types, mount.Type) {
		return Filesystem{}, fmt.Errorf("cannot adopt %s: %w: it is %s, want ext4, ext4nvj or jfsnvj", mount.Point, ErrUnsupported, mount.Type)
	}
	name, err := blockdev.DeviceName(mount.Dev)
	if err != nil {
		return Filesystem{}, fmt.Errorf("cannot adopt %s: %w", mount.Point, err)
	}
	uuid, err := uuidOf(name, mount.Type)
	if err != nil {
		return Filesystem{}, fmt.Errorf("cannot adopt %s: %w", mount.Point, err)
	}
	f := Filesystem{Name: name, Dev: mount.Dev, UUID: uuid, Type: mount.Type, Mountpoint: mount.Point}
	if _, _, err := f.threads(); errors.Is(err, ext4.ErrNoJournal) {
		return f, fmt.Errorf("cannot adopt %s: %w: %w", mount.Point, ErrUnsupported, err)
	}
	return f, nil
}

// inMemory says whether its journal is in memory.
func (f Filesystem) inMemory() bool { return f.Type == ext4.MemoryType || f.Type == ext4.MemoryJFSType }

// disk is the device's, or its partition's.
func (f Filesystem) disk() (blockdev.Disk, error) { return blockdev.Host.LookupDev(f.Dev) }

// threads finds the kernel threads that write its journal. The error wraps
// ext4.ErrNoJournal if there are none, as while it is not mounted.
func (f Filesystem) threads() (pid int, workers []int, err error) {
	if f.inMemory() {
		all, err := ext4.ReadJournalThreads()
		if err != nil {
			return 0, nil, err
		}
		memory := all.InMemory(f.Name)
		if len(memory) == 0 {
			return 0, nil, fmt.Errorf("no kernel thread nvj/%s-commit: is the file system mounted? %w", f.Name, ext4.ErrNoJournal)
		}
		return memory[0], memory[1:], nil
	}
	journal, err := ext4.JournalOf(f.Dev)
	if err != nil {
		return 0, nil, err
	}
	pid, err = ext4.JournalThread(journal.Name)
	return pid, nil, err
}

// check refuses a device that has another file system now.
func (f Filesystem) check() error {
	uuid, err := uuidOf(f.Name, f.Type)
	if err == nil && uuid != f.UUID {
		err = fmt.Errorf("%s: %w", f.Name, ErrReplaced)
	}
	return err
}
