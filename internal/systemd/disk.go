package systemd

import (
	"github.com/daybook-project/daybook/internal/blockdev"
)

// DiskWeights are the weights of units on one disk (IODeviceWeight=), until the next
// boot.
type DiskWeights struct {
	Manager *Manager
	Devices blockdev.Tree
	Path    string // of the disk, such as /dev/sda
	Dev     blockdev.Dev
	File    string // the weight file, such as io.bfq.weight
}

// Of is the unit's weight that becomes weight in the cgroup's file.
func (d DiskWeights) Of(weight uint64) uint64 { return UnitWeight(d.File, weight) }

// Get is a unit's weight on the disk, 0: none. systemd answers after it has applied
// earlier changes.
func (d DiskWeights) Get(unit string) (uint64, error) {
	all, err := d.Manager.DeviceWeights(unit)
	if err != nil {
		return 0, err
	}
	var weight uint64
	for _, w := range all {
		if d.isDisk(w.Path) {
			weight = w.Weight
		}
	}
	return weight, nil
}

// Set makes weight the unit's weight on the disk; 0 takes it away. The unit's weights
// on other disks stay. The cgroup's files follow soon.
func (d DiskWeights) Set(unit string, weight uint64) error {
	all, err := d.Manager.DeviceWeights(unit)
	if err != nil {
		return err
	}
	weights, whole := d.with(all, weight)
	if whole {
		return d.Manager.ReplaceDeviceWeights(unit, weights...)
	}
	return d.Manager.SetDeviceWeights(unit, weights...)
}

// with returns what to set so that a unit with all these weights has this one on the disk. If
// whole is true, it replaces them all: to remove one, or because several paths name the disk,
// as after somebody has set the unit's weight by another path than Daybook. The last counts.
func (d DiskWeights) with(all []DeviceWeight, weight uint64) (weights []DeviceWeight, whole bool) {
	path, names := d.Path, 0
	for _, w := range all {
		if d.isDisk(w.Path) {
			path = w.Path // its own name for the disk
			names++
		} else {
			weights = append(weights, w)
		}
	}
	if weight == 0 {
		return weights, true
	}
	one := DeviceWeight{Path: path, Weight: weight}
	if names > 1 {
		return append(weights, one), true
	}
	return []DeviceWeight{one}, false
}

// isDisk reports whether a path of a unit names the disk. systemd admits any path:
// the disk is that of the file system, of the partition, or below the mapped device.
func (d DiskWeights) isDisk(path string) bool {
	if path == d.Path {
		return true
	}
	disk, err := d.Devices.Lookup(path)
	if err == nil && disk.Dev != d.Dev {
		disk, err = disk.Bottom()
	}
	return err == nil && disk.Dev == d.Dev
}
