package journal

// Charges are journal bytes by file system (kernel dev_t) and cgroup id.
type Charges map[uint32]map[uint64]uint64

func (c Charges) add(dev uint32, cgroup, bytes uint64) {
	if c[dev] == nil {
		c[dev] = make(map[uint64]uint64)
	}
	c[dev][cgroup] += bytes
}

// Estimator attributes one interval's journal to cgroups.
type Estimator interface {
	// Name is "handles" or "syscalls".
	Name() string
	// Attribute charges every byte that the interval's commits logged.
	Attribute(Events) Charges
}

// Handles is the estimator that is exact per transaction: it splits each
// commit's bytes by the blocks that each cgroup was first to dirty in it.
type Handles struct {
	// BlockBytes returns the block size of a file system; it is used only if
	// the writes of the jbd2 thread were not seen.
	BlockBytes func(dev uint32) uint64
}

// Name is "handles".
func (Handles) Name() string { return "handles" }

// Attribute loses no bytes: the sum of the charges is the sum of the commits.
func (h Handles) Attribute(events Events) Charges {
	charges := make(Charges)
	for _, commit := range events.Commits {
		for cgroup, bytes := range Split(h.bytes(commit), commit.Dirtied) {
			charges.add(commit.Dev, cgroup, bytes)
		}
	}
	return charges
}

func (h Handles) bytes(commit Commit) uint64 {
	if commit.JournalBytes == 0 && commit.JournalDisk == 0 && h.BlockBytes != nil {
		return uint64(commit.BlocksLogged) * h.BlockBytes(commit.Dev)
	}
	return commit.JournalBytes
}

// Syscalls is the estimator of paper 1: counted calls times calibrated costs.
type Syscalls struct {
	// Costs returns the costs on a file system; nil if they are unknown, in
	// which case its journal is charged to the root cgroup.
	Costs func(dev uint32) Costs
}

// Name is "syscalls".
func (Syscalls) Name() string { return "syscalls" }

// Attribute charges the estimated log bytes of the calls. The root cgroup gets
// the logged bytes beyond the estimate. An estimate beyond the logged bytes is
// kept, as in the paper, and appears as unaccounted.
func (s Syscalls) Attribute(events Events) Charges {
	calls := make(map[uint32][]Call)
	logged := make(map[uint32]uint64)
	for _, call := range events.Calls {
		calls[call.Dev] = append(calls[call.Dev], call)
	}
	for _, commit := range events.Commits {
		logged[commit.Dev] += commit.JournalBytes
	}
	charges := make(Charges)
	for dev, made := range calls {
		for cgroup, bytes := range Estimate(made, s.Costs(dev))[dev] {
			charges.add(dev, cgroup, bytes)
		}
	}
	for dev, bytes := range logged {
		var estimated uint64
		for _, part := range charges[dev] {
			estimated += part
		}
		if estimated < bytes {
			charges.add(dev, RootCgroupID, bytes-estimated)
		}
	}
	return charges
}
