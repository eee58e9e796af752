// Package synctime measures in the kernel how long the calls take that sync a
// file on ext4: fsync, fdatasync and synchronous writes, of the threads in one
// cgroup on one file system. A server's own clients see only what it makes of
// them. The BPF program (bpf/, GPL-2.0) adds up a histogram; this package reads
// it.
package synctime
