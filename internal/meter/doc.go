// Package meter makes the account: every interval it takes what the journal
// probe saw, what the disks did and which cgroups and containers there are,
// and puts them together as an account.Sample.
//
// The book (book.go) is a pure function of those readings and a small memory;
// reading them is at the edge (meter.go, filesystems.go, units.go). The meter
// only reads: it writes to no cgroup, scheduler or device.
package meter
