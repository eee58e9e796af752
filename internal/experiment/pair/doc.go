// Package pair measures the load of one container beside its neighbour. The two share a
// simulated disk, or a loop device, in one of the arrangements of paper 2.
//
// [Measure] makes both containers and their file systems, runs the load beside each
// neighbour, and removes everything. What is compared, and with which bounds, is up to the
// experiments.
package pair
