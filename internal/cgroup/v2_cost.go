package cgroup

import (
	"fmt"

	"github.com/daybook-project/daybook/internal/blockdev"
)

// The files of io.cost, in the root cgroup only (Documentation/admin-guide/cgroup-v2.rst,
// "IO Interface Files").
const (
	v2CostQoS   = "io.cost.qos"
	v2CostModel = "io.cost.model"
)

// Cost is how io.cost is set up for one disk. The zero value is a disk that it
// leaves alone.
type Cost struct {
	// Enabled: io.cost shares the disk by io.weight.
	Enabled bool
	// OwnModel: the operator has said what the disk can do (ctrl=user); else
	// the kernel takes a disk of its own tables for it.
	OwnModel bool
}

// Cost reads how io.cost is set up for a disk. The error wraps unix.ENOENT
// where the kernel has no io.cost or the hierarchy is v1.
func (t *Tree) Cost(dev blockdev.Dev) (Cost, error) {
	content, err := t.read(RootPath, v2CostQoS)
	if err != nil {
		return Cost{}, err
	}
	cost := Cost{Enabled: parseKeys(content, dev)["enable"] == "1"}
	if !cost.Enabled {
		return cost, nil
	}
	if content, err = t.read(RootPath, v2CostModel); err != nil {
		return Cost{}, fmt.Errorf("cannot tell what io.cost takes the disk for: %w", err)
	}
	cost.OwnModel = parseKeys(content, dev)["ctrl"] == "user"
	return cost, nil
}
