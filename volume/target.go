package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// A mount point is recorded by a path without symbolic links. Who owns one of its
// parents can put a link there later. Root must not follow it: it would create,
// protect, remove or cover a directory that somebody else chose. So each operation
// on a mount point starts here, at a descriptor of its parent.

// targetMode is a mount point's: what is in the volume is for its root
// directory's mode to say, and while nothing is mounted nobody has to look.
const targetMode = 0o700

// openWithoutLinks opens the directory at a path that has no symbolic link in it.
// The error wraps ErrInvalid if there is one, and fs.ErrNotExist if a part of the
// path is missing.
func openWithoutLinks(path string, flags int) (*os.File, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{
		Flags:   uint64(flags | unix.O_DIRECTORY | unix.O_CLOEXEC),
		Resolve: unix.RESOLVE_NO_SYMLINKS,
	})
	if err == unix.ELOOP {
		return nil, fmt.Errorf("%w directory %s: its path leads through a symbolic link, which is not followed", ErrInvalid, path)
	}
	if err != nil {
		return nil, &fs.PathError{Op: "openat2", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// atParent calls do with a descriptor of the directory that the mount point is in.
func atParent(target string, do func(parent int, name string) error) error {
	parent, err := openWithoutLinks(filepath.Dir(target), unix.O_PATH)
	if err != nil {
		return err
	}
	defer func() { _ = parent.Close() }()
	return do(int(parent.Fd()), filepath.Base(target))
}

// makeTarget creates a mount point; one that is there is no error.
func makeTarget(target string) error {
	err := atParent(target, func(parent int, name string) error { return unix.Mkdirat(parent, name, targetMode) })
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("cannot create the mount point %s: %w", target, err)
	}
	return nil
}

// removeTarget removes a mount point that is ours.
func (p *Pool) removeTarget(name, target string) {
	err := atParent(target, func(parent int, name string) error { return unix.Unlinkat(parent, name, unix.AT_REMOVEDIR) })
	// Something may have been put there since: that is not ours.
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		p.log.Warn("the mount point stays", "volume", name, "target", target, "why", err)
	}
}

// openBelow opens the directory at a path in the file system of its parent, also
// while something is mounted on it.
func openBelow(target string) (*os.File, error) {
	mounted, err := mountsAt(target)
	if err != nil {
		return nil, err
	}
	var dir *os.File
	err = atParent(target, func(parent int, name string) error {
		if mounted != "" {
			// A copy of the parent's mount has none of the mounts on it.
			bare, err := unix.OpenTree(parent, "", unix.AT_EMPTY_PATH|unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
			if err != nil {
				return fmt.Errorf("cannot look below the mount on %s (open_tree): %w", target, err)
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
