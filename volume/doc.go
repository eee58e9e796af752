// Package volume gives each container an ext4 of its own, and so a journal and a
// jbd2 thread of its own, which is placed under the container's I/O weight
// (per-container journaling with journal accounting; Mardan and Kono, IEICE
// Transactions E104-D, section 3).
//
// A [Pool] is a directory with all that Daybook knows of its volumes; [Open] opens
// it, and a [Registry] finds it by the name of a volume. These are its operations:
//
//	Create, Delete                      a volume: an image, a device, or a logical volume
//	Attach, Detach                      mount it and place its thread, or undo that
//	AttachAllPersistent                 at the start of the host
//	Resize, Trim, Check                 the size and the file system
//	Snapshot, Clone, DeleteSnapshot     copies, also of a volume at work
//	Send, Receive                       a copy on another host
//	Inspect, List, Overview, Usage      what is so now
//	Repair                              undo or finish what killed processes have left
//	Keeper                              keep the threads where they belong
//
// Each error is one of the variables Err..., by errors.Is. A volume has a [Record];
// what may be in it is in the package records. A program that calls Snapshot, Clone
// or Send calls [GuardIfAsked] first in main.
//
// An operation is a list of steps with do and undo, which the package operation
// runs: before a step is done, what it will change is recorded; what is made in the
// pool is made in its work directory, and appears in one rename. So after a kill at
// any instruction Repair finds all of it, and undoes the same steps. Nothing is done
// to a device, mount or cgroup that no record names. Locks are flocks of directories
// that other users cannot open; the kernel releases those of dead processes.
//
// Imports run one way: this package uses operation, placement (which knows nothing
// of volumes), records, and internal/backing (which blocks), internal/stream and
// internal/store (the files of a pool).
package volume
