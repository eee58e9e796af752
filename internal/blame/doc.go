// Package blame measures how long calls wait for the journal of ext4, and who
// caused it. Its BPF programs (bpf/, GPL-2.0) measure syncs and the starts of
// handles, the phases of the commits that they wait for, and what the commits
// wait for. [Ledger], a pure part, divides each phase among those who caused it:
// the sum of the parts is the measured time.
//
// Nothing is attached until a [Probe] is opened. Who dirtied the blocks of a
// transaction, and who owns an inode, is known from package journal, by its
// commits and its probe. Like that package, this one identifies cgroups by
// kernfs id.
package blame
