// Package synctime measures in the kernel the duration of the calls that sync a
// file on ext4: fsync, fdatasync and synchronous writes, of the threads in one
// cgroup on one file system. The clients of a server see only its own replies.
// The BPF program (bpf/, GPL-2.0) fills a histogram, which this package reads.
package synctime
