// Package cgroup is what Daybook knows of the kernel's block I/O controller:
// the I/O that each cgroup did, read from its counters, and the weights and
// limits that govern it, written to its files and put exactly back.
//
// cgroup v1 (blkio) and v2 (io) are twins behind one [Tree]: what differs is
// in the v1_*.go and v2_*.go files beside each other, what is the same stands
// once. Paths are those of /proc/PID/cgroup, "/" being the root.
//
// The package knows no container, no journal and no weight law. Cgroups come
// and go at any moment: a cgroup that is gone is [ErrVanished], not a failure.
package cgroup
