// Package fio runs fio (the flexible I/O tester) as the load of an experiment:
// sequential writers in a cgroup, with a sync after a number of writes. The
// three neighbours of paper 2, section 2.4, are such loads: [NoFsync],
// [LowFsync] and [HighFsync].
//
// The figures are those in fio's JSON; this package measures nothing.
package fio
