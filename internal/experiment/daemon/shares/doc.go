// Package shares measures how well control enforces the shares of a disk in each of
// many runs. The runs differ in queue depth, readers, writers, the number of
// containers, storms of metadata, tunables of BFQ, and weights or limits.
//
// The pure parts are the plan (plan.go), the figures of a run (figures.go), the summary
// of the runs and their goals (summary.go). Each run is a process of its own, so that
// several disks can be measured side by side (lanes.go).
package shares
