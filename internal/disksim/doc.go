// Package disksim is the embedded disk: a block device whose service times
// are computed, so that experiments come out the same whatever disk the host
// has. A FUSE file answers each read, write and flush when a modelled disk
// would (seek by distance, bandwidth, flush); a loop device with direct I/O
// makes it a block device; BFQ, if the kernel has it, makes weights count.
//
// model.go and schedule.go are the pure model. The file is served by a process
// of its own, because a process that serves a FUSE file and works on it can
// deadlock: [Create] starts the running program once more, which must call
// [ServeIfAsked] first thing in main (or TestMain).
//
// What a disk consists of is recorded before it is made, so that [Recover]
// finds all of it after a kill -9. It is no model of one product, and it keeps
// no data over a crash of the host.
package disksim
