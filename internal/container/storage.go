package container

import (
	"path/filepath"
	"strings"
)

// storageState is the index of containers/storage for Podman and CRI-O:
// ROOT/DRIVER-containers/containers.json, and volatile-containers.json for
// containers that do not survive a reboot.
type storageState struct {
	roots []string
	files map[string]*storageFile
}

type storageFile struct {
	version version
	names   map[string]facts // by ID
	owner   uint32           // of the file
	seen    bool
}

// storageEntry is the part of an entry that is used.
type storageEntry struct {
	ID    string   `json:"id"`
	Names []string `json:"names"`
}

func (s *storageState) refresh() {
	if s.files == nil {
		s.files = make(map[string]*storageFile)
	}
	for _, f := range s.files {
		f.seen = false
	}
	for _, root := range s.roots {
		found, _ := filepath.Glob(filepath.Join(root, "*-containers", "*containers.json"))
		for _, file := range found {
			s.read(file)
		}
	}
	for file, f := range s.files {
		if !f.seen {
			delete(s.files, file)
		}
	}
}

func (s *storageState) read(file string) {
	f := s.files[file]
	if f == nil {
		f = &storageFile{}
		s.files[file] = f
	}
	f.seen = true
	var entries []storageEntry
	now, changed, err := readState(file, f.version, &entries)
	if err != nil || !changed {
		return // partially written: keep the last content until the next time
	}
	f.version, f.owner, f.names = now, now.owner, make(map[string]facts, len(entries))
	for _, e := range entries {
		if len(e.Names) == 0 || !isID(e.ID) {
			continue
		}
		known, inKubernetes := kubernetesName(e.Names[0])
		known.runtime, known.storageName = Podman, e.Names[0]
		if inKubernetes {
			known.runtime = CRIO
		}
		f.names[e.ID] = known
	}
}

func (s *storageState) lookup(id string) (facts, bool) {
	for _, f := range s.files {
		if known, ok := f.names[id]; ok {
			return known, true
		}
	}
	return facts{}, false
}

// lookupOf finds a container of a user by its cgroup, "…/user-UID.slice/…", in a file of
// that user. Its name begins with "user-UID/": a user chooses names at will, and a rule of
// the configuration for a name must not match them by accident.
func (s *storageState) lookupOf(cgroupPath, id string) (facts, bool) {
	for _, f := range s.files {
		if known, ok := f.names[id]; ok && isOf(f.owner, cgroupPath) {
			return facts{name: userName(f.owner) + "/" + clean(strings.ReplaceAll(known.storageName, "/", "_"))}, true
		}
	}
	return facts{}, false
}
