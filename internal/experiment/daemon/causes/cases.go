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
	// Delay is how long the waiter waits after the neighbour began, in seconds.
	Delay float64
	// Cause must have the greatest part of the time, as Culprit's: the
	// neighbour's, or nobody's.
	Cause   blame.Phase
	Culprit string
}

// Who can be a culprit.
const (
	Neighbour = "neighbour"
	Waiter    = "waiter"
	Nobody    = "nobody"
	Others    = "others"
)

const (
	// dataBytes is the neighbour's ordered data in a round.
	dataBytes = 64 << 20
	// extents of the neighbour's file: 15 leaves of the extent tree.
	extents = 5000
)

// Cases lists the injected causes.
func Cases() []Case {
	const disk = 4 << 30
	return []Case{
		{
			Name: "ordered data", What: "the neighbour writes 64 MiB and syncs them; mounted with dioread_lock, so that the commit waits for them",
			Fixture: fixture.Options{SizeBytes: disk, JournalBytes: 64 << 20, Mount: "dioread_lock", Scheduler: "mq-deadline",
				Parameters: disksim.Parameters{BandwidthBytesPerSecond: 60e6}},
			Waiter: ModeFsync, Operation: blame.Fsync, Calls: 1, Neighbour: Data, Delay: 0.15,
			Cause: blame.OrderedData, Culprit: Neighbour,
		},
		{
			Name: "open handle", What: "the neighbour truncates a file of 5000 extents whose extent tree must be read; the journal is on a second disk without delays",
			Fixture: fixture.Options{SizeBytes: disk, JournalBytes: 64 << 20, ExternalJournal: true, Scheduler: "mq-deadline",
				Parameters: disksim.Parameters{RequestSeconds: 0.1}},
			Waiter: ModeFsync, Operation: blame.Fsync, Calls: 6, Neighbour: Truncate, Delay: 0.15,
			Cause: blame.Lock, Culprit: Neighbour,
		},
		{
			Name: "full journal", What: "the neighbour makes directories until the log of 8 MiB is full; the log is on a second disk without delays",
			Fixture: fixture.Options{SizeBytes: disk, JournalBytes: 8 << 20, ExternalJournal: true, Scheduler: "mq-deadline",
				Parameters: disksim.Parameters{RequestSeconds: 0.01}},
			Waiter: Mkdir, Operation: blame.Handle, Calls: 300, Neighbour: Mkdir, Delay: 0.3,
			Cause: blame.Checkpoint, Culprit: Neighbour,
		},
		{
			Name: "slow flush", What: "a flush of the disk's cache takes 100 ms; there is no neighbour",
			Fixture: fixture.Options{SizeBytes: disk, JournalBytes: 64 << 20, Scheduler: "mq-deadline",
				Parameters: disksim.Parameters{FlushSeconds: 0.1}},
			Waiter: AppendFsync, Operation: blame.Fsync, Calls: 8,
			Cause: blame.Flush, Culprit: Nobody,
		},
	}
}
