package blockdev

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Mount is one line of /proc/self/mountinfo.
type Mount struct {
	// Dev is the number of the file system: that of a disk or partition, or one
	// of its own with major 0.
	Dev Dev
	// Root is the directory of the file system that is mounted here.
	Root string
	// Point is the mount point as this process sees it.
	Point string
	// Type is the file system's type, such as "ext4".
	Type string
	// Source is usually a device node.
	Source string
	// Options are the options of the file system, such as
	// "rw,journal_path=...".
	Options string
}

// Mounts lists the mounts that this process sees, oldest first.
func Mounts() ([]Mount, error) { return Host.Mounts() }

// Mounts is [Mounts] in this tree.
func (t Tree) Mounts() ([]Mount, error) { return t.mountsOf("self") }

// RootOfInit is the root directory of the host's first process, also in a container that has the
// host's process IDs. Only CAP_SYS_PTRACE may open it from another mount namespace.
const RootOfInit = "/proc/1/root"

// MountsOfHost lists the mounts of the host's first process, also from a container that has the
// host's process IDs, and after them those that only this process sees.
func MountsOfHost() ([]Mount, error) {
	mounts, err := Mounts()
	if err != nil {
		return nil, err
	}
	own, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return nil, err
	}
	if host, err := os.Readlink("/proc/1/ns/mnt"); err == nil && host == own {
		return mounts, nil
	}
	all, err := Host.mountsOf("1")
	if err != nil {
		return nil, fmt.Errorf("cannot list the mounts of the host: %w", err)
	}
	known := make(map[Mount]bool, len(all))
	for _, mount := range all {
		known[mount] = true
	}
	for _, mount := range mounts {
		if !known[mount] {
			all = append(all, mount)
		}
	}
	return all, nil
}

func (t Tree) mountsOf(process string) ([]Mount, error) {
	path := filepath.Join(t.Proc, process, "mountinfo")
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("cannot list mounts: %w", err)
	}
	var mounts []Mount
	for line := range strings.Lines(string(text)) {
		mount, err := ParseMount(strings.TrimSuffix(line, "\n"))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		mounts = append(mounts, mount)
	}
	return mounts, nil
}

// MountsOf lists the mounts of the file system with that device number.
func MountsOf(dev Dev) ([]Mount, error) {
	all, err := Host.Mounts()
	if err != nil {
		return nil, err
	}
	var mounts []Mount
	for _, mount := range all {
		if mount.Dev == dev {
			mounts = append(mounts, mount)
		}
	}
	return mounts, nil
}

// ParseMount parses a line of mountinfo, such as
//
//	36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext4 /dev/root rw,errors=continue
//
// where any number of optional fields precedes the single dash. The kernel escapes blanks, tabs,
// ends of lines and backslashes in paths, and no other white space.
func ParseMount(line string) (Mount, error) {
	before, after, found := strings.Cut(line, " - ")
	first := strings.Split(before, " ")
	second := strings.SplitN(after, " ", 3)
	if !found || len(first) < 6 || len(second) < 3 {
		return Mount{}, fmt.Errorf("%q is not a mountinfo line", line)
	}
	dev, err := ParseDev(first[2])
	if err != nil {
		return Mount{}, fmt.Errorf("%q: %w", line, err)
	}
	return Mount{
		Dev:     dev,
		Root:    unescapeMount(first[3]),
		Point:   unescapeMount(first[4]),
		Type:    second[0],
		Source:  unescapeMount(second[1]),
		Options: second[2],
	}, nil
}

// unescapeMount decodes \040 and other octal escapes.
func unescapeMount(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+4 <= len(s) {
			if value, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				out.WriteByte(byte(value))
				i += 3
				continue
			}
		}
		out.WriteByte(s[i])
	}
	return out.String()
}

// MountOf finds the mount that a path is on, as this process sees it.
func MountOf(path string) (Mount, error) { return Host.mountOf(path) }

// mountOf finds the mount of a path: the last one made whose mount point is the
// longest prefix.
func (t Tree) mountOf(path string) (Mount, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return Mount{}, err
	}
	if resolved, err := filepath.EvalSymlinks(path); err == nil {
		path = resolved
	}
	mounts, err := t.Mounts()
	if err != nil {
		return Mount{}, err
	}
	best := -1
	for i, mount := range mounts {
		inside := mount.Point == "/" || path == mount.Point || strings.HasPrefix(path, mount.Point+"/")
		if inside && (best < 0 || len(mount.Point) >= len(mounts[best].Point)) {
			best = i
		}
	}
	if best < 0 {
		return Mount{}, fmt.Errorf("%s is on no mount that this process sees", path)
	}
	return mounts[best], nil
}
