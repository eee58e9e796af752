package blame

import (
	"cmp"
	"math"
	"slices"

	"github.com/daybook-project/daybook/internal/journal"
)

// Nobody is the culprit of time that no cgroup caused, such as the flush of the
// disk, or whose causer is not known.
const Nobody = 0

// Culprit caused a part of a wait.
type Culprit struct {
	// Cgroup is the causer; Nobody if there is none or it is not known.
	Cgroup uint64
	// Cause is the phase that it made longer.
	Cause       Phase
	Nanoseconds uint64
}

// Waiter is what the calls of one cgroup waited for in an interval.
type Waiter struct {
	Call
	// Calls are those that ended in the interval.
	Calls       Histogram
	Nanoseconds [Phases]uint64
	// Culprits are sorted by time, greatest first. Their sum is the sum of
	// Nanoseconds.
	Culprits []Culprit
}

// Total is the whole time of the calls.
func (w Waiter) Total() uint64 {
	var sum uint64
	for _, ns := range w.Nanoseconds {
		sum += ns
	}
	return sum
}

// Ledger divides waits among those who caused them. It remembers what the last
// transactions contained, because a call ends after the commit that it waited
// for. The zero value is ready for use.
type Ledger struct {
	transactions map[transaction]*contents
	logged       map[uint32]map[uint64]float64 // by file system: blocks, fading
	instances    map[uint32]uint32
	pending      []pendingWait
	round        uint64
}

type transaction struct{ dev, tid uint32 }

// contents are the reasons why the commit of a transaction takes time, by cgroup.
type contents struct {
	held, blocks map[uint64]int64
	files        map[uint64]file // by inode
	// committed means that blocks is known.
	committed bool
	round     uint64
}

// file is what a commit waited for in a file.
type file struct {
	owner        uint64
	bytes, waits uint64
}

// data are the ordered bytes by owner. A file for whose pages the commit did not
// wait is not ordered. One whose bytes were not seen on their way to the disk
// counts with its pages, as if they were bytes.
func (c *contents) data() map[uint64]int64 {
	data := make(map[uint64]int64)
	for _, f := range c.files {
		if f.waits > 0 {
			data[f.owner] += int64(max(f.bytes, f.waits))
		}
	}
	return data
}

type pendingWait struct {
	wait  Wait
	round uint64
}

const (
	// rememberRounds is how many collections a transaction is remembered, and how
	// many the log writes of a wait are kept back for the record of its commit.
	rememberRounds = 6
	// maxTransactions limits the memory; a file system commits some hundred
	// times a second at most.
	maxTransactions = 1 << 16
	// fading is what remains of the memory of who filled the log after each
	// commit: a half after 23 commits.
	fading = 0.97
)

