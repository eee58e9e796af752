package journal

// Combine adds the events of two successive collections, so that those of a long time take
// the memory of few: sums are added, and so are the commits of each file system, for the
// estimators and for a book (Commit.Combined). Calls are appended.
func (e Events) Combine(next Events) Events {
	return Events{
		Commits: combineCommits(e.Commits, next.Commits),
		Writes: combine(e.Writes, next.Writes,
			func(w Write) Write { w.Bytes = 0; return w },
			func(a, b Write) Write { a.Bytes += b.Bytes; return a }),
		Logs: combine(e.Logs, next.Logs,
			func(l Log) Log { return Log{Dev: l.Dev, Instance: l.Instance, Cgroup: l.Cgroup} },
			func(a, b Log) Log {
				a.Bytes, a.Blocks, a.Handles = a.Bytes+b.Bytes, a.Blocks+b.Blocks, a.Handles+b.Handles
				a.Commits, a.Forced = a.Commits+b.Commits, a.Forced+b.Forced
				return a
			}),
		Calls:           append(e.Calls, next.Calls...),
		Lost:            e.Lost + next.Lost,
		OwnersForgotten: e.OwnersForgotten + next.OwnersForgotten,
	}
}

// combine adds what has the same key, in the order of the first of each.
func combine[T any, K comparable](a, b []T, key func(T) K, add func(a, b T) T) []T {
	at := make(map[K]int)
	var sums []T
	for _, list := range [][]T{a, b} {
		for _, one := range list {
			i, known := at[key(one)]
			if !known {
				at[key(one)] = len(sums)
				sums = append(sums, one)
				continue
			}
			sums[i] = add(sums[i], one)
		}
	}
	return sums
}

// combineCommits adds the commits of a file system to one for each journal disk.
func combineCommits(a, b []Commit) []Commit {
	type key struct {
		of      Filesystem
		disk    uint32
		partial bool
	}
	combined := make([]Commit, 0, len(a)+len(b))
	for _, list := range [][]Commit{a, b} {
		for _, c := range list {
			combined = append(combined, c.alone())
		}
	}
	return combine(combined, nil, func(c Commit) key { return key{c.Filesystem(), c.JournalDisk, c.Partial} },
		func(a, b Commit) Commit {
			a.Tid = b.Tid
			a.BlocksLogged, a.Handles, a.JournalBytes = a.BlocksLogged+b.BlocksLogged, a.Handles+b.Handles, a.JournalBytes+b.JournalBytes
			a.DurationSeconds += b.DurationSeconds
			for cgroup, bytes := range b.Dirtied {
				a.Dirtied[cgroup] += bytes
			}
			a.Combined.Commits += b.Combined.Commits
			a.Combined.Timed += b.Combined.Timed
			for cgroup, n := range b.Combined.Forced {
				a.Combined.Forced[cgroup] += n
			}
			for cgroup, bytes := range b.Combined.Logged {
				a.Combined.Logged[cgroup] += bytes
			}
			return a
		})
}

// usualBlockBytes makes parts of blocks as exact as those of bytes.
const usualBlockBytes = 4096

// alone is a commit to which others can be added: what counts of who dirtied it is what
// each is charged.
func (c Commit) alone() Commit {
	if c.Combined != nil {
		return c
	}
	combined := c.Counts()
	bytes := c.JournalBytes
	if bytes == 0 && c.JournalDisk == 0 {
		bytes = uint64(c.BlocksLogged) * usualBlockBytes // as in Handles
	}
	combined.Logged = weightsOf(c.Logged(usualBlockBytes))
	charged := weightsOf(Split(bytes, c.Dirtied))
	c.Dirtied, c.Combined, c.ForcedBy = charged, &combined, 0
	return c
}

func weightsOf(parts map[uint64]uint64) map[uint64]int64 {
	weights := make(map[uint64]int64, len(parts))
	for cgroup, bytes := range parts {
		weights[cgroup] = int64(bytes)
	}
	return weights
}

// Logged divides the blocks that it logged among those who dirtied them, in bytes. blockBytes is
// the size of a block.
func (c Commit) Logged(blockBytes uint64) map[uint64]uint64 {
	weights := c.Dirtied
	if c.Combined != nil {
		weights = c.Combined.Logged
	}
	return Split(uint64(c.BlocksLogged)*blockBytes, weights)
}

// Counts returns how many commits it is that have ended.
func (c Commit) Counts() Combined {
	switch {
	case c.Combined != nil:
		return *c.Combined
	case c.Partial:
		return Combined{Forced: make(map[uint64]uint64)}
	}
	counts := Combined{Commits: 1, Forced: make(map[uint64]uint64)}
	if c.DurationSeconds > 0 {
		counts.Timed = 1
	}
	if c.ForcedBy != 0 {
		counts.Forced[c.ForcedBy] = 1
	}
	return counts
}
