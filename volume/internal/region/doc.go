// Package region divides a region of persistent memory, such as /dev/pmem0, into slices
// for the journals of volumes. The first MiB of the region has the table of slices, in two
// copies with checksums. Slices are reserved and freed while others are mounted.
//
// The table decides where a slice is. A record of a volume only names its slice, so a
// stale record cannot make a repair wipe memory that others use by now.
package region
