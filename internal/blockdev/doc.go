// Package blockdev wraps what the kernel says and takes about block devices:
// /sys/block (counters, queue, I/O scheduler), /proc/self/mountinfo (which
// file system lies on which disk) and the loop devices' ioctls.
//
// A [Disk] is always a whole disk, because counters, schedulers and weights
// belong to whole disks; [Lookup] takes what a user may write (a name, a node
// in /dev, a mount point, a device number) and resolves partitions.
//
// Reading is free of side effects. Nothing here chooses a scheduler or changes
// a device by itself; callers do so on disks they made or were told to change.
package blockdev
