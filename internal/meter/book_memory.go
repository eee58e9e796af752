package meter

import (
	"cmp"
	"slices"

	"github.com/daybook-project/daybook/internal/account"
)

// enterLogs enters the bytes logged in journals in memory. They cost the disk
// nothing until a checkpoint writes the blocks in place. That is metadata,
// which counts in whole blocks, however few of their lines were logged.
func (b *Book) enterLogs(pages map[uint32]*page, in Readings) {
	journals := make(map[uint32]*account.MemoryJournal)
	for _, l := range in.Events.Logs {
		disk := in.DiskOf[l.Dev]
		p := pages[disk]
		if p == nil {
			continue
		}
		j := journals[l.Dev]
		if j == nil {
			j = &account.MemoryJournal{Filesystem: in.NameOf[l.Dev]}
			journals[l.Dev] = j
		}
		j.LoggedBytes += l.Bytes
		j.Handles += l.Handles
		j.Commits += l.Commits
		path := in.UnitOf(l.Cgroup)
		unit := p.unit(path)
		unit.MemoryJournalBytes += l.Bytes
		unit.MemoryJournalHandles += l.Handles
		unit.ForcedCommits += l.Forced
		if bytes := l.Blocks * max(in.BlockBytes[l.Dev], 1); bytes > 0 {
			b.remember(l.Filesystem(), path, bytes)
		}
	}
	for dev, j := range journals {
		if in.MemoryCounters != nil {
			now := in.MemoryCounters(j.Filesystem)
			j.UsedLines, j.RingLines, j.LagTransactions = now["used_lines"], now["ring_lines"], now["checkpoint_lag"]
		}
		device := &pages[in.DiskOf[dev]].device
		device.MemoryJournals = append(device.MemoryJournals, *j)
	}
	for _, p := range pages {
		slices.SortFunc(p.device.MemoryJournals, func(a, b account.MemoryJournal) int { return cmp.Compare(a.Filesystem, b.Filesystem) })
	}
}

// move moves the remembered amounts to the paths that top returns for their
// former paths. Amounts of several cgroups under one path cannot be separated
// again: they stay there until they fade.
func (b *Book) move(top func(path string) string) {
	at := func(path string) string {
		if !account.Adjustable(path) {
			return path
		}
		return top(path)
	}
	for fs, sums := range b.dirtied {
		b.dirtied[fs] = moved(sums, at)
	}
	for _, kept := range []map[uint32]map[string]uint64{b.logged, b.carried} {
		for disk, sums := range kept {
			kept[disk] = moved(sums, at)
		}
	}
	for _, m := range b.below {
		m.above, m.journal = moved(m.above, at), moved(m.journal, at)
		owed := make(map[string]map[string]uint64, len(m.owed))
		for charged, sums := range m.owed {
			to := at(charged)
			if owed[to] == nil {
				owed[to] = make(map[string]uint64, len(sums))
			}
			for owner, bytes := range sums {
				owed[to][at(owner)] += bytes
			}
		}
		m.owed = owed
	}
}

// moved has the sums by their new paths.
func moved[V uint64 | float64](sums map[string]V, at func(path string) string) map[string]V {
	to := make(map[string]V, len(sums))
	for path, bytes := range sums {
		to[at(path)] += bytes
	}
	return to
}
