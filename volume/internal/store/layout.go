// Package store has the files of pools: their paths, the records of pools, volumes and
// snapshots as files, which of them are trusted, and locks. The package records describes
// the content of records.
package store

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/volume/records"
)

// Names in the directory of a pool.
const (
	PoolFile     = "daybook-pool.json"
	VolumesDir   = "volumes"
	WorkDir      = "work"
	SnapshotsDir = "snapshots"
	RecordFile   = "volume.json"
	SnapshotFile = "snapshot.json"
	ImageFile    = "image"
	PoolFormat   = 1
)

// Pool is the directory of a pool.
type Pool struct {
	// Dir is absolute and without symbolic links.
	Dir string
	// Stranger is called when another user's process locks the directory.
	Stranger func(pid int)
}

// VolumeDir is the directory of a volume.
func (p Pool) VolumeDir(name string) string { return filepath.Join(p.Dir, VolumesDir, name) }

// Image is the image of a volume.
func (p Pool) Image(name string) string { return filepath.Join(p.VolumeDir(name), ImageFile) }

// SnapshotDir is the directory of a snapshot.
func (p Pool) SnapshotDir(name, snapshot string) string {
	return filepath.Join(p.VolumeDir(name), SnapshotsDir, snapshot)
}

// SnapshotImage is the image of a snapshot.
func (p Pool) SnapshotImage(name, snapshot string) string {
	return filepath.Join(p.SnapshotDir(name, snapshot), ImageFile)
}

// KeptSuperblock exists while a tool of e2fsprogs works on the volume.
func (p Pool) KeptSuperblock(name string) string {
	return filepath.Join(p.VolumeDir(name), "superblock")
}

// UndoFile exists while resize2fs works on the volume in place.
func (p Pool) UndoFile(name string) string { return filepath.Join(p.VolumeDir(name), "resize.undo") }

// Names lists the volumes, sorted.
func (p Pool) Names() ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(p.Dir, VolumesDir))
	if err != nil {
		return nil, fmt.Errorf("pool %s: %w", p.Dir, err)
	}
	var names []string
	for _, entry := range entries {
		if records.CheckName(entry.Name()) == nil {
			names = append(names, entry.Name())
		}
	}
	slices.Sort(names)
	return names, nil
}

// SnapshotNames lists a volume's snapshots, sorted; never nil.
func (p Pool) SnapshotNames(name string) []string {
	names := []string{}
	entries, _ := os.ReadDir(filepath.Join(p.VolumeDir(name), SnapshotsDir)) // none, or none to be seen
	for _, entry := range entries {
		if records.CheckName(entry.Name()) == nil {
			names = append(names, entry.Name())
		}
	}
	slices.Sort(names)
	return names
}

// Images finds all images by inode, also those in works. Works come first, because a work
// may be published meanwhile.
func (p Pool) Images() map[uint64]unix.Stat_t {
	images := make(map[uint64]unix.Stat_t)
	add := func(dir string) (entries []os.DirEntry) {
		entries, _ = os.ReadDir(dir) // a missing directory has no images
		for _, entry := range entries {
			var st unix.Stat_t
			if unix.Lstat(filepath.Join(dir, entry.Name(), ImageFile), &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG {
				images[st.Ino] = st
			}
		}
		return entries
	}
	add(filepath.Join(p.Dir, WorkDir))
	for _, volume := range add(filepath.Join(p.Dir, VolumesDir)) {
		add(filepath.Join(p.Dir, VolumesDir, volume.Name(), SnapshotsDir))
	}
	return images
}
