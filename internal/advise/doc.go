// Package advise predicts what a remedy would give to a container that waits for the
// journal of a shared ext4: its throughput of syncs, and their p50 and p99. [Predict]
// is a pure function of one measured interval. docs/advise-model.md has its equations.
package advise
