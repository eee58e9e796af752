package journal

import (
	"fmt"
	"maps"
)

// transaction identifies a transaction on a running host: tids wrap after 2^32.
type transaction struct {
	of  Filesystem
	tid uint32
}

// collectPartial adds the bytes that commits in progress have written since the
// last call.
func (p *Probe) collectPartial() error {
	var started []Commit
	err := p.visitFilesystems(func(dev uint32, state attributionFilesystem, again func() (attributionFilesystem, error)) error {
		key := transaction{Filesystem{dev, state.Committer.Instance}, state.Committer.Tid}
		before := p.returned(key.of, key.tid)
		if key.tid == 0 || state.Committer.JournalBytes <= before {
			return nil
		}
		later, err := again()
		if err != nil {
			return err
		}
		if later.Committer.Tid != key.tid {
			return nil // it ended while it was read: all is in the record of its end
		}
		commit := Commit{
			Dev: dev, Instance: key.of.Instance, JournalDisk: state.Committer.JournalDisk, Tid: key.tid, Partial: true,
			JournalBytes: state.Committer.JournalBytes - before,
			Dirtied:      make(map[uint64]int64),
		}
		if parts := state.Transactions[key.tid&1]; parts.Id == uint64(key.of.Instance)<<32|uint64(key.tid) {
			for _, part := range parts.Parts {
				commit.add(part.Cgroup, part.Blocks)
			}
		}
		started = append(started, commit)
		p.partial[key] += commit.JournalBytes
		return nil
	})
	if err != nil {
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

// add adds the blocks that a cgroup dirtied; cgroup 0 is none.
func (c *Commit) add(cgroup uint64, blocks int64) {
	if cgroup != 0 && blocks != 0 {
		c.Dirtied[cgroup] += blocks
	}
}

// deductPartial subtracts the bytes that were returned before the commit ended.
func (p *Probe) deductPartial(commit *Commit) {
	commit.JournalBytes -= min(commit.JournalBytes, p.returned(commit.Filesystem(), commit.Tid))
	maps.DeleteFunc(p.partial, func(key transaction, _ uint64) bool { return key.isUpTo(commit.Filesystem(), commit.Tid) })
}

// returned is how many bytes were returned of commits that had not ended: of transaction tid
// and of those before it, whose records were lost. The kernel side reports the bytes of
// these with the next commit.
func (p *Probe) returned(of Filesystem, tid uint32) (bytes uint64) {
	for key, part := range p.partial {
		if key.isUpTo(of, tid) {
			bytes += part
		}
	}
	return bytes
}

// isUpTo reports whether it is a transaction of a file system, and not after tid.
func (t transaction) isUpTo(of Filesystem, tid uint32) bool {
	return t.of == of && int32(tid-t.tid) >= 0
}
