package causes

import (
	"github.com/daybook-project/daybook/internal/blame"
	"github.com/daybook-project/daybook/internal/disksim"
	"github.com/daybook-project/daybook/internal/experiment/fixture"
)

// Case is a way to make calls slow, with the cause that blame must find.
type Case struct {
	Name string
	// What describes it.
	What string
	// Fixture is the disk with its file system.
	Fixture fixture.Options
	// Waiter is what the container does that waits; its calls are measured.
	Waiter string
	// Operation is the one that blame must show.
	Operation blame.Operation
	// Calls is how often the waiter calls in each round.
	Calls int
	// Neighbour is what the other container does meanwhile; "" is nothing.
	Neighbour string
	// Bytes is the neighbour's data.
	Bytes int64
	// NeighbourReads, if not 0, limits the neighbour's reads in a second (io.max).
	NeighbourReads int
	// Delay is how long the waiter waits after the neighbour began, in seconds; 0:
	// until the neighbour has ended.
	Delay float64
	// Cause must have the greatest part of the time, as Culprit's: the
	// neighbour's, or None's.
	Cause   blame.Phase
	Culprit string
	// Unbounded means that what blame finds is reported, and held to no bound.
	Unbounded bool
}

// Who can be a culprit.
const (
	Neighbour = "neighbour"
	Waiter    = "waiter"
	// None: the time is no container's, such as that of the disk's flush.
	None = "none"
	// Unknown: it is a container's, but blame does not know whose.
	Unknown = "unknown"
	Others  = "others"
)

// DataMount makes the commit wait for data, and not come before the waiter asks
// for it.
const DataMount = "dioread_lock,commit=300"

// extents of the neighbour's file: 15 leaves of the extent tree.
const extents = 5000

// Cases lists the injected causes.
func Cases() []Case {
	const disk = 4 << 30
	return []Case{
		{
			Name: "ordered data", What: "the neighbour writes 64 MiB, which are on their way to the disk; mounted with dioread_lock, so that the commit waits for them",
			Fixture: fixture.Options{SizeBytes: disk, JournalBytes: 64 << 20, Mount: DataMount, Scheduler: "mq-deadline",
				Parameters: disksim.Parameters{BandwidthBytesPerSecond: 40e6}},
			Waiter: ModeFsync, Operation: blame.Fsync, Calls: 1, Neighbour: Data, Bytes: 64 << 20,
			Cause: blame.OrderedData, Culprit: Neighbour,
		},
		{
			Name: "open handle", What: "the neighbour truncates a file of 5000 extents whose extent tree must be read; the journal is on a second disk without delays; mounted with barrier=0, so that no flush waits behind the reads",
			Fixture: fixture.Options{SizeBytes: disk, JournalBytes: 64 << 20, ExternalJournal: true, Mount: "barrier=0", Scheduler: "mq-deadline",
				Parameters: disksim.Parameters{RequestSeconds: 0.1}},
			Waiter: ModeFsync, Operation: blame.Fsync, Calls: 6, Neighbour: Truncate, Delay: 0.15,
			Cause: blame.Lock, Culprit: Neighbour,
		},
		{
			Name: "full journal", What: "the neighbour makes directories until the log of 8 MiB is full; the log is on a second disk without delays",
			Fixture: fixture.Options{SizeBytes: disk, JournalBytes: 8 << 20, ExternalJournal: true, Scheduler: "mq-deadline",
				Parameters: disksim.Parameters{RequestSeconds: 0.01}},
			Waiter: Mkdir, Operation: blame.Handle, Calls: 150, Neighbour: Mkdir, Delay: 0.3,
			Cause: blame.Checkpoint, Culprit: Neighbour,
		},
		{
			Name: "slow flush", What: "a flush of the disk's cache takes 100 ms; there is no neighbour",
			Fixture: fixture.Options{SizeBytes: disk, JournalBytes: 64 << 20, Scheduler: "mq-deadline",
				Parameters: disksim.Parameters{FlushSeconds: 0.1}},
			Waiter: AppendFsync, Operation: blame.Fsync, Calls: 5,
			Cause: blame.Flush, Culprit: None,
		},
	}
}

// Limits lists a case whose cause blame does not name: the queue of the disk.
func Limits() []Case {
	behind := Cases()[0]
	behind.Name, behind.Waiter, behind.Calls, behind.Unbounded = "own data behind a neighbour's", AppendFsync, 1, true
	behind.What = "as ordered data, but the waiter appends 4 KiB before its sync: they are queued behind the 64 MiB"
	behind.Cause, behind.Culprit = blame.OwnData, Waiter
	return []Case{behind}
}
