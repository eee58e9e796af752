package iocost

import (
	"fmt"
	"math"
	"time"
)

// DefaultPart is the part of the measured rates that the proposed model has. io.cost does not
// count the journal, so a model of the whole rate lets requests wait in the disk, which knows no
// weights: with it, two volumes had 53:47 in place of 70:30, and with three quarters of the rate
// 70:30 (docs/results/guest-volumes.md).
const DefaultPart = 0.75

// LeastPart is the least part of the measured rates that a model may have.
const LeastPart = 0.1

// Proposal is what Daybook proposes to write for a disk, behind its device number: Model
// into io.cost.model, and then QoS, which enables io.cost, into io.cost.qos.
type Proposal struct{ Model, QoS string }

// Use says for what io.cost divides the disk.
type Use string

const (
	// ForControl: containers share a file system, and control corrects their weights.
	ForControl Use = "control"
	// ForVolumes: each container has file systems of its own, and nothing corrects the weights.
	ForVolumes Use = "volumes"
)

// Uses lists all uses, the default first.
func Uses() []Use { return []Use{ForControl, ForVolumes} }

// Propose returns settings for a disk with measured rates. The model has a part of them,
// LeastPart to 1.
func Propose(measured Coefficients, part float64, use Use) Proposal {
	return Proposal{Model: measured.Times(part).Model(), QoS: QoS(latency(measured, use))}
}

// io.cost computes the length of its period from the latencies of io.cost.qos, twice
// the greater one (ioc_refresh_period_us, block/blk-iocost.c; 1 ms to 1 s). The shorter the
// period is, in times of a large write, the more does io.cost let through beyond its model
// (docs/results/guest-volumes.md). The longer it is, the slower does io.cost follow weights,
// which control corrects each half second (docs/results/guests-io-cost.md).
const (
	largeWriteBytes        = 1 << 20
	latencyOfLargeWrites   = 3.0
	minLatency, maxLatency = 8 * time.Millisecond, 250 * time.Millisecond
)

// latency is that of io.cost.qos for a disk with measured rates, in whole milliseconds.
func latency(measured Coefficients, use Use) time.Duration {
	if use == ForControl {
		return minLatency
	}
	slowest := float64(min(measured.ReadBytesPerSecond, measured.WriteBytesPerSecond))
	milliseconds := math.Ceil(1e3 * latencyOfLargeWrites * largeWriteBytes / slowest)
	return time.Duration(max(float64(minLatency), min(float64(maxLatency), milliseconds*float64(time.Millisecond))))
}

// QoS is the text for io.cost.qos behind the disk's device number, with which io.cost divides
// the disk by its model as the model is. No request has to keep the latency: it only sets the
// length of io.cost's period, which is twice as long, and 1 ms if it is 0.
func QoS(latency time.Duration) string {
	micros := latency.Microseconds()
	return fmt.Sprintf("enable=1 ctrl=user rpct=0 rlat=%d wpct=0 wlat=%d min=100 max=100", micros, micros)
}
