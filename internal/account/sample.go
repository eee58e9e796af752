package account

import "time"

// RootCgroup is the path of the root cgroup, to which the kernel charges the journal's I/O
// and, on cgroup v1, all writeback.
const RootCgroup = "/"

// EndedCgroups is the line for cgroups that were made and removed within an interval, so
// that their path is unknown.
const EndedCgroups = "(ended)"

// Adjustable reports whether a line of the account is a cgroup that can have a weight and a
// limit of its own.
func Adjustable(cgroup string) bool { return cgroup != RootCgroup && cgroup != EndedCgroups }

// Sample is the account of one interval, over all observed devices.
type Sample struct {
	// Time is the wall-clock end of the interval.
	Time time.Time `json:"time"`
	// IntervalSeconds is the length by the monotonic clock; > 0.
	IntervalSeconds float64 `json:"interval_seconds"`
	// Estimator names what attributed the journal: "handles" or "syscalls".
	Estimator string `json:"estimator"`
	// OwnersForgotten counts the inodes of which the kernel side forgot who
	// owns them, because more were changed than it remembers: data of theirs
	// that is charged to the root cgroup stays there. Absent if 0.
	OwnersForgotten uint64 `json:"owners_forgotten,omitempty"`
	// CgroupsSkipped counts the cgroups that have no line of their own, because
	// they could not be listed: their path is too long, or there are too many.
	// What they do is the account's of the cgroup above that has one, or is
	// in the line of those that ended. Absent if 0.
	CgroupsSkipped uint64 `json:"cgroups_skipped,omitempty"`
	// Devices are sorted by name.
	Devices []Device `json:"devices"`
	// Waiters are sorted by time, greatest first; nil and absent where waits are
	// not measured.
	Waiters []Waiter `json:"waiters,omitzero"`
	// WaitsLost counts the waits for which the kernel side had no space; they are
	// in no line of Waiters, or in part. Absent if 0.
	WaitsLost uint64 `json:"waits_lost,omitempty"`
	// WaitEventsMissed counts the events for which the kernel did not run a program that
	// measures waits; a wait may be missing, or be in a neighbouring phase. Absent if 0.
	WaitEventsMissed uint64 `json:"wait_events_missed,omitempty"`
}

// Device is the account of one disk that carries at least one file system.
type Device struct {
	// Device is the disk's name in /sys/block, such as "loop0".
	Device string `json:"device"`
	// Dev is "major:minor".
	Dev string `json:"dev"`
	// Volume is the name of the Daybook volume whose image the disk is;
	// absent for other disks.
	Volume string `json:"volume,omitempty"`
	// Note says how a device is accounted and controlled that is on several disks;
	// absent for others.
	Note string `json:"note,omitempty"`
	// DiskBytes is what the disk read and wrote, by /sys/block/DEV/stat;
	// the truth that the containers' parts must add up to.
	DiskBytes uint64 `json:"disk_bytes"`
	// JournalBytes is what jbd2 logged for the file systems of this disk,
	// descriptor, revoke and commit blocks included. With an external
	// journal they went to the journal device and are not in DiskBytes.
	JournalBytes uint64 `json:"journal_bytes"`
	// JournalElsewhereBytes is the part of JournalBytes that went to
	// another device (an external journal).
	JournalElsewhereBytes uint64 `json:"journal_elsewhere_bytes"`
	// MetadataBytes is what was written in place of the block device's own
	// pages: checkpoints and their writeback.
	MetadataBytes uint64 `json:"metadata_bytes"`
	// UnaccountedBytes is DiskBytes less the sum over Containers (the root
	// cgroup included) of what they did on this disk; it can be negative,
	// because the counters are read one after the other, and because a commit
	// can be written in one interval and end in the next.
	UnaccountedBytes int64 `json:"unaccounted_bytes"`
	// MemoryJournals are those of the disk's file systems that have their
	// journal in memory (ext4nvj, jfsnvj) and logged something, by name. No byte of
	// that is in a field above: it goes to no disk, until a checkpoint
	// carries blocks home, as metadata.
	MemoryJournals []MemoryJournal `json:"memory_journals,omitempty"`
	// Transactions is the number of jbd2 commits that ended.
	Transactions uint64 `json:"transactions"`
	// CommitSeconds is the mean time from lock to commit record.
	CommitSeconds float64 `json:"commit_seconds"`
	// LostEvents counts what the kernel side had no room for (full ring
	// buffer or full maps), and the events for which the kernel did not run a
	// program. docs/accounting.md says for each where its bytes are then; the
	// total of the disk stays true.
	LostEvents uint64 `json:"lost_events"`
	// Control is what daybook control does on the disk; absent where nobody
	// controls it.
	Control *Control `json:"control,omitempty"`
	// Containers are sorted by total bytes, greatest first.
	Containers []Container `json:"containers"`
}

// Control says how daybook control holds the shares on a disk.
type Control struct {
	// Actuator is ActuatorWeights or ActuatorLimits.
	Actuator string `json:"actuator"`
	// WeightsIgnored: the disk's scheduler does not follow the weights, or they do not
	// hold the shares. Limits do then, unless the configuration forbids that.
	WeightsIgnored bool `json:"weights_ignored,omitempty"`
}

// What holds the shares on a disk.
const (
	ActuatorWeights = "weights"
	ActuatorLimits  = "limits"
)

