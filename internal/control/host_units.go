package control

import (
	"fmt"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/systemd"
)

// serviceManager is that of all disks: what one control learns of its silence holds for all.
var serviceManager systemd.Manager

// systemdUnits returns the units of systemd if it is init and the cgroups are of
// version 2; else nil. In version 1, weights are written only to the files.
func systemdUnits(tree *cgroup.Tree, name string, dev blockdev.Dev, file string) Units {
	if tree.Version() != cgroup.V2 || !systemd.Running() {
		return nil
	}
	return hostUnits{systemd.DiskWeights{
		Manager: &serviceManager, Devices: blockdev.Host, Path: "/dev/" + name, Dev: dev, File: file,
	}}
}

// hostUnits are the units of this host's systemd, and their weights on one disk.
type hostUnits struct{ weights systemd.DiskWeights }

func (h hostUnits) Await() (end func()) { return h.weights.Manager.Await() }

func (h hostUnits) Of(weight uint64) uint64 { return h.weights.Of(weight) }

func (h hostUnits) Find(path string) (string, uint64, error) {
	unit, err := h.weights.Manager.Unit(path)
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
	weight, err := h.weights.Get(unit)
	return weight, gone(err)
}

func (h hostUnits) Set(unit string, weight uint64) error { return gone(h.weights.Set(unit, weight)) }

// gone returns ErrVanished for an error of a unit that has ended.
func gone(err error) error {
	if err != nil && systemd.IsGone(err) {
		return fmt.Errorf("%w: %w", ErrVanished, err)
	}
	return err
}
