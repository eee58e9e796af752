// Package cgroup wraps the kernel's block I/O controller. It reads the I/O of
// each cgroup from its counters, writes weights and limits, and restores them
// exactly.
//
// cgroup v1 (blkio) and v2 (io) share one type, [Tree]. The differences are in
// the v1_*.go and v2_*.go files; common code exists once. Paths are those of
// /proc/PID/cgroup, "/" is the root.
//
// The package knows no container, no journal and no weight law. Cgroups come
// and go at any time: a cgroup that is gone is [ErrVanished], not a failure.
package cgroup
