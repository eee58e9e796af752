// Package journal attributes the file-system journal: it watches jbd2 and the
// block layer through BPF and says, per commit, which cgroup dirtied how much
// of it, and, per disk, in whose name and for whose files it was written. A
// journal in memory (ext4nvj) is attributed as it is logged.
//
// Two estimators share one shape ([Estimator]): "handles", exact by
// transaction, and "syscalls", the estimate of paper 1, section 3.2. The BPF
// programs (bpf/, GPL-2.0) add up in the kernel; this package drains, splits
// and conserves. It knows cgroups by kernfs id only: paths, names and devices
// are put on by package meter.
package journal
