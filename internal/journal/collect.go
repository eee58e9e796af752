package journal

import (
	"fmt"
	"time"
)

// drainBuffers are reused between drains to reduce allocations.
type drainBuffers struct {
	dirtiedKeys   []attributionDirtiedKey
	dirtiedValues []int64
	ownerKeys     []attributionInodeKey
	ownerValues   []uint64
	endKeys       []uint32
	endValues     []attributionInstance
}

// Collect returns the events since the last call. Every commit in it has the
// sums of all its handles: jbd2 starts a commit only after its handles have
// stopped. A commit in progress is included with its bytes so far, marked as
// partial, because a large one takes a considerable part of an interval.
func (p *Probe) Collect() (Events, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drainCommits()
	if p.err == nil {
		p.err = p.collectPartial()
	}
	if p.err != nil {
		return Events{}, p.err
	}
	if err := p.collectWrites(); err != nil {
		return Events{}, err
	}
	if err := p.collectCharged(); err != nil {
		return Events{}, err
	}
	if err := p.collectLogged(); err != nil {
		return Events{}, err
	}
	if err := p.collectLogs(); err != nil {
		return Events{}, err
	}
	if err := p.collectLost(); err != nil {
		return Events{}, err
	}
	if err := p.forgetEnded(); err != nil {
		return Events{}, err
	}
	if err := p.countForgotten(); err != nil {
		return Events{}, err
	}
	events := p.pending
	p.pending = Events{}
	return events, nil
}

// drainCommits reads the records of commits, and from the map the handles
// that are not in their records. It stores the first error for Collect.
func (p *Probe) drainCommits() {
	if p.err != nil {
		return
	}
	first := len(p.pending.Commits)
	p.err = p.records.visit(func(record *attributionCommit) {
		commit := commitFrom(record)
		p.deductPartial(&commit)
		p.pending.Commits = append(p.pending.Commits, commit)
	})
	if p.err != nil {
		return
	}
	fresh := p.pending.Commits[first:]
	if len(fresh) == 0 {
		return
	}
	if err := p.takeDirtied(fresh); err != nil {
		p.err = err
	}
}

func commitFrom(record *attributionCommit) Commit {
	commit := Commit{
		Dev:             record.Dev,
		Instance:        record.Instance,
		JournalDisk:     record.JournalDisk,
		Tid:             record.Tid,
		BlocksLogged:    record.BlocksLogged,
		Handles:         record.Handles,
		JournalBytes:    record.JournalBytes,
		DurationSeconds: time.Duration(record.DurationNs).Seconds(),
		ForcedBy:        record.ForcedBy,
		Dirtied:         make(map[uint64]int64),
	}
	for _, part := range record.Parts {
		if part.Cgroup == 0 {
			break // the program wrote no more parts
		}
		commit.add(part.Cgroup, part.Blocks)
	}
	return commit
}

// takeDirtied moves the handles' sums of the commits out of the kernel. It
// deletes only ended transactions, to which no handle can add.
func (p *Probe) takeDirtied(commits []Commit) error {
	var done []attributionDirtiedKey
	if err := p.visitDirtied(commits, func(key attributionDirtiedKey) { done = append(done, key) }); err != nil {
		return err
	}
	return deleteAll(p.objects.Dirtied, done)
}

// visitDirtied adds the handles' sums to their commits.
func (p *Probe) visitDirtied(commits []Commit, visit func(attributionDirtiedKey)) error {
	return p.readDirtied(func(key attributionDirtiedKey, blocks int64) {
		if commit := commitOf(commits, Filesystem{key.Dev, key.Instance}, key.Tid); commit != nil {
			commit.Dirtied[key.Cgroup] += blocks
			visit(key)
		}
	})
}

func (p *Probe) readDirtied(visit func(key attributionDirtiedKey, blocks int64)) error {
	b := &p.buffers
	if b.dirtiedKeys == nil {
		b.dirtiedKeys = make([]attributionDirtiedKey, batchEntries)
		b.dirtiedValues = make([]int64, batchEntries)
	}
	err := readAll(p.objects.Dirtied, b.dirtiedKeys, b.dirtiedValues, func(n int) {
		for i, key := range b.dirtiedKeys[:n] {
			visit(key, b.dirtiedValues[i])
		}
	})
	if err != nil {
		return fmt.Errorf("cannot read which cgroups dirtied the journal: %w", err)
	}
	return nil
}

// commitOf is the first commit of a file system with transaction tid or a later
// one. A transaction whose own record was lost is added to the next, like its
// bytes. Transaction numbers wrap around (tid_geq of include/linux/jbd2.h).
func commitOf(commits []Commit, of Filesystem, tid uint32) *Commit {
	for i := range commits {
		if commits[i].Filesystem() == of && int32(commits[i].Tid-tid) >= 0 {
			return &commits[i]
		}
	}
	return nil
}

// collectWrites computes this interval's sums from the kernel's running sums.
func (p *Probe) collectWrites() error {
	err := p.written.collect(p.objects.Written, func(key attributionWrittenKey, before, now uint64) {
		write := Write{Disk: key.Disk, Kind: Kind(key.Kind), Charged: key.Charged, Bytes: now - before}
		if write.Kind == KindMetadata {
			write.Of, write.OfInstance = uint32(key.Owner), uint32(key.Owner>>32)
		} else {
			write.Owner = key.Owner
		}
		p.pending.Writes = append(p.pending.Writes, write)
	})
	if err != nil {
		return fmt.Errorf("cannot read which cgroups wrote to the disk: %w", err)
	}
	return nil
}

func (p *Probe) collectLost() error {
	var sum uint64
	for kind := range p.objects.Lost.MaxEntries() {
		count, err := sumOverCPUs(p.objects.Lost, kind)
		if err != nil {
			return fmt.Errorf("cannot read the count of lost events: %w", err)
		}
		sum += count
	}
	skipped, err := p.programs.Missed()
	if err != nil {
		return err
	}
	p.pending.Lost = sum - p.lost + skipped
	p.lost = sum
	return nil
}
