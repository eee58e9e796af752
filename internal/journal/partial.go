package journal

import "fmt"

// transaction identifies a transaction on a running host: tids wrap after 2^32.
type transaction struct {
	of  Filesystem
	tid uint32
}

// collectPartial adds the bytes that commits in progress have written since the
// last call.
func (p *Probe) collectPartial() error {
	var pid uint32
	var state attributionCommitter
	var started []Commit
	threads := p.objects.Committers.Iterate()
	for threads.Next(&pid, &state) {
		key := transaction{Filesystem{state.Dev, state.Instance}, state.Tid}
		before := p.partial[key]
		if state.Tid == 0 || state.JournalBytes <= before {
			continue
		}
		started = append(started, Commit{
			Dev: key.of.Dev, Instance: key.of.Instance, JournalDisk: state.JournalDisk, Tid: state.Tid, Partial: true,
			JournalBytes: state.JournalBytes - before,
			Dirtied:      make(map[uint64]int64),
		})
		p.partial[key] = state.JournalBytes
	}
	if err := threads.Err(); err != nil {
		return fmt.Errorf("cannot read which commits are in progress: %w", err)
	}
	if len(started) == 0 {
		return nil
	}
	if err := p.visitDirtied(started, func(attributionDirtiedKey) {}); err != nil {
		return err
	}
	p.pending.Commits = append(p.pending.Commits, started...)
	return nil
}

// deductPartial subtracts the bytes that were returned before the commit ended.
func (p *Probe) deductPartial(commit *Commit) {
	key := transaction{commit.Filesystem(), commit.Tid}
	commit.JournalBytes -= min(commit.JournalBytes, p.partial[key])
	delete(p.partial, key)
}
