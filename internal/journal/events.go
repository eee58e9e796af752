package journal

// RootCgroupID is the kernfs id of a hierarchy's root cgroup.
const RootCgroupID = 1

// Events are the events that the kernel side saw since the last collection.
type Events struct {
	// Commits are in the order in which they ended.
	Commits []Commit
	// Writes are sums over the interval.
	Writes []Write
	// Logs are sums over the interval; only while journals in memory are
	// followed ([Probe.FollowNVJournal]).
	Logs []Log
	// Calls are sums over the interval; only with the syscalls probe.
	Calls []Call
	// Lost is the number of events that the kernel side had no space for, and of those for
	// which the kernel did not run a program.
	Lost uint64
	// OwnersForgotten is the number of inodes whose owner the kernel side
	// evicted, because more were changed than its map holds. docs/accounting.md
	// describes its accuracy.
	OwnersForgotten uint64
}

// Filesystem is one mounted file system. Another one that is mounted later from
// the same device, also after the device's number was given to another disk,
// has another instance.
type Filesystem struct {
	// Dev is the device, as a kernel dev_t (major<<20|minor).
	Dev uint32
	// Instance is the number of file systems that were mounted from the device
	// since the probe was opened, modulo 2^24.
	Instance uint32
}

// After reports whether f was mounted later from the same device.
func (f Filesystem) After(other Filesystem) bool {
	const bits = 24
	return int32((f.Instance-other.Instance)<<(32-bits)) > 0
}

// Commit is one jbd2 transaction that reached the journal.
type Commit struct {
	// Dev is the device of the file system, as a kernel dev_t
	// (major<<20|minor), and Instance its instance on that device.
	Dev, Instance uint32
	// JournalDisk is the disk of its journal, a kernel dev_t; 0 if no write was
	// seen.
	JournalDisk uint32
	// Tid is jbd2's transaction number.
	Tid uint32
	// Partial means that the commit has not ended. JournalBytes is the number
	// of bytes so far, which the record of its end does not contain again.
	// Numbers that are known only at the end are 0.
	Partial bool
	// BlocksLogged is jbd2's own count (jbd2_run_stats), in file-system
	// blocks, without revoke descriptors and journal superblock writes.
	BlocksLogged uint32
	// Handles is the number of handles that joined it.
	Handles uint32
	// JournalBytes is the exact number of bytes that the jbd2 thread submitted
	// for it.
	JournalBytes uint64
	// DurationSeconds is from the start of the commit to its end.
	DurationSeconds float64
	// ForcedBy is the cgroup whose sync started it; 0 for the timer of jbd2 or
	// a full journal.
	ForcedBy uint64
	// Dirtied is blocks by cgroup; a value can be negative (jbd2_journal_forget
	// returns credits).
	Dirtied map[uint64]int64
	// Combined is not nil if it is the sum of several commits ([Events.Combine]). Dirtied is
	// then bytes in place of blocks, and Tid the last one.
	Combined *Combined
}

// Combined says how many commits are one.
type Combined struct {
	// Commits have ended. DurationSeconds is the sum of Timed of them; the others had
	// started before the probe.
	Commits, Timed uint64
	// Forced are those that a sync of a cgroup started.
	Forced map[uint64]uint64
	// Logged is how the blocks that they logged are divided, in bytes as if a block had 4096.
	// Dirtied does not say that: of a commit it has no bytes that were returned before its end.
	Logged map[uint64]int64
}

// Filesystem is the file system of the transaction.
func (c Commit) Filesystem() Filesystem { return Filesystem{c.Dev, c.Instance} }

// Kind is the kind of a Write.
type Kind uint32

// The kinds of writes; the same as in bpf/bios.h.
const (
	// KindJournal is the writes of jbd2 threads, by charged cgroup.
	KindJournal Kind = 1
	// KindMetadata is the block device's own pages, by charged cgroup.
	KindMetadata Kind = 2
	// KindData is file data charged to the root cgroup, by owner.
	KindData Kind = 3
	// KindChargedRead and KindChargedWrite are all I/O by charged cgroup.
	KindChargedRead  Kind = 4
	KindChargedWrite Kind = 5
	// KindOutstanding is the time in which requests were outstanding, by
	// charged cgroup, in nanoseconds instead of bytes.
	KindOutstanding Kind = 6
	// KindBusy is the time with at least one request outstanding, as far as they
	// ended, by charged cgroup and in nanoseconds.
	KindBusy Kind = 7
	// KindFlush is the time of the cache flushes that were charged to a cgroup, by charged
	// cgroup and in nanoseconds.
	KindFlush Kind = 8
)

// Write is a sum of bytes on one disk.
type Write struct {
	// Disk is the kernel dev_t of the whole disk.
	Disk uint32
	Kind Kind
	// Charged is the cgroup that the kernel charged.
	Charged uint64
	// Owner is the cgroup that owns the inode; only for KindData, else 0.
	Owner uint64
	// Of is the device of the pages (kernel dev_t), and OfInstance its file
	// system; only for KindMetadata, else 0. It differs from Disk for a
	// partition, for a mapped device, and below a loop device with direct I/O,
	// which passes its pages on.
	Of, OfInstance uint32
	// Bytes is in nanoseconds for KindOutstanding, KindBusy and KindFlush.
	Bytes uint64
}

// Filesystem is the file system of the written pages.
func (w Write) Filesystem() Filesystem { return Filesystem{w.Of, w.OfInstance} }

// Log is the use of the journal of one ext4nvj or jfsnvj by a cgroup. The
// journal is in memory: only checkpoints write to a disk.
type Log struct {
	// Dev is the device of the file system, as a kernel dev_t, and Instance its
	// instance on that device.
	Dev, Instance uint32
	Cgroup        uint64
	// Bytes is the exact number of bytes that its handles logged, in lines of
	// 64 bytes, including headers. Blocks is the number of their blocks,
	// counted once for each handle.
	Bytes, Blocks uint64
	Handles       uint64
	// Commits is the number of commits it made itself. Forced is the number of
	// them made by a process and not by a kernel thread, periodically or for
	// space.
	Commits, Forced uint64
}

// Filesystem is the file system that was logged.
func (l Log) Filesystem() Filesystem { return Filesystem{l.Dev, l.Instance} }
