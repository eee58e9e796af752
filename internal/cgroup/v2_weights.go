package cgroup

import (
	"fmt"
	"path/filepath"
)

// weightRule: on v2 the scheduler shares by weight, or io.cost, which works
// under any scheduler once it is enabled for the disk.
func (v2) weightRule(t *Tree, d disk) (weightRule, error) {
	ioWeight := weightRule{
		min: 1, max: 10000, def: 100,
		deviceFile:  "io.weight",
		defaultFile: "io.weight",
		remove:      "default",
	}
	switch d.scheduler {
	case "bfq":
		return weightRule{
			min: 1, max: 1000, def: 100,
			deviceFile:  "io.bfq.weight",
			defaultFile: "io.bfq.weight",
			remove:      "default",
			sticky:      true,
		}, nil
	case "cfq":
		return ioWeight, nil
	}
	qos, err := t.read(RootPath, v2CostQoS)
	if err == nil && parseCostEnabled(qos, d.dev) {
		return ioWeight, nil
	}
	advice := fmt.Sprintf("choose BFQ: %s", d.choose("bfq"))
	if err == nil {
		advice += fmt.Sprintf("; or enable io.cost: echo '%s enable=1' > %s", d.dev, filepath.Join(t.root, v2CostQoS))
	}
	return weightRule{}, fmt.Errorf("%w: its scheduler is %s, which knows no weights; %s", ErrNoWeights, d.scheduler, advice)
}

const v2CostQoS = "io.cost.qos"
