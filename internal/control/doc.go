// Package control enforces the configured shares of a disk: it reads
// [account.Sample]s and corrects cgroup weights so that charged I/O, journal,
// in-place metadata and uncharged data together match the ratio of the ideal
// weights (paper 1, section 3.3). Where the disk's scheduler does not follow its
// weights, or has none, it sets limits instead.
//
// The laws ([Paper], [Feedback], [LimitLaw]), the plan of who competes with whom ([Plan])
// and the limit correction are pure functions of values. [Controller] applies
// them through the small interfaces [WeightStore] and [LimitStore], with the
// original settings on disk ([State]) before the first write, so that every
// setting can be restored after any death.
//
// It reads no tracepoint and no cgroup file, and never changes the scheduler.
package control
