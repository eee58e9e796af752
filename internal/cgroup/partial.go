package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
)

// ErrPartial means that this process sees only a part of the host's cgroups.
var ErrPartial = errors.New("only a part of the host's cgroups is visible")

// AdvicePartial says what helps against [ErrPartial].
const AdvicePartial = "as in a container with a cgroup namespace of its own; " +
	"give the container the host's: --cgroupns host -v /sys/fs/cgroup:/sys/fs/cgroup"

// FindOfHost is [Find], for a caller that looks for the cgroups of all containers. The error is
// also [ErrPartial]. A container whose PID and cgroup namespaces are both its own is a host of
// its own: it cannot be distinguished from one.
func FindOfHost() (*Tree, error) {
	t, v, err := look()
	if err == nil && !v.complete() {
		return nil, fmt.Errorf("%w, %s", ErrPartial, AdvicePartial)
	}
	return t, err
}

// FindOfProcesses is [FindOfHost], for a caller that looks up cgroups by the paths of
// /proc/PID/cgroup, too. With a cgroup namespace of its own these are not the tree's, and the
// error is also [ErrPartial], however much of the hierarchy is mounted.
func FindOfProcesses() (*Tree, error) {
	t, v, err := look()
	if err == nil && !v.matchesProc() {
		return nil, fmt.Errorf("%w by the paths of /proc/PID/cgroup, %s", ErrPartial, AdvicePartial)
	}
	return t, err
}

// view is what this process sees of a hierarchy.
type view struct {
	// root is the mounted cgroup in /proc/self/mountinfo; "" if that has no such mount point.
	root string
	// ofInit is the cgroup of process 1; "" if it is not known.
	ofInit string
	// inode is the mount point's inode number.
	inode uint64
}

// look returns what [Find] finds, and what this process sees of it.
func look() (*Tree, view, error) {
	t, err := Find()
	if err != nil {
		return nil, view{}, err
	}
	mountinfo, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, view{}, fmt.Errorf("cannot see which cgroups are mounted: %w", err)
	}
	var st unix.Stat_t
	if err := unix.Stat(t.root, &st); err != nil {
		return nil, view{}, fmt.Errorf("cannot see which cgroups are mounted at %s: %w", t.root, err)
	}
	ofInit, _ := t.Of(1) // /proc may hide it
	return t, view{root: mountedRoot(string(mountinfo), t.root), ofInit: ofInit, inode: st.Ino}, nil
}

// rootInode is the inode number of the root cgroup, on v1 and v2: kernfs, which gives each
// hierarchy numbers of its own, gives its root the first one.
const rootInode = 1

// complete reports whether the tree has all cgroups of the host. A bind mount of the host's
// /sys has them in any cgroup namespace.
func (v view) complete() bool { return v.inode == rootInode || v.matchesProc() }

// matchesProc reports whether the paths of /proc/PID/cgroup are those of the tree.
func (v view) matchesProc() bool {
	return (v.root == "" || v.root == RootPath) && v.ofInit != "/.." && !strings.HasPrefix(v.ofInit, "/../")
}

// mountedRoot returns the part of a hierarchy that is mounted at a mount point, according to
// /proc/self/mountinfo; "" if nothing is. A later mount hides an earlier one.
func mountedRoot(mountinfo, point string) (root string) {
	for line := range strings.Lines(mountinfo) {
		if m, err := blockdev.ParseMount(strings.TrimSpace(line)); err == nil && filepath.Clean(m.Point) == point {
			root = m.Root
		}
	}
	return root
}
