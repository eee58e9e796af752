package container

import (
	"os"
	"path/filepath"
	"strings"
)

// runcState is ROOT/ID/state.json, which contains the container's cgroups, at
// any path. All runtimes that use runc have such a file.
type runcState struct {
	roots []string
	known map[string]*runcContainer // by file
	paths map[string]*runcContainer // by cgroup path
	ids   map[string]bool
}

type runcContainer struct {
	id    string
	owner uint32 // the user whose runc it is; 0: root or ourselves
	path  string // "" if the file does not contain it
	tries int
}

// runcFile is the part of state.json that is used.
type runcFile struct {
	ID          string            `json:"id"`
	CgroupPaths map[string]string `json:"cgroup_paths"` // by controller; "" on v2
}

// maxRuncTries limits how often an invalid file is read again.
const maxRuncTries = 3

// refresh lists the containers and reads the files of new ones: the cgroup of a
// container does not change. The files of a user's runc count for this user's cgroups only.
func (s *runcState) refresh() {
	known := make(map[string]*runcContainer)
	s.paths, s.ids = make(map[string]*runcContainer), make(map[string]bool)
	for _, pattern := range s.roots {
		roots, _ := filepath.Glob(pattern)
		for _, root := range roots {
			info, err := os.Lstat(root)
			if err != nil {
				continue
			}
			owner := versionOf(info).owner
			if owner == uint32(os.Geteuid()) {
				owner = 0 // ours
			}
			for _, id := range listDir(root) {
				file := filepath.Join(root, id, "state.json")
				c := s.known[file]
				if c == nil || c.owner != owner {
					c = &runcContainer{id: id, owner: owner}
				}
				if c.path == "" && c.tries < maxRuncTries {
					c.tries++
					c.read(file)
				}
				known[file], s.ids[id] = c, true
				if c.path != "" && (owner == 0 || isOf(owner, c.path)) {
					s.paths[c.path] = c
				}
			}
		}
	}
	s.known = known
}

func (c *runcContainer) read(file string) {
	var state runcFile
	if _, _, err := readState(file, version{}, &state); err != nil {
		return
	}
	for _, controller := range []string{"blkio", ""} {
		if p, ok := belowMount(state.CgroupPaths[controller], controller); ok {
			c.path = p
			return
		}
	}
}

// belowMount removes the usual mount point from a directory of a cgroup.
func belowMount(dir, controller string) (string, bool) {
	mount := "/sys/fs/cgroup"
	if controller != "" {
		mount += "/" + controller
	}
	p, ok := strings.CutPrefix(filepath.Clean(dir), mount)
	return p, ok && strings.HasPrefix(p, "/") && p != "/"
}

func (s *runcState) has(id string) bool { return s.ids[id] }

func (s *runcState) at(cgroupPath string) (Identity, bool) {
	c := s.paths[cgroupPath]
	if c == nil {
		return Identity{}, false
	}
	runtime := Runc
	if isID(c.id) {
		runtime = OCI // of a larger runtime, whose state may contain more
	}
	name := clean(shortID(c.id))
	if c.owner != 0 { // as of a user's Podman: see lookupOf
		name = userName(c.owner) + "/" + name
	}
	return Identity{Runtime: runtime, ID: c.id, Name: name, Root: cgroupPath}, true
}