// MemoryJournal is what a file system's journal in memory did.
type MemoryJournal struct {
	// Filesystem is the name of its device in /sys/class/block.
	Filesystem string `json:"filesystem"`
	// LoggedBytes are lines of 64 bytes, headers included.
	LoggedBytes uint64 `json:"logged_bytes"`
	Handles     uint64 `json:"handles"`
	// Commits of one or some transactions together, by whoever made them.
	Commits uint64 `json:"commits"`
	// UsedLines of the RingLines of its fullest partition hold what is not in the file
	// system yet, at the end of the interval, in LagTransactions. RingLines is 0 where
	// that is not known.
	UsedLines       uint64 `json:"used_lines,omitempty"`
	RingLines       uint64 `json:"ring_lines,omitempty"`
	LagTransactions uint64 `json:"lag_transactions,omitempty"`
}

// Container is one container's part of one device's account: a container
// where the cgroup path is known to be one's, else a plain cgroup.
type Container struct {
	// Cgroup is the path below the mount point; "/" is the root cgroup.
	Cgroup string `json:"cgroup"`
	// Name is the container's name for people, else the cgroup path.
	Name string `json:"name"`
	// Runtime is "docker", "lxc", ..., "" for a plain cgroup.
	Runtime string `json:"runtime"`
	// Share is Bytes() over the sum of Bytes() of all containers, 0..1.
	Share float64 `json:"share"`
	// TargetShare is the ideal weight over the sum of the ideal weights of
	// the containers, 0..1; 0 for the root cgroup.
	TargetShare float64 `json:"target_share"`
	// Weight is the weight in force, in the unit of the weight file; 0
	// where there is none.
	Weight uint64 `json:"weight"`

	// ChargedReadBytes and ChargedWriteBytes are what the kernel charged,
	// less what was returned to its owners (ReturnedBytes).
	ChargedReadBytes  uint64 `json:"charged_read_bytes"`
	ChargedWriteBytes uint64 `json:"charged_write_bytes"`
	// JournalBytes is its part of the logged blocks.
	JournalBytes uint64 `json:"journal_bytes"`
	// MetadataBytes is its part of the in-place metadata writes.
	MetadataBytes uint64 `json:"metadata_bytes"`
	// UnchargedBytes is its file data that was written in the root
	// cgroup's name.
	UnchargedBytes uint64 `json:"uncharged_bytes"`
	// ReturnedBytes is what the kernel charged to it besides, though it is
	// others' and is in their lines: checkpoints in its context, journal
	// writes of a jbd2 thread that was moved into its cgroup, and for the
	// root cgroup all that was given to the containers. Bytes that turned out
	// to be others' when less was charged are returned in later intervals.
	ReturnedBytes uint64 `json:"returned_bytes"`
	// ForcedCommits counts the commits that a sync of this container
	// started before jbd2 would have, and those that it made of a journal in
	// memory.
	ForcedCommits uint64 `json:"forced_commits"`
	// RequestSeconds is how long the requests that ended in the interval were
	// outstanding, in the scheduler and on the disk, added up, and how long io.cost held
	// back I/O before it became requests: divided by IntervalSeconds, the mean number of
	// requests that the container kept outstanding. Absent if 0, and where the kernel notes
	// no start of requests.
	RequestSeconds float64 `json:"request_seconds,omitempty"`
	// BusySeconds is the time in which at least one request of a cgroup was
	// outstanding, or held back by io.cost, as far as it ended in the interval; added up
	// over the container's cgroups. Where requests end out of order it can be too short.
	// Absent where RequestSeconds is.
	BusySeconds float64 `json:"busy_seconds,omitempty"`
	// FlushSeconds is the time in which a flush of the disk's cache was outstanding that
	// one of its syncs waits for, and no request of the cgroup; as far as it ended in the
	// interval, added up over the container's cgroups. A request that starts during the
	// flush and ends after it counts in BusySeconds besides. What ext4 flushes for a commit
	// does not count. Absent if 0.
	FlushSeconds float64 `json:"flush_seconds,omitempty"`
	// StackedSeconds is the time in which a bio or flush of one of its cgroups was outstanding
	// on a device that is on several disks, of which this is one, or that writes copies to this
	// one (dm-crypt): as far as it ended in the interval, added up over the container's cgroups
	// and such devices. Such a device can hold I/O back before it makes requests of it. Absent
	// if 0.
	StackedSeconds float64 `json:"stacked_seconds,omitempty"`
	// MemoryJournalBytes is what its handles, of which there were
	// MemoryJournalHandles, logged in the disk's MemoryJournals. No part of
	// Bytes, for it costs the disk nothing.
	MemoryJournalBytes   uint64 `json:"memory_journal_bytes,omitempty"`
	MemoryJournalHandles uint64 `json:"memory_journal_handles,omitempty"`
}

// Charged is what the kernel charged to the container and is its own.
func (c Container) Charged() uint64 { return c.ChargedReadBytes + c.ChargedWriteBytes }

// Hidden is the container's I/O that no weight of its own governs: journal,
// in-place metadata and uncharged data (J of paper 1, equation 3).
func (c Container) Hidden() uint64 {
	return c.JournalBytes + c.MetadataBytes + c.UnchargedBytes
}

// Bytes is all that the container cost the disk in the interval.
func (c Container) Bytes() uint64 { return c.Charged() + c.Hidden() }
