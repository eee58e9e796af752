package cgroup

import "fmt"

// weightRule: on v1 only the scheduler shares by weight, BFQ or, before 5.0,
// CFQ.
func (v1) weightRule(_ *Tree, d disk) (weightRule, error) {
	switch d.scheduler {
	case "bfq":
		return weightRule{
			min: 1, max: 1000, def: 100,
			deviceFile:  "blkio.bfq.weight_device", // since 5.4
			defaultFile: "blkio.bfq.weight",
			remove:      "default",
			sticky:      true,
		}, nil
	case "cfq":
		return weightRule{
			min: 10, max: 1000, def: 500,
			deviceFile:  "blkio.weight_device",
			defaultFile: "blkio.weight",
			remove:      "0",
		}, nil
	}
	return weightRule{}, fmt.Errorf("%w: its scheduler is %s, which knows no weights; choose BFQ: %s",
		ErrNoWeights, d.scheduler, d.choose("bfq"))
}
