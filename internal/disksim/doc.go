// Package disksim is the simulated disk: a block device with computed service
// times, so that the results of experiments do not depend on the host's disk. A
// FUSE file answers each read, write and flush when a modelled disk would (seek
// by distance, bandwidth, flush). A loop device with direct I/O makes it a
// block device. BFQ, if the kernel has it, divides it by weights.
//
// model.go and schedule.go are the pure model. A separate process serves the
// file, because a process that serves a FUSE file and uses it can deadlock:
// [Create] starts the running program once more, which must call [ServeIfAsked]
// first in main (or TestMain).
//
// Each part of a disk is recorded before it is made, so that [Recover] finds
// all of it after a kill -9. It is not the model of a product, and its data
// does not survive a crash of the host.
package disksim
