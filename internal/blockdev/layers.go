package blockdev

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Layer is a device that a file system passes on its way to the disks.
type Layer struct {
	// Name is as in /sys/class/block.
	Name string
	// Kind is "lvm", "crypt", "mpath" or another maker's prefix of a device-mapper
	// UUID in lower case, "part" for a partition of such a device, "crypt-integrity" or
	// "crypt-subdev" for dm-integrity of cryptsetup, "dm" where it has no UUID, or md's
	// level such as "raid1". "" is a disk.
	Kind string
	// Depth counts the layers above, from 0.
	Depth int
}

// Layers lists what is between a device and the disks that carry it ([Disk.Physical]),
// from the top down, each layer before those below it, the disks included. A device
// that two layers share is there twice.
func (d Disk) Layers() ([]Layer, error) {
	layers, err := d.appendLayers(nil, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot find the layers below %s: %w", d.Name, err)
	}
	return layers, nil
}

func (d Disk) appendLayers(layers []Layer, depth int) ([]Layer, error) {
	if depth > maxLayers {
		return nil, fmt.Errorf("there are more than %d layers", maxLayers)
	}
	layers = append(layers, Layer{Name: d.Name, Kind: d.kind(), Depth: depth})
	below, err := os.ReadDir(d.path("slaves"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, goneIfMissing(d.Name, err)
	}
	if d.schedules() {
		return layers, nil
	}
	for _, entry := range below {
		disk, err := d.tree.orHost().lookupName(entry.Name())
		if err != nil {
			return nil, err
		}
		if layers, err = disk.appendLayers(layers, depth+1); err != nil {
			return nil, err
		}
	}
	return layers, nil
}

// kind is Layer.Kind.
func (d Disk) kind() string {
	if level, err := d.read("md/level"); err == nil {
		return level
	}
	uuid, err := d.read("dm/uuid")
	if err != nil {
		return ""
	}
	kind, rest, named := strings.Cut(uuid, "-")
	if !named {
		return "dm"
	}
	kind = strings.ToLower(kind)
	if partOfMapped.MatchString(kind) {
		return "part"
	}
	// cryptsetup has its prefix on what does not encrypt, too: dm-integrity writes a journal.
	if of, _, _ := strings.Cut(strings.ToLower(rest), "-"); kind == "crypt" && (of == "integrity" || of == "subdev") {
		return kind + "-" + of
	}
	return kind
}

// partOfMapped matches the prefix that kpartx gives a partition: "part1-mpath-...".
var partOfMapped = regexp.MustCompile(`^part[0-9]+$`)

// Disks lists the whole disks that the kernel knows, by name, virtual ones included.
func Disks() ([]Disk, error) { return Host.Disks() }

// Disks is [Disks] in this tree.
func (t Tree) Disks() ([]Disk, error) {
	entries, err := os.ReadDir(filepath.Join(t.Sys, "block"))
	if err != nil {
		return nil, fmt.Errorf("cannot list the disks: %w", err)
	}
	var disks []Disk
	for _, entry := range entries {
		if disk, err := t.lookupName(entry.Name()); err == nil { // else it was removed just now
			disks = append(disks, disk)
		}
	}
	return disks, nil
}

// PassesPagesOn reports whether what is written to the device reaches the disks below
// in the same pages of memory, so that a write can be recognised there. Encryption,
// parity and the like write copies.
func (d Disk) PassesPagesOn() (bool, error) {
	layers, err := d.Layers()
	if err != nil {
		return false, err
	}
	for _, layer := range layers {
		if !slices.Contains(passingOn, layer.Kind) {
			return false, nil
		}
	}
	return true, nil
}

// CopiesBelow returns the layer of the device that writes copies or blocks of its own to
// the disks, such as "raid5 md0", or "" if none is known to. The kernel charges what such
// a layer writes to the root cgroup, also a container's data.
func (d Disk) CopiesBelow() (string, error) { return d.layerOtherThan(passingOn) }

// DropsFlagsBelow returns the layer of the device whose writes to the disks can lack the
// flags of those that it gets, such as that of metadata (REQ_META): "raid1 md0"; "" if
// none is known to.
func (d Disk) DropsFlagsBelow() (string, error) { return d.layerOtherThan(passingFlagsOn) }

// layerOtherThan returns the first layer of the device that is of no such kind, or that LVM
// has for copies.
func (d Disk) layerOtherThan(kinds []string) (string, error) {
	layers, err := d.Layers()
	if err != nil {
		return "", err
	}
	for _, layer := range layers {
		if !slices.Contains(kinds, layer.Kind) {
			return layer.Kind + " " + layer.Name, nil
		}
		disk, err := d.tree.orHost().lookupName(layer.Name)
		if err != nil {
			return "", err
		}
		if name, err := disk.read("dm/name"); err == nil && partOfCopying.MatchString(name) {
			return "LVM " + name, nil
		}
	}
	return "", nil
}

// partOfCopying matches the names of LVM's hidden volumes below a RAID, a mirror, a
// cache or a compressing volume (lvmraid(7), lvmcache(7), lvmvdo(7)).
var partOfCopying = regexp.MustCompile(`_([rm]image_[0-9]+|corig|wcorig|vdata)$`)

// passingOn are the kinds of layers that pass pages on. What LVM has in a logical
// volume (a cache, a RAID with parity) is not known here.
var passingOn = []string{"", "dm", "lvm", "mpath", "part", "linear", "raid0", "raid1", "raid10", "multipath"}

// passingFlagsOn are the kinds of layers that pass the flags of a write on. In md, raid1
// does so on some kernels only (6.1: no; 7.2: yes).
var passingFlagsOn = []string{"", "dm", "lvm", "crypt", "mpath", "part", "linear", "raid0", "multipath"}
