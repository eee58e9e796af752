package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// RemoveElsewhere removes the empty cgroups of a path in the other mounted
// hierarchies. On cgroup v1 a runtime makes a container's cgroup and its
// parents in every hierarchy, and finally removes only the container's. A
// cgroup in use stays, without an error.
func (t *Tree) RemoveElsewhere(cgroupPath string) error {
	if clean(cgroupPath) == RootPath {
		return nil
	}
	mountinfo, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return fmt.Errorf("cannot find the other cgroup hierarchies: %w", err)
	}
	var errs []error
	for _, m := range parseMountinfo(string(mountinfo)) {
		if m.Type != "cgroup" && m.Type != "cgroup2" || filepath.Clean(m.Point) == t.root {
			continue
		}
		dir := m.Point + clean(cgroupPath)
		switch err := unix.Rmdir(dir); {
		case err == nil, errors.Is(err, unix.ENOENT), errors.Is(err, unix.EBUSY), errors.Is(err, unix.ENOTEMPTY):
		default:
			errs = append(errs, fmt.Errorf("cannot remove cgroup %s: %w", dir, err))
		}
	}
	return errors.Join(errs...)
}