// Divide returns the waits of one collection. commits are those that
// journal.Probe.Collect returned after the events were collected. owner returns
// the cgroup that owns an inode.
//
// The time of a phase is divided in proportion: a lock by how long the handles of
// each cgroup were open, ordered data by the bytes of each, log writes by the
// blocks that each dirtied in this transaction, a checkpoint by the blocks that
// each logged lately. Of a commit that still runs, only the time of log writes is kept back.
// A call's own data is its own, and so are the records of the commit of a journal in memory,
// because all else is written before. A flush and the rest are nobody's.
func (l *Ledger) Divide(events Events, commits []journal.Commit, owner func(dev uint32, ino uint64) (cgroup uint64, ok bool)) []Waiter {
	l.init()
	l.round++
	for _, commit := range commits {
		l.record(commit)
	}
	l.learn(events, owner)
	waiters := make(map[Call]*Waiter)
	waiterOf := func(call Call) *Waiter {
		if waiters[call] == nil {
			waiters[call] = &Waiter{Call: call, Calls: make(Histogram)}
		}
		return waiters[call]
	}
	for call, histogram := range events.Calls {
		waiterOf(call).Calls.Add(histogram)
	}
	shares := make(map[Call]map[Culprit]uint64)
	kept := l.pending[:0]
	for _, p := range append(l.pending, waitsOf(events.Waits, l.round)...) {
		if p.wait.Tid != 0 && !p.wait.Memory && !l.isCommitted(p.wait) && l.round-p.round < rememberRounds {
			if ns := p.wait.Nanoseconds[Log]; ns > 0 {
				log := Wait{Call: p.wait.Call, Tid: p.wait.Tid}
				log.Nanoseconds[Log] = ns
				kept = append(kept, pendingWait{log, p.round})
				p.wait.Nanoseconds[Log] = 0
			}
			if p.wait.Nanoseconds == [Phases]uint64{} {
				continue
			}
		}
		waiter := waiterOf(p.wait.Call)
		if shares[p.wait.Call] == nil {
			shares[p.wait.Call] = make(map[Culprit]uint64)
		}
		for phase, ns := range p.wait.Nanoseconds {
			if ns == 0 {
				continue
			}
			waiter.Nanoseconds[phase] += ns
			for cgroup, part := range l.divide(p.wait, Phase(phase), ns) {
				shares[p.wait.Call][Culprit{Cgroup: cgroup, Cause: Phase(phase)}] += part
			}
		}
	}
	l.pending = kept
	l.forget()
	out := make([]Waiter, 0, len(waiters))
	for call, waiter := range waiters {
		for culprit, ns := range shares[call] {
			if culprit.Nanoseconds = ns; ns > 0 {
				waiter.Culprits = append(waiter.Culprits, culprit)
			}
		}
		slices.SortFunc(waiter.Culprits, func(a, b Culprit) int {
			return cmp.Or(cmp.Compare(b.Nanoseconds, a.Nanoseconds), cmp.Compare(a.Cause, b.Cause), cmp.Compare(a.Cgroup, b.Cgroup))
		})
		out = append(out, *waiter)
	}
	slices.SortFunc(out, func(a, b Waiter) int {
		return cmp.Or(cmp.Compare(b.Total(), a.Total()), cmp.Compare(a.Dev, b.Dev),
			cmp.Compare(a.Cgroup, b.Cgroup), cmp.Compare(a.Operation, b.Operation))
	})
	return out
}

// Combine adds the waits of two successive collections, or sums of them. The culprits of a sum are
// in no order.
func Combine(a, b []Waiter) []Waiter {
	if len(a) == 0 {
		return b
	}
	type part struct {
		cgroup uint64
		cause  Phase
	}
	at := make(map[Call]int, len(a))
	for i, waiter := range a {
		at[waiter.Call] = i
	}
	for _, waiter := range b {
		i, known := at[waiter.Call]
		if !known {
			at[waiter.Call] = len(a)
			a = append(a, waiter)
			continue
		}
		sum := &a[i]
		sum.Calls.Add(waiter.Calls)
		for phase, ns := range waiter.Nanoseconds {
			sum.Nanoseconds[phase] += ns
		}
		parts := make(map[part]int, len(sum.Culprits))
		for j, c := range sum.Culprits {
			parts[part{c.Cgroup, c.Cause}] = j
		}
		for _, c := range waiter.Culprits {
			if j, known := parts[part{c.Cgroup, c.Cause}]; known {
				sum.Culprits[j].Nanoseconds += c.Nanoseconds
				continue
			}
			sum.Culprits = append(sum.Culprits, c)
		}
	}
	return a
}

func (l *Ledger) init() {
	if l.transactions == nil {
		l.transactions = make(map[transaction]*contents)
		l.logged = make(map[uint32]map[uint64]float64)
		l.instances = make(map[uint32]uint32)
	}
}

// Logged notes what was logged in journals in memory, ahead of Divide. Whoever logged
// much lately filled the log. It counts lines of the log, and Divide counts blocks; a
// file system has only one of them.
func (l *Ledger) Logged(logs []journal.Log) {
	l.init()
	commits := make(map[uint32]uint64)
	for _, log := range logs {
		commits[log.Dev] += log.Commits
	}
	for dev, n := range commits {
		l.fade(dev, math.Pow(fading, float64(n)))
	}
	for _, log := range logs {
		if log.Bytes == 0 {
			continue
		}
		if l.logged[log.Dev] == nil {
			l.logged[log.Dev] = make(map[uint64]float64)
		}
		l.logged[log.Dev][log.Cgroup] += float64(log.Bytes) / lineBytes
	}
}

// lineBytes is the unit of a journal in memory.
const lineBytes = 64

