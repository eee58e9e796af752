// Package journal attributes the file-system journal. It observes jbd2 and the
// block layer through BPF and reports, per commit, the blocks that each cgroup
// dirtied, and, per disk, the bytes by the cgroup that the kernel charged and
// the owner of the file. A journal in memory (ext4nvj, jfsnvj) is attributed as it is
// logged.
//
// Two estimators have one interface ([Estimator]): "handles", exact per
// transaction, and "syscalls", the estimate of paper 1, section 3.2. The BPF
// programs (bpf/, GPL-2.0) sum in the kernel; this package collects and splits
// the sums without losing bytes. It identifies cgroups by kernfs id only:
// package meter adds paths, names and devices.
package journal
