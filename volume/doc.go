// Package volume gives each container its own file system, ext4 or JFS, and so its own
// journal. The journal's kernel thread is placed in a cgroup under the container's I/O
// weight (per-container journaling with journal accounting; Mardan and Kono, IEICE
// Transactions E104-D, section 3).
//
// A [Pool] is a directory with the records of volumes, and with their images; [Open]
// opens it, and a [Registry] finds it by the name of a volume. Its operations:
//
//	Create, Delete                      make or delete a volume: image, device or logical volume
//	Attach, Detach                      mount it and place its thread, or undo that
//	AttachAllPersistent                 attach all persistent volumes, at boot
//	Resize, Trim, Check                 change its size, discard free blocks, check its file system
//	Snapshot, Clone, DeleteSnapshot     copy it, also while it is in use
//	Send, Receive                       copy it to another host
//	Inspect, List, Overview, Usage      report its state
//	Repair, Forget                      undo or finish operations of killed processes
//	Keeper                              keep the threads in their cgroups
//
// Each error matches one of the variables Err... by errors.Is. Each volume has a
// [Record]; the package records describes its fields. A program that calls Snapshot,
// Clone or Send must call [GuardIfAsked] first in main.
//
// An operation is a list of steps with do and undo, which the package operation
// runs. Before a step is done, its intent is recorded. New files are made in the
// pool's work directory, and moved to their place by one rename. So Repair finds the
// steps of a killed process, and undoes or finishes them. Daybook changes only
// devices, mounts and cgroups that a record names. Locks are flocks of directories
// that other users cannot open; the kernel releases those of dead processes.
//
// Imports run one way: this package, with a file for each operation, uses operation,
// placement (which knows nothing of volumes), records, and of internal the packages
// backing (which blocks), filesystem (ext4 or JFS), journal (where the journal is),
// region (slices in memory), mountpoint, freezeguard (the process that freezes and thaws),
// stream and transfer (send and receive) and store (the files of a pool). A test in
// cmd/daybook checks that. What works on a volume whose lock is held is a method of held; a
// [Pool] has what concerns the pool.
package volume
