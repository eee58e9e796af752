package container

import (
	"path/filepath"
	"strings"
)

// runcState is ROOT/ID/state.json, which says at which cgroups the container
// is, of any form. All runtimes that use runc keep such a file.
type runcState struct {
	roots []string
	known map[string]*runcContainer // by file
	paths map[string]*runcContainer // by cgroup path
	ids   map[string]bool
}

type runcContainer struct {
	id    string
	path  string // "" where the file does not tell it
	tries int
}

// runcFile is the part of state.json that is read.
type runcFile struct {
	ID          string            `json:"id"`
	CgroupPaths map[string]string `json:"cgroup_paths"` // by controller; "" on v2
}

// maxRuncTries bounds how often a file that makes no sense is read again.
const maxRuncTries = 3

// refresh lists the containers and reads the files of new ones: the cgroup of
// a container does not change.
func (s *runcState) refresh() {
	known := make(map[string]*runcContainer)
	s.paths, s.ids = make(map[string]*runcContainer), make(map[string]bool)
	for _, pattern := range s.roots {
		roots, _ := filepath.Glob(pattern)
		for _, root := range roots {
			for _, id := range listDir(root) {
				file := filepath.Join(root, id, "state.json")
				c := s.known[file]
				if c == nil {
					c = &runcContainer{id: id}
				}
				if c.path == "" && c.tries < maxRuncTries {
					c.tries++
					c.read(file)
				}
				known[file], s.ids[id] = c, true
				if c.path != "" {
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

// belowMount takes the usual mount point off a directory of a cgroup.
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
		runtime = OCI // a greater runtime's, whose state may tell more
	}
	return Identity{Runtime: runtime, ID: c.id, Name: clean(shortID(c.id)), Root: cgroupPath}, true
}
