package control

import (
	"fmt"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/systemd"
)

// systemdUnits gives the units of systemd, where it is init and cgroups are of
// version 2; else nil. In version 1, weights are written to the files alone.
func systemdUnits(tree *cgroup.Tree, name string, dev blockdev.Dev, file string) Units {
	if tree.Version() != cgroup.V2 || !systemd.Running() {
		return nil
	}
	return hostUnits{new(systemd.Manager), blockdev.Host, "/dev/" + name, dev, file}
}

// hostUnits are the units of this host's systemd, and their weights on one disk.
type hostUnits struct {
	manager *systemd.Manager
	devices blockdev.Tree
	path    string // of the disk
	dev     blockdev.Dev
	file    string // the weight file
}

func (h hostUnits) Of(weight uint64) uint64 { return systemd.UnitWeight(h.file, weight) }

func (h hostUnits) Find(path string) (string, uint64, error) {
	unit, err := h.manager.Unit(path)
	if err != nil || unit == "" {
		return "", 0, err
	}
	weight, err := h.Weight(unit)
	if err != nil {
		return "", 0, err
	}
	return unit, weight, nil
}

func (h hostUnits) Weight(unit string) (uint64, error) {
	all, err := h.manager.DeviceWeights(unit)
	if err != nil {
		return 0, gone(err)
	}
	var weight uint64
	for _, w := range all {
		if h.isDisk(w.Path) {
			weight = w.Weight
		}
	}
	return weight, nil
}

func (h hostUnits) Set(unit string, weight uint64) error {
	all, err := h.manager.DeviceWeights(unit)
	if err != nil {
		return gone(err)
	}
	path := h.path
	var others []systemd.DeviceWeight
	for _, w := range all {
		if h.isDisk(w.Path) {
			path = w.Path // its own name for the disk
		} else {
			others = append(others, w)
		}
	}
	if weight == 0 {
		return gone(h.manager.ReplaceDeviceWeights(unit, others...))
	}
	return gone(h.manager.SetDeviceWeights(unit, systemd.DeviceWeight{Path: path, Weight: weight}))
}

// isDisk reports whether a path of a unit names the disk. systemd admits any path:
// the disk is that of the file system, of the partition, or below the mapped device.
func (h hostUnits) isDisk(path string) bool {
	if path == h.path {
		return true
	}
	disk, err := h.devices.Lookup(path)
	if err == nil && disk.Dev != h.dev {
		disk, err = disk.Bottom()
	}
	return err == nil && disk.Dev == h.dev
}

// gone gives the end of a unit the name that it has here.
func gone(err error) error {
	if err != nil && systemd.IsGone(err) {
		return fmt.Errorf("%w: %w", ErrVanished, err)
	}
	return err
}
