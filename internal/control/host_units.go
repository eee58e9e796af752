package control

import (
	"errors"
	"fmt"
	"time"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/systemd"
)

// stepPatience bounds a call of a step to a systemd that answered the last one: the weights of
// other containers wait meanwhile, and so does the end of control.
const stepPatience = 500 * time.Millisecond

// serviceManager is that of all disks: what one control learns of its silence holds for all.
var serviceManager = systemd.Manager{Patience: stepPatience}

// systemdUnits returns the units of systemd if it is init and the cgroups are of
// version 2; else nil. In version 1, weights are written only to the files.
func systemdUnits(tree *cgroup.Tree, name string, dev blockdev.Dev, file string) Units {
	if tree.Version() != cgroup.V2 || !systemd.Running() {
		return nil
	}
	return hostUnits{systemd.DiskWeights{
		Manager: &serviceManager, Devices: blockdev.Host, Path: blockdev.NodeOf(name), Dev: dev, File: file,
	}}
}

// writtenBySystemd is Host.WrittenBySystemd of this host.
func writtenBySystemd(tree *cgroup.Tree) func(cgroup string) bool {
	if tree.Version() != cgroup.V1 || !systemd.Running() {
		return nil
	}
	return systemd.NamedLikeUnit
}

// hostUnits are the units of this host's systemd, and their weights on one disk.
type hostUnits struct{ weights systemd.DiskWeights }

func (h hostUnits) Await() (end func()) { return h.weights.Manager.Await() }

func (h hostUnits) Of(weight uint64) uint64 { return h.weights.Of(weight) }

func (h hostUnits) Find(path string) (string, uint64, error) {
	unit, err := h.weights.Manager.Unit(path)
	if err != nil || unit == "" {
		return "", 0, unitError(err)
	}
	weight, err := h.Weight(unit)
	if err != nil {
		return "", 0, err
	}
	return unit, weight, nil
}

func (h hostUnits) Weight(unit string) (uint64, error) {
	weight, err := h.weights.Get(unit)
	return weight, unitError(err)
}

func (h hostUnits) Set(unit string, weight uint64) error {
	return unitError(h.weights.Set(unit, weight))
}

// unitError returns ErrVanished for an error of a unit that has ended, and errBusy for one of
// a systemd that may answer soon.
func unitError(err error) error {
	switch {
	case err == nil:
		return nil
	case systemd.IsGone(err):
		return fmt.Errorf("%w: %w", ErrVanished, err)
	case errors.Is(err, systemd.ErrBusy):
		return fmt.Errorf("%w: %w", errBusy, err)
	}
	return err
}
