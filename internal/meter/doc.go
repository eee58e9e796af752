// Package meter makes the account. Every interval it combines the readings of
// the journal probe, the disks, the cgroups and the container names into an
// account.Sample.
//
// The book (book.go) is a pure function of those readings and a small state;
// the readings are taken in meter.go, filesystems.go and units.go. The meter
// only reads: it writes to no cgroup, scheduler or device.
package meter
