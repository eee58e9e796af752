// Package shares measures how well control holds the shares of a disk in every one of
// many runs, not in one: queue depths, readers, writers, numbers of containers,
// storms of metadata, tunables of BFQ, and weights or limits.
//
// The pure parts are the plan (plan.go), the figures of a run (figures.go), the summary
// of the runs and their goals (summary.go). Each run is a process of its own, so that
// several disks can be measured side by side (lanes.go).
package shares
