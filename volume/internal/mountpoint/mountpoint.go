// Package mountpoint works on the directories that volumes are mounted on. It follows no
// symbolic link on the way to one, protects one while nothing is mounted there, and finds
// other mount namespaces that have a mount.
package mountpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/volume/internal/cause"
	"github.com/daybook-project/daybook/volume/records"
)

// A mount point is recorded by a path without symbolic links. The owner of one of its
// parents can put a link there later. Root must not follow it: that user would choose
// which directory root creates, protects, removes or covers. So each operation
// on a mount point starts here, at a descriptor of its parent.

// targetMode is the mode of a new mount point. The root directory of the mounted volume
// has its own mode, and an unmounted one needs no readers.
const targetMode = 0o700

// OpenWithoutLinks opens the directory at a path that has no symbolic link in it.
// The error wraps cause.ErrInvalid if there is one, and fs.ErrNotExist if a part of the
// path is missing.
func OpenWithoutLinks(path string, flags int) (*os.File, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{
		Flags:   uint64(flags | unix.O_DIRECTORY | unix.O_CLOEXEC),
		Resolve: unix.RESOLVE_NO_SYMLINKS,
	})
	if err == unix.ELOOP {
		return nil, fmt.Errorf("%w directory %s: its path leads through a symbolic link, which is not followed", cause.ErrInvalid, path)
	}
	if err != nil {
		return nil, &fs.PathError{Op: "openat2", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// atParent calls do with a descriptor of the directory that the mount point is in.
func atParent(target string, do func(parent int, name string) error) error {
	parent, err := OpenWithoutLinks(filepath.Dir(target), unix.O_PATH)
	if err != nil {
		return err
	}
	defer func() { _ = parent.Close() }()
	return do(int(parent.Fd()), filepath.Base(target))
}

// Create creates a mount point. If it exists, that is no error.
func Create(target string) error {
	err := atParent(target, func(parent int, name string) error { return unix.Mkdirat(parent, name, targetMode) })
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("cannot create the mount point %s: %w", target, err)
	}
	return nil
}

// OpenBelow opens the directory at a path in the file system of its parent, also
// while something is mounted on it.
func OpenBelow(target string) (*os.File, error) {
	mounted, err := Mounted(target)
	if err != nil {
		return nil, err
	}
	var dir *os.File
	err = atParent(target, func(parent int, name string) error {
		if mounted != "" {
			// A copy of the parent's mount has none of the mounts on it.
			bare, err := unix.OpenTree(parent, "", unix.AT_EMPTY_PATH|unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
			if err != nil {
				return fmt.Errorf("cannot open the directory below the mount on %s (open_tree): %w", target, err)
			}
			defer func() { _ = unix.Close(bare) }()
			parent = bare
		}
		fd, err := unix.Openat(parent, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return &fs.PathError{Op: "open", Path: target, Err: err}
		}
		dir = os.NewFile(uintptr(fd), target)
		return nil
	})
	return dir, err
}

// Remove removes a mount point. If it is gone, that is no error.
func Remove(target string) error {
	err := atParent(target, func(parent int, name string) error { return unix.Unlinkat(parent, name, unix.AT_REMOVEDIR) })
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Resolve returns the path as /proc/self/mountinfo will show it.
func Resolve(target string) (string, error) {
	target, err := filepath.Abs(target)
	if err != nil {
		return "", err
	}
	if target == "/" {
		return "", fmt.Errorf("%w mount point %q", cause.ErrInvalid, target)
	}
	real, err := filepath.EvalSymlinks(target)
	if errors.Is(err, fs.ErrNotExist) {
		parent, err := filepath.EvalSymlinks(filepath.Dir(target))
		if err != nil {
			return "", fmt.Errorf("%w mount point %s: %w", cause.ErrInvalid, target, err)
		}
		return filepath.Join(parent, filepath.Base(target)), nil
	}
	return real, err
}

// Mounted returns the source of the mount on a directory; "" if nothing is mounted.
func Mounted(target string) (string, error) {
	mounts, err := blockdev.Mounts()
	if err != nil {
		return "", err
	}
	for _, mount := range mounts {
		if mount.Point == target {
			return mount.Source, nil
		}
	}
	return "", nil
}

// MountOf is the point of the mount that a directory is on.
func MountOf(dir string) (string, error) {
	mounts, err := blockdev.Mounts()
	if err != nil {
		return "", err
	}
	on := "/"
	for _, mount := range mounts {
		if records.Within(dir, mount.Point) && len(mount.Point) > len(on) {
			on = mount.Point
		}
	}
	return on, nil
}
