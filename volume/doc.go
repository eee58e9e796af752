// Package volume gives each container an ext4 of its own, and so a journal and a
// jbd2 thread of its own, which is placed under the container's I/O weight
// (per-container journaling with journal accounting; Mardan and Kono, IEICE
// Transactions E104-D, section 3).
//
// A [Pool] is a directory with the records of volumes, and with their images; [Open]
// opens it, and a [Registry] finds it by the name of a volume. Its operations:
//
//	Create, Delete                      a volume: an image, a device, or a logical volume
//	Attach, Detach                      mount it and place its thread, or undo that
//	AttachAllPersistent                 at the start of the host
//	Resize, Trim, Check                 the size and the file system
//	Snapshot, Clone, DeleteSnapshot     copies, also of a volume in use
//	Send, Receive                       a copy on another host
//	Inspect, List, Overview, Usage      the present state
//	Repair, Forget                      undo or finish what killed processes left
//	Keeper                              keep the threads in their cgroups
//
// Each error matches one of the variables Err... by errors.Is. Each volume has a
// [Record]; the package records describes its fields. A program that calls Snapshot,
// Clone or Send must call [GuardIfAsked] first in main.
//
// An operation is a list of steps with do and undo, which the package operation
// runs. Before a step is done, its intent is recorded. New files are made in the
// pool's work directory, and get their place by one rename. So Repair finds what a
// killed process left, and undoes or finishes the same steps. Daybook changes no
// device, mount or cgroup that no record names. Locks are flocks of directories
// that other users cannot open; the kernel releases those of dead processes.
//
// Imports run one way: this package, with a file for each operation, uses operation,
// placement (which knows nothing of volumes), records, and of internal the packages
// backing (which blocks), journal (where the journal is), mountpoint, stream and store
// (the files of a pool). A test in cmd/daybook checks that.
package volume
