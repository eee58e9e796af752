package journal

// RootCgroupID is the kernfs id of a hierarchy's root cgroup.
const RootCgroupID = 1

// Events is what the kernel side saw since it was last collected.
type Events struct {
	// Commits in the order in which they ended.
	Commits []Commit
	// Writes are sums over the interval.
	Writes []Write
	// Logs are sums over the interval; only of what is followed
	// ([Probe.FollowNVJournal]).
	Logs []Log
	// Calls are sums over the interval; only with the syscalls probe.
	Calls []Call
	// Lost counts events that the kernel side had no room for.
	Lost uint64
	// OwnersForgotten counts the inodes whose owner the kernel side forgot,
	// because more were changed than it remembers. See docs/accounting.md for
	// how exact that is.
	OwnersForgotten uint64
}

// Filesystem is one mounted file system: another that is mounted from the same
// device later, also after the device's number was given to another disk, has
// another instance.
type Filesystem struct {
	// Dev is the device, as a kernel dev_t (major<<20|minor).
	Dev uint32
	// Instance counts the file systems that were mounted from the device since
	// the probe was opened, modulo 2^24.
	Instance uint32
}

// After says whether f was mounted later from the same device.
func (f Filesystem) After(other Filesystem) bool {
	const bits = 24
	return int32((f.Instance-other.Instance)<<(32-bits)) > 0
}

// Commit is one jbd2 transaction that reached the journal.
type Commit struct {
	// Dev is the file system's device, as a kernel dev_t (major<<20|minor), and
	// Instance which of that device's it is.
	Dev, Instance uint32
	// JournalDisk is the disk its journal was written to, a kernel dev_t;
	// 0 where no write was seen.
	JournalDisk uint32
	// Tid is jbd2's transaction number.
	Tid uint32
	// Partial says that the commit has not ended: JournalBytes is what it
	// wrote so far and is not in the record of its end; the numbers that
	// are only known then are 0.
	Partial bool
	// BlocksLogged is jbd2's own count (jbd2_run_stats), in file-system
	// blocks, without revoke descriptors and journal superblock writes.
	BlocksLogged uint32
	// Handles is the number of handles that joined it.
	Handles uint32
	// JournalBytes is what the jbd2 thread submitted for it: exact.
	JournalBytes uint64
	// DurationSeconds is from the start of the commit to its end.
	DurationSeconds float64
	// ForcedBy is the cgroup whose sync started it; 0 for jbd2's own timer
	// or a full journal.
	ForcedBy uint64
	// Dirtied is blocks by cgroup; a value can be negative
	// (jbd2_journal_forget gives credits back).
	Dirtied map[uint64]int64
}

// Filesystem is the one whose transaction it is.
func (c Commit) Filesystem() Filesystem { return Filesystem{c.Dev, c.Instance} }

// Kind says what a Write is.
type Kind uint32

// The kinds of writes; as in bpf/maps.h.
const (
	// KindJournal is what jbd2 threads logged, by charged cgroup.
	KindJournal Kind = 1
	// KindMetadata is the block device's own pages, by charged cgroup.
	KindMetadata Kind = 2
	// KindData is file data written in the root cgroup's name, by owner.
	KindData Kind = 3
	// KindChargedRead and KindChargedWrite are all I/O by charged cgroup.
	KindChargedRead  Kind = 4
	KindChargedWrite Kind = 5
	// KindOutstanding is how long requests were outstanding, by charged
	// cgroup, in nanoseconds instead of bytes.
	KindOutstanding Kind = 6
)

// Write is a sum of bytes on one disk.
type Write struct {
	// Disk is the whole disk's kernel dev_t.
	Disk uint32
	Kind Kind
	// Charged is the cgroup in whose name the kernel did it.
	Charged uint64
	// Owner is the cgroup that owns the inode; only for KindData, else 0.
	Owner uint64
	// Of is the device whose own pages they are (kernel dev_t), and OfInstance
	// which of its file systems; only for KindMetadata, else 0. It is another
	// than Disk for a partition, for a mapped device, and below a loop device
	// with direct I/O, which hands its pages on.
	Of, OfInstance uint32
	// Bytes are nanoseconds of KindOutstanding.
	Bytes uint64
}

// Filesystem is the one whose pages were written.
func (w Write) Filesystem() Filesystem { return Filesystem{w.Of, w.OfInstance} }

// Log is what a cgroup did with the journal of one ext4nvj file system, which is
// in memory: nothing of it goes to a disk but what checkpoints carry home.
type Log struct {
	// Dev is the file system's device, as a kernel dev_t, and Instance which of
	// that device's it is.
	Dev, Instance uint32
	Cgroup        uint64
	// Bytes is what its handles logged, in lines of 64 bytes, headers
	// included: exact. Blocks is of how many blocks, once for each handle.
	Bytes, Blocks uint64
	Handles       uint64
	// Commits it made itself; Forced are those of them that a process made and
	// not a kernel thread, by the clock or for room.
	Commits, Forced uint64
}

// Filesystem is the one that was logged for.
func (l Log) Filesystem() Filesystem { return Filesystem{l.Dev, l.Instance} }
