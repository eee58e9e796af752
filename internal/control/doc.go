// Package control enforces the configured shares of a disk. It reads
// [account.Sample]s and corrects cgroup weights, so that charged I/O, journal,
// in-place metadata and uncharged data together match the ratio of the ideal
// weights (paper 1, section 3.3). If the disk's scheduler does not follow its
// weights, or has none, it sets limits instead.
//
// Two packages below have no state of the host: law computes weights and limits, judge
// says whether they have the effect that they should. The groups of cgroups that compete
// ([Plan]) and the correction of limits are pure functions, too. docs/control-law.md,
// control-scheduler.md and control-limits.md explain them. [Controller] applies them
// through the small interfaces [WeightStore] and [LimitStore]. It saves the original
// settings on disk ([State]) before the first write, so that all settings can be
// restored, also after a kill.
//
// The package reads no tracepoint and no cgroup file, and never changes the scheduler.
package control
