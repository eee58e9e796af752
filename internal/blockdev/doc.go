// Package blockdev wraps the kernel's interfaces to block devices: /sys/block
// (counters, queue, I/O scheduler), /proc/self/mountinfo (the disk of each file
// system) and the ioctls of loop devices.
//
// A [Disk] is always a whole disk, because counters, schedulers and weights
// belong to whole disks; [Lookup] accepts what a user may write (a name, a node
// in /dev, a mount point, a device number) and resolves partitions.
//
// Reading has no side effects. The package itself chooses no scheduler and
// changes no device; callers do so on disks that they made or were told to
// change.
package blockdev
