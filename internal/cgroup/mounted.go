package cgroup

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// Mounts says which controllers are mounted as v1 hierarchies, and where v2 is.
type Mounts struct {
	// V1 are the controllers with a v1 hierarchy, by name.
	V1 []string
	// V2 are the mount points of the v2 hierarchy.
	V2 []string
}

// Mounted lists the cgroup hierarchies that this process sees.
func Mounted() (Mounts, error) {
	mountinfo, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return Mounts{}, fmt.Errorf("cannot list the cgroup hierarchies: %w", err)
	}
	kernel, err := os.ReadFile("/proc/cgroups")
	if err != nil {
		return Mounts{}, fmt.Errorf("cannot list the cgroup controllers: %w", err)
	}
	return mounted(string(mountinfo), string(kernel)), nil
}

// mounted reads /proc/self/mountinfo, and /proc/cgroups for the controllers' names: a
// v1 mount has other options too.
func mounted(mountinfo, kernel string) Mounts {
	var controllers []string
	for line := range strings.Lines(kernel) {
		if name, _, found := strings.Cut(line, "\t"); found && !strings.HasPrefix(name, "#") {
			controllers = append(controllers, name)
		}
	}
	var m Mounts
	for _, at := range parseMountinfo(mountinfo) {
		switch at.Type {
		case "cgroup2":
			m.V2 = append(m.V2, at.Point)
		case "cgroup":
			for _, name := range controllers {
				if hasOption(at, name) && !slices.Contains(m.V1, name) {
					m.V1 = append(m.V1, name)
				}
			}
		}
	}
	slices.Sort(m.V1)
	return m
}

// Controllers lists those that a cgroup may use (v2, cgroup.controllers).
func (t *Tree) Controllers(cgroupPath string) ([]string, error) {
	text, err := t.read(cgroupPath, "cgroup.controllers")
	return strings.Fields(string(text)), err
}

// Enabled lists the controllers that the children of a cgroup have (v2,
// cgroup.subtree_control).
func (t *Tree) Enabled(cgroupPath string) ([]string, error) {
	text, err := t.read(cgroupPath, subtreeControlFile)
	return strings.Fields(string(text)), err
}
