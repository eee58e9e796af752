// Package volume gives each container a disk of its own: an image file in a
// pool directory, under a loop device with direct I/O, or a block device of the
// host, such as a logical volume; with its own ext4 and so its own jbd2 thread,
// which is placed under the container's I/O weight (per-container journaling with
// journal accounting; Mardan and Kono, IEICE Transactions E104-D, section 3).
//
// A Pool is a directory. All that it knows is in it:
//
//	daybook-pool.json         what the pool is
//	docker.json, docker.lock  the Docker plugin's
//	volumes/NAME/volume.json  the record of a volume
//	volumes/NAME/image        its disk, unless it is a block device
//	volumes/NAME/superblock   what it was, while e2fsprogs is at work
//	volumes/NAME/snapshots/   SNAP/snapshot.json and SNAP/image
//	work/ID/                  what is being made or deleted
//
// Every step that leaves something behind on the host (a loop device, a mount,
// a cgroup) is recorded before it is done, and what is made in the pool is made
// under work/ and appears in one rename. So after a kill at any instruction
// [Pool.Repair] finds all of it. Locks are flocks of directories that other users
// cannot open; the kernel takes them back from the dead.
//
// Nothing is done to a loop device, mount or cgroup that no record names.
package volume
