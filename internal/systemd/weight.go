package systemd

// Weights of units (IOWeight=, IODeviceWeight=), from 1 to 10000.
const (
	defaultWeight = 100
	minWeight     = 1
	maxWeight     = 10_000
)

// bfqStep is by how much a unit's weight above 100 must grow until BFQ's weight
// grows by 1: systemd maps 100..10000 to 100..1000 (BFQ_WEIGHT in cgroup-util.h).
const bfqStep = 11

// bfqWeight is what systemd writes to io.bfq.weight for a unit's weight.
func bfqWeight(weight uint64) uint64 {
	if weight <= defaultWeight {
		return weight
	}
	return defaultWeight + (weight-defaultWeight)/bfqStep
}

// UnitWeight is the least weight of a unit for which systemd writes weight to a
// weight file. There is one for each weight that the file takes: 1 to 1000 of
// io.bfq.weight, 1 to 10000 of io.weight, which gets the unit's weight unchanged.
func UnitWeight(file string, weight uint64) uint64 {
	if file != bfqFile || weight <= defaultWeight {
		return min(max(weight, minWeight), maxWeight)
	}
	return min(defaultWeight+(weight-defaultWeight)*bfqStep, maxWeight)
}

const bfqFile = "io.bfq.weight"
