package container

import (
	"bufio"
	"errors"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/daybook-project/daybook/internal/systemd"
)

// volumeRoot is the default parent of the cgroups of volumes: /daybook/NAME, with
// the jbd2 thread in /daybook/NAME/journal.
const volumeRoot = "/daybook/"

// volumeSlices is the same where systemd owns the cgroups: daybook-NAME.slice, with the
// jbd2 thread in daybook-NAME-journal.slice.
const volumeSlices = "/daybook.slice/"

// volumeCgroup recognises the parent cgroup of a volume, and that of its
// journal, by the path.
func volumeCgroup(cgroupPath string) (Identity, bool) {
	if rest, ok := strings.CutPrefix(cgroupPath, volumeSlices); ok {
		return volumeSlice(rest, cgroupPath)
	}
	rest, ok := strings.CutPrefix(cgroupPath, volumeRoot)
	if !ok {
		return Identity{}, false
	}
	name, inside, nested := strings.Cut(rest, "/")
	switch {
	case name == "":
		return Identity{}, false
	case !nested:
		return volumeIdentity(name, cgroupPath, false), true
	case inside == "journal":
		return volumeIdentity(name, cgroupPath, true), true
	}
	return Identity{}, false
}

// volumeSlice recognises the slice of a volume, and that of its journal, by the path
// below volumeSlices.
func volumeSlice(rest, cgroupPath string) (Identity, bool) {
	slice, inside, nested := strings.Cut(rest, "/")
	component, ok := strings.CutSuffix(slice, ".slice")
	component, ours := strings.CutPrefix(component, "daybook-")
	switch {
	case !ok || !ours || component == "" || strings.Contains(component, "-"):
		return Identity{}, false
	case !nested:
		return volumeIdentity(systemd.UnescapeSlice(component), cgroupPath, false), true
	case inside == "daybook-"+component+"-journal.slice":
		return volumeIdentity(systemd.UnescapeSlice(component), cgroupPath, true), true
	}
	return Identity{}, false
}

// volumeIdentity names the cgroup of a volume's journal, or its parent. The
// parent has no processes and no runtime, and is shown only if it does I/O.
func volumeIdentity(name, root string, journal bool) Identity {
	shown := "volume " + clean(name)
	if !journal {
		return Identity{Name: shown, Root: root}
	}
	return Identity{Runtime: Volume, ID: name, Name: shown + " (journal)", Root: root}
}

// volumeState is the state of Daybook's pools: POOL/volumes/NAME/volume.json
// contains the cgroups of a volume that is attached below another parent. A
// file lists the pools, one per line.
type volumeState struct {
	registry string
	known    map[string]*volumeFile // by file
	journals map[string]string      // cgroup path -> volume
}

type volumeFile struct {
	version version
	name    string
	journal string
}

// volumeRecord is the part of volume.json that is used.
type volumeRecord struct {
	Attachment struct {
		Placement string `json:"placement"`
		Journal   string `json:"journal_cgroup"`
	} `json:"attachment"`
}

// maxNotedPools limits the lines that are read from the file of pools.
const maxNotedPools = 256

// refresh lists the volumes, and reads the records that have changed.
func (s *volumeState) refresh() {
	known := make(map[string]*volumeFile)
	s.journals = make(map[string]string)
	for _, pool := range append(notedPools(s.registry), filepath.Join(filepath.Dir(s.registry), "volumes")) {
		for _, name := range listDir(filepath.Join(pool, "volumes")) {
			file := filepath.Join(pool, "volumes", name, "volume.json")
			v := s.known[file]
			if v == nil {
				v = &volumeFile{name: name}
			}
			v.read(file)
			known[file] = v
			if v.journal != "" {
				s.journals[v.journal] = name
			}
		}
	}
	s.known = known
}

func (v *volumeFile) read(file string) {
	var record volumeRecord
	now, changed, err := readState(file, v.version, &record)
	if errors.Is(err, os.ErrNotExist) {
		*v = volumeFile{name: v.name}
		return
	}
	if err != nil || !changed {
		return // partially written: keep the last content until the next time
	}
	v.version, v.journal = now, ""
	// In the container's own cgroup the thread belongs to the container.
	if a := record.Attachment; a.Placement == "parent" && path.IsAbs(a.Journal) {
		v.journal = path.Clean(a.Journal)
	}
}

// notedPools reads the paths of pools; lines that are not a path are skipped.
func notedPools(registry string) []string {
	f, err := os.OpenFile(registry, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil
	}
	var pools []string
	for lines := bufio.NewScanner(f); len(pools) < maxNotedPools && lines.Scan(); {
		if dir := lines.Text(); filepath.IsAbs(dir) {
			pools = append(pools, dir)
		}
	}
	return pools
}

// at returns the cgroup of a volume's journal; cgroups inside it also belong to
// it.
func (s *volumeState) at(cgroupPath string) (Identity, bool) {
	name, ok := s.journals[cgroupPath]
	if !ok {
		return Identity{}, false
	}
	return volumeIdentity(name, cgroupPath, true), true
}
