package cgroup

import "fmt"

// v1Weights are the weight files of v1, by the scheduler that uses them: BFQ
// or, before 5.0, CFQ.
var v1Weights = map[string]weightRule{
	"bfq": {
		min: 1, max: 1000, def: 100,
		deviceFile:  "blkio.bfq.weight_device", // since 5.4
		defaultFile: "blkio.bfq.weight",
		remove:      "default",
		sticky:      true,
	},
	"cfq": {
		min: 10, max: 1000, def: 500,
		deviceFile:  "blkio.weight_device",
		defaultFile: "blkio.weight",
		remove:      "0",
	},
}

func (v1) weightRules() map[string]weightRule { return v1Weights }

// weightRule: on v1 only a scheduler divides a disk by weight.
func (v1) weightRule(_ *Tree, d disk) (weightRule, error) {
	if rule, known := v1Weights[d.scheduler]; known {
		return rule, nil
	}
	return weightRule{}, fmt.Errorf("%w: its scheduler is %s, which has no weights; choose BFQ: %s",
		ErrNoWeights, d.scheduler, d.choose("bfq"))
}
