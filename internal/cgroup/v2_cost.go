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

// Cost is the configuration of io.cost for one disk. The zero value means that
// io.cost does not control the disk.
type Cost struct {
	// Enabled means that io.cost divides the disk by io.weight.
	Enabled bool
	// OwnModel means that the operator configured the model of the disk
	// (ctrl=user); otherwise the kernel uses one of its own tables.
	OwnModel bool
}

// Cost reads the configuration of io.cost for a disk. The error wraps
// unix.ENOENT if the kernel has no io.cost or the hierarchy is v1.
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
		return Cost{}, fmt.Errorf("cannot read the model that io.cost uses for the disk: %w", err)
	}
	cost.OwnModel = parseKeys(content, dev)["ctrl"] == "user"
	return cost, nil
}
