package adopt

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/daybook-project/daybook/internal/configfile"
	"github.com/daybook-project/daybook/internal/systemd"
)

// DefaultConfig is the configuration of the unit daybook-adopt.service.
const DefaultConfig = "/etc/daybook/adopt.yaml"

// Bounds of an entry.
const (
	// MaxWeight is what BFQ takes, as for volumes.
	MaxWeight  = 1000
	maxEntries = 1000
	maxUsers   = 100
)

const knownKeys = "mounts; of a mount: mountpoint, cgroup, container, weight"

type document struct {
	Mounts []mountNode `yaml:"mounts"`
}

type mountNode struct {
	Mountpoint yaml.Node `yaml:"mountpoint"`
	Cgroup     yaml.Node `yaml:"cgroup"`
	Container  yaml.Node `yaml:"container"`
	Weight     yaml.Node `yaml:"weight"`
}

// ReadConfig reads a configuration. name is for messages. The error is a
// *configfile.Error, with all that is wrong, unless the input cannot be read.
func ReadConfig(input io.Reader, name string) ([]Entry, error) {
	text, err := configfile.ReadAll(input, name)
	if err != nil {
		return nil, err
	}
	var r configfile.Reader
	var file document
	var entries []Entry
	if r.Decode(text, &file, knownKeys, "mounts: []") {
		entries = readEntries(&r, file)
	}
	if r.Sort(); len(r.Problems) > 0 {
		return nil, &configfile.Error{Name: name, Problems: r.Problems}
	}
	return entries, nil
}

func readEntries(r *configfile.Reader, file document) (entries []Entry) {
	if len(file.Mounts) > maxEntries {
		r.Refuse(0, "%d mounts: want at most %d", len(file.Mounts), maxEntries)
		return nil
	}
	if len(file.Mounts) == 0 && len(r.Problems) == 0 {
		r.Refuse(0, "no mounts: want a list, such as mounts: [{mountpoint: /srv/db1, container: db1}]")
	}
	lines := map[string]int{}
	for n, mount := range file.Mounts {
		var e Entry
		var line int
		e.Mountpoint, line = r.Scalar(mount.Mountpoint)
		if e.Mountpoint == "" {
			r.Refuse(line, "mount %d: want mountpoint: with the path of a mounted ext4", n+1)
			continue
		}
		if err := CheckMountpoint(e.Mountpoint); err != nil {
			r.Refuse(line, "mountpoint: %v", err)
		}
		if earlier, known := lines[e.Mountpoint]; known {
			r.Refuse(line, "mountpoint %s is in line %d already", e.Mountpoint, earlier)
		}
		lines[e.Mountpoint] = line
		e.Cgroups, _ = r.Strings(mount.Cgroup)
		for _, at := range e.Cgroups {
			if err := CheckCgroup(at); err != nil {
				r.Refuse(mount.Cgroup.Line, "cgroup: %v", err)
			}
		}
		e.Containers, _ = r.Strings(mount.Container)
		switch users := len(e.Cgroups) + len(e.Containers); {
		case users == 0:
			r.Refuse(line, "%s: want cgroup: or container:, one or a list", e.Mountpoint)
		case users > maxUsers:
			r.Refuse(line, "%s: %d cgroups and containers: want at most %d", e.Mountpoint, users, maxUsers)
		}
		e.Weight = r.Uint(mount.Weight, "weight of "+e.Mountpoint, 1, MaxWeight)
		entries = append(entries, e)
	}
	return entries
}

// CheckMountpoint refuses what is no path of a mount point.
func CheckMountpoint(path string) error {
	if !filepath.IsAbs(path) || strings.ContainsAny(path, "\x00\n") {
		return fmt.Errorf("%q: want an absolute path, such as /srv/db1", path)
	}
	return nil
}

// CheckCgroup refuses what is no path of a cgroup, and no slice.
func CheckCgroup(path string) error {
	switch {
	case path == "/":
		return errors.New("/: the root cgroup is where the kernel starts the threads")
	case strings.HasSuffix(path, ".slice") && !strings.Contains(path, "/"):
		_, err := systemd.SliceCgroup(path)
		return err
	case !filepath.IsAbs(path), filepath.Clean(path) != path, strings.ContainsAny(path, "\x00\n"):
		return fmt.Errorf("%q: want a path below the mount point of the hierarchy, such as /system.slice/mariadb.service, or the name of a slice", path)
	}
	return nil
}
