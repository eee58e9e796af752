package cgroup

import (
	"fmt"
	"path/filepath"
)

// ioWeight is the weight file of io.cost, and of CFQ before 5.0.
var ioWeight = weightRule{
	min: 1, max: 10000, def: 100,
	deviceFile:  "io.weight",
	defaultFile: "io.weight",
	remove:      "default",
}

// v2Weights are the weight files of v2, by the scheduler or controller that
// uses them.
var v2Weights = map[string]weightRule{
	"bfq": {
		min: 1, max: 1000, def: 100,
		deviceFile:  "io.bfq.weight",
		defaultFile: "io.bfq.weight",
		remove:      "default",
		sticky:      true,
	},
	"cfq":     ioWeight,
	"io.cost": ioWeight,
}

func (v2) weightRules() map[string]weightRule { return v2Weights }

// weightRule: on v2 a scheduler divides the disk by weight, or io.cost, which
// works under any scheduler once it is enabled for the disk.
func (v2) weightRule(t *Tree, d disk) (weightRule, error) {
	if rule, known := v2Weights[d.scheduler]; known {
		return rule, nil
	}
	cost, err := t.Cost(d.dev)
	if err == nil && cost.Enabled {
		return ioWeight, nil
	}
	advice := fmt.Sprintf("choose BFQ: %s", d.choose("bfq"))
	if err == nil {
		advice += fmt.Sprintf("; or enable io.cost: echo '%s enable=1' > %s", d.dev, filepath.Join(t.root, v2CostQoS))
	}
	return weightRule{}, fmt.Errorf("%w: its scheduler is %s, which has no weights; %s", ErrNoWeights, d.scheduler, advice)
}
