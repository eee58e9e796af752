package blame

// Operation is the kind of call that waited.
type Operation uint16

// The operations, the same as in bpf/sums.h.
const (
	Fsync Operation = iota
	Fdatasync
	Msync
	// Write is a write to a file with O_SYNC or O_DSYNC: its sync.
	Write
	// Handle is the start of a handle outside of a sync, if it had to wait.
	Handle
)

var operations = [...]string{"fsync", "fdatasync", "msync", "write", "handle"}

func (o Operation) String() string {
	if int(o) < len(operations) {
		return operations[o]
	}
	return "unknown"
}

// Phase is a part of a wait.
type Phase int

// The phases, the same as in bpf/sums.h.
const (
	// Lock is the time in which a commit waits for the open handles of its
	// transaction.
	Lock Phase = iota
	// OrderedData is the time in which a commit waits for file data.
	OrderedData
	// Log is the time in which a commit writes the log, without the commit
	// record.
	Log
	// Flush is the commit record with the flush of the disk's cache, or the
	// sync's own flush.
	Flush
	// Checkpoint is the time for which a handle cannot start because the log is
	// full.
	Checkpoint
	// OwnData is the time in which the call writes its own data.
	OwnData
	// Rest is what no phase explains.
	Rest
	// Phases is their number.
	Phases
)

var phases = [Phases]string{"lock", "ordered_data", "log", "flush", "checkpoint", "own_data", "rest"}

func (p Phase) String() string { return phases[p] }

// PhaseNames are the names of all phases, in the order of the constants.
func PhaseNames() []string { return append([]string(nil), phases[:]...) }

// Call identifies who waits, where and in which call.
type Call struct {
	// Dev is the device of the file system, as a kernel dev_t.
	Dev       uint32
	Cgroup    uint64
	Operation Operation
}

// Wait is the time that calls waited, in nanoseconds by phase.
type Wait struct {
	Call
	// Tid is the transaction whose commit they waited for; 0 for phases that are
	// no commit's. If a call waited for one commit only, these are with it.
	Tid uint32
	// Memory means that the journal is in memory. Tid is then the number of the
	// commit, which journal.Probe does not report.
	Memory      bool
	Nanoseconds [Phases]uint64
}

// Held is for how long handles were open while the commit waited for them.
type Held struct {
	Dev, Tid uint32
	// Cgroup had them open; 0 means a kernel thread, for the owner of Ino.
	Cgroup, Ino uint64
	Nanoseconds uint64
}

// Ordered is what a commit waited for in a file.
type Ordered struct {
	Dev, Tid uint32
	Ino      uint64
	// Bytes of the file were written while the commit waited for data. Waits is
	// how many of its pages the commit waited for; 0: the file is not ordered.
	Bytes, Waits uint64
}

// Events are what the kernel side saw since the last collection.
type Events struct {
	Waits   []Wait
	Calls   map[Call]Histogram
	Held    []Held
	Ordered []Ordered
	// Lost is the number of events for which the kernel side had no space.
	Lost uint64
	// Missed is the number of events for which the kernel did not run a program.
	Missed uint64
}