// fade forgets a part of who filled the log.
func (l *Ledger) fade(dev uint32, kept float64) {
	logged := l.logged[dev]
	for cgroup, blocks := range logged {
		if logged[cgroup] = blocks * kept; logged[cgroup] < 0.01 {
			delete(logged, cgroup)
		}
	}
}

func waitsOf(waits []Wait, round uint64) []pendingWait {
	out := make([]pendingWait, len(waits))
	for i, wait := range waits {
		out[i] = pendingWait{wait, round}
	}
	return out
}

// record notes what a commit contained.
func (l *Ledger) record(commit journal.Commit) {
	if commit.Partial {
		return
	}
	if before, known := l.instances[commit.Dev]; !known || before != commit.Instance {
		// The transactions of another file system have the same numbers.
		for key := range l.transactions {
			if key.dev == commit.Dev && known {
				delete(l.transactions, key)
			}
		}
		delete(l.logged, commit.Dev)
		l.instances[commit.Dev] = commit.Instance
	}
	c := l.of(commit.Dev, commit.Tid)
	c.blocks, c.committed = commit.Dirtied, true
	logged := l.logged[commit.Dev]
	if logged == nil {
		logged = make(map[uint64]float64)
		l.logged[commit.Dev] = logged
	}
	l.fade(commit.Dev, fading)
	for cgroup, blocks := range commit.Dirtied {
		if blocks > 0 {
			logged[cgroup] += float64(blocks)
		}
	}
}

// learn notes what commits waited for.
func (l *Ledger) learn(events Events, owner func(dev uint32, ino uint64) (uint64, bool)) {
	ownerOf := func(dev uint32, ino uint64) uint64 {
		if cgroup, ok := owner(dev, ino); ok {
			return cgroup
		}
		return Nobody
	}
	for _, held := range events.Held {
		cgroup := held.Cgroup
		if cgroup == 0 {
			cgroup = ownerOf(held.Dev, held.Ino)
		}
		l.of(held.Dev, held.Tid).held[cgroup] += int64(held.Nanoseconds)
	}
	for _, ordered := range events.Ordered {
		files := l.of(ordered.Dev, ordered.Tid).files
		f, known := files[ordered.Ino]
		if !known {
			f.owner = ownerOf(ordered.Dev, ordered.Ino)
		}
		f.bytes += ordered.Bytes
		f.waits += ordered.Waits
		files[ordered.Ino] = f
	}
}

func (l *Ledger) of(dev, tid uint32) *contents {
	key := transaction{dev, tid}
	c := l.transactions[key]
	if c == nil {
		c = &contents{held: make(map[uint64]int64), files: make(map[uint64]file)}
		l.transactions[key] = c
	}
	c.round = l.round
	return c
}

func (l *Ledger) isCommitted(wait Wait) bool {
	c := l.transactions[transaction{wait.Dev, wait.Tid}]
	return c != nil && c.committed
}

// divide divides the time of one phase; the sum of the parts is ns.
func (l *Ledger) divide(wait Wait, phase Phase, ns uint64) map[uint64]uint64 {
	parts := map[uint64]int64(nil)
	switch phase {
	case OwnData:
		return map[uint64]uint64{wait.Cgroup: ns}
	case Log:
		if wait.Memory {
			return map[uint64]uint64{wait.Cgroup: ns}
		}
	}
	switch phase {
	case Checkpoint:
		parts = make(map[uint64]int64)
		for cgroup, blocks := range l.logged[wait.Dev] {
			parts[cgroup] = int64(blocks * 1000)
		}
	case Lock, OrderedData, Log:
		c := l.transactions[transaction{wait.Dev, wait.Tid}]
		if c == nil {
			break
		}
		switch phase {
		case Lock:
			parts = c.held
		case OrderedData:
			parts = c.data()
		case Log:
			parts = c.blocks
		}
	}
	for _, weight := range parts {
		if weight > 0 {
			return journal.Split(ns, parts)
		}
	}
	return map[uint64]uint64{Nobody: ns}
}

// forget drops transactions that no call waits for any more.
func (l *Ledger) forget() {
	for key, c := range l.transactions {
		if l.round-c.round > rememberRounds || len(l.transactions) > maxTransactions {
			delete(l.transactions, key)
		}
	}
}
