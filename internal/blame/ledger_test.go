package blame

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/daybook-project/daybook/internal/journal"
)

const (
	dev       = 7 << 20
	waiting   = 100 // cgroups
	neighbour = 200
	third     = 300
)

var fsyncs = Call{Dev: dev, Cgroup: waiting, Operation: Fsync}

func waited(tid uint32, phase Phase, ns uint64) Wait {
	w := Wait{Call: fsyncs, Tid: tid}
	w.Nanoseconds[phase] = ns
	return w
}

// owners are the owners of inodes in these tests.
func owners(of map[uint64]uint64) func(uint32, uint64) (uint64, bool) {
	return func(_ uint32, ino uint64) (uint64, bool) {
		cgroup, ok := of[ino]
		return cgroup, ok
	}
}

func committed(tid uint32, dirtied map[uint64]int64) journal.Commit {
	return journal.Commit{Dev: dev, Tid: tid, Dirtied: dirtied}
}

// blamed divides one interval and returns the culprits of the only waiter.
func blamed(t *testing.T, l *Ledger, events Events, commits []journal.Commit, of map[uint64]uint64) []Culprit {
	t.Helper()
	waiters := l.Divide(events, commits, owners(of))
	if len(waiters) != 1 || waiters[0].Call != fsyncs {
		t.Fatalf("waiters: %+v", waiters)
	}
	return waiters[0].Culprits
}

func wantCulprits(t *testing.T, got []Culprit, want ...Culprit) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("culprits %+v; want %+v", got, want)
	}
}

func TestALockIsTheirsWhoseHandlesWereOpen(t *testing.T) {
	var l Ledger
	got := blamed(t, &l, Events{
		Waits: []Wait{waited(5, Lock, 1000)},
		Held: []Held{
			{Dev: dev, Tid: 5, Cgroup: neighbour, Nanoseconds: 300},
			{Dev: dev, Tid: 5, Ino: 12, Nanoseconds: 100}, // a kernel thread
			{Dev: dev, Tid: 6, Cgroup: 400, Nanoseconds: 900},
		},
	}, []journal.Commit{committed(5, nil)}, map[uint64]uint64{12: third})
	wantCulprits(t, got, Culprit{neighbour, Lock, 750}, Culprit{third, Lock, 250})
}

func TestOrderedDataIsDividedByBytes(t *testing.T) {
	var l Ledger
	got := blamed(t, &l, Events{
		Waits: []Wait{waited(5, OrderedData, 1000)},
		Ordered: []Ordered{
			{Dev: dev, Tid: 5, Ino: 12, Bytes: 3 << 20, Waits: 2},
			{Dev: dev, Tid: 5, Ino: 13, Bytes: 1 << 20, Waits: 500},
			{Dev: dev, Tid: 5, Ino: 14, Bytes: 1 << 30}, // not ordered
		},
	}, []journal.Commit{committed(5, nil)}, map[uint64]uint64{12: neighbour, 13: waiting, 14: third})
	wantCulprits(t, got, Culprit{neighbour, OrderedData, 750}, Culprit{waiting, OrderedData, 250})
}

// The kernel side can be read between the bytes of a file and its first page that
// the commit waits for.
func TestAFileThatIsReadInPartsIsOne(t *testing.T) {
	var l Ledger
	l.Divide(Events{Ordered: []Ordered{{Dev: dev, Tid: 5, Ino: 12, Bytes: 4096}}}, nil, owners(map[uint64]uint64{12: neighbour}))
	got := blamed(t, &l, Events{
		Waits:   []Wait{waited(5, OrderedData, 1000)},
		Ordered: []Ordered{{Dev: dev, Tid: 5, Ino: 12, Waits: 1}},
	}, []journal.Commit{committed(5, nil)}, nil)
	wantCulprits(t, got, Culprit{neighbour, OrderedData, 1000})
}

func TestPagesCountWhereNoBytesWereSeen(t *testing.T) {
	var l Ledger
	got := blamed(t, &l, Events{
		Waits:   []Wait{waited(5, OrderedData, 1000)},
		Ordered: []Ordered{{Dev: dev, Tid: 5, Ino: 12, Waits: 3}, {Dev: dev, Tid: 5, Ino: 13, Waits: 1}},
	}, []journal.Commit{committed(5, nil)}, map[uint64]uint64{12: neighbour, 13: third})
	wantCulprits(t, got, Culprit{neighbour, OrderedData, 750}, Culprit{third, OrderedData, 250})
}

func TestLogWritesAreTheirsWhoDirtiedTheTransaction(t *testing.T) {
	var l Ledger
	got := blamed(t, &l, Events{Waits: []Wait{waited(5, Log, 1000)}},
		[]journal.Commit{committed(4, map[uint64]int64{third: 50}), committed(5, map[uint64]int64{neighbour: 6, waiting: 2, third: -1})}, nil)
	wantCulprits(t, got, Culprit{neighbour, Log, 750}, Culprit{waiting, Log, 250})
}

func TestACheckpointIsTheirsWhoFilledTheLogLately(t *testing.T) {
	var l Ledger
	var commits []journal.Commit
	for tid := range uint32(100) {
		commits = append(commits, committed(tid, map[uint64]int64{third: 100}))
	}
	for tid := range uint32(300) {
		commits = append(commits, committed(100+tid, map[uint64]int64{neighbour: 30, waiting: 10}))
	}
	got := blamed(t, &l, Events{Waits: []Wait{waited(0, Checkpoint, 1000)}}, commits, nil)
	wantCulprits(t, got, Culprit{neighbour, Checkpoint, 750}, Culprit{waiting, Checkpoint, 250})
}

func TestOwnDataIsTheWaitersAndAFlushIsNobodys(t *testing.T) {
	var l Ledger
	wait := Wait{Call: fsyncs}
	wait.Nanoseconds[OwnData], wait.Nanoseconds[Flush], wait.Nanoseconds[Rest] = 5, 4, 3
	got := blamed(t, &l, Events{Waits: []Wait{wait}}, nil, nil)
	wantCulprits(t, got, Culprit{waiting, OwnData, 5}, Culprit{Nobody, Flush, 4}, Culprit{Nobody, Rest, 3})
}

func TestAnUnknownCauseIsNobodys(t *testing.T) {
	var l Ledger
	got := blamed(t, &l, Events{
		Waits:   []Wait{waited(5, Lock, 3), waited(5, OrderedData, 5), waited(0, Checkpoint, 4), waited(5, Log, 6)},
		Ordered: []Ordered{{Dev: dev, Tid: 5, Ino: 12, Bytes: 100, Waits: 1}}, // of no known owner
	}, []journal.Commit{committed(5, nil)}, nil)
	wantCulprits(t, got, Culprit{Nobody, Log, 6}, Culprit{Nobody, OrderedData, 5}, Culprit{Nobody, Checkpoint, 4}, Culprit{Nobody, Lock, 3})
}

func TestAWaitIsKeptBackUntilItsCommitIsKnown(t *testing.T) {
	var l Ledger
	events := Events{Waits: []Wait{waited(5, Log, 1000)}, Calls: map[Call]Histogram{fsyncs: {10: 1}}}
	got := blamed(t, &l, events, nil, nil)
	wantCulprits(t, got)
	got = blamed(t, &l, Events{}, []journal.Commit{committed(5, map[uint64]int64{neighbour: 1})}, nil)
	wantCulprits(t, got, Culprit{neighbour, Log, 1000})
}

// A commit in progress is reported too, before all that belongs to it is known.
func TestAWaitIsKeptBackUntilItsCommitHasEnded(t *testing.T) {
	var l Ledger
	partial := committed(5, map[uint64]int64{third: 1})
	partial.Partial = true
	got := blamed(t, &l, Events{Waits: []Wait{waited(5, Log, 1000)}, Calls: map[Call]Histogram{fsyncs: {10: 1}}}, []journal.Commit{partial}, nil)
	wantCulprits(t, got)
	got = blamed(t, &l, Events{}, []journal.Commit{committed(5, map[uint64]int64{neighbour: 1})}, nil)
	wantCulprits(t, got, Culprit{neighbour, Log, 1000})
}

// A handle waits only for the first part of a commit. That part is over, and its causes are
// known, while the commit still runs.
func TestOnlyTheLogOfAWaitIsKeptBackUntilItsCommitIsKnown(t *testing.T) {
	var l Ledger
	wait := waited(5, Lock, 1000)
	wait.Nanoseconds[OrderedData], wait.Nanoseconds[Log] = 200, 100
	got := blamed(t, &l, Events{
		Waits:   []Wait{wait},
		Held:    []Held{{Dev: dev, Tid: 5, Cgroup: neighbour, Nanoseconds: 300}},
		Ordered: []Ordered{{Dev: dev, Tid: 5, Ino: 12, Bytes: 4096, Waits: 1}},
	}, nil, map[uint64]uint64{12: third})
	wantCulprits(t, got, Culprit{neighbour, Lock, 1000}, Culprit{third, OrderedData, 200})
	got = blamed(t, &l, Events{}, []journal.Commit{committed(5, map[uint64]int64{neighbour: 1})}, nil)
	wantCulprits(t, got, Culprit{neighbour, Log, 100})
}

// The record of a commit can be lost.
func TestAWaitWithoutACommitIsNotLost(t *testing.T) {
	var l Ledger
	var sum uint64
	events := Events{Waits: []Wait{waited(5, Log, 1000)}}
	for range rememberRounds + 1 {
		for _, w := range l.Divide(events, nil, owners(nil)) {
			sum += w.Total()
		}
		events = Events{}
	}
	if sum != 1000 {
		t.Errorf("%d ns of 1000", sum)
	}
}

func TestAnotherFileSystemDoesNotInheritTransactions(t *testing.T) {
	var l Ledger
	l.Divide(Events{}, []journal.Commit{committed(5, map[uint64]int64{third: 1})}, owners(nil))
	next := committed(6, map[uint64]int64{neighbour: 1})
	next.Instance = 1
	l.Divide(Events{}, []journal.Commit{next}, owners(nil))
	if len(l.transactions) != 1 || l.logged[dev][third] != 0 {
		t.Errorf("remembers %v and %v", l.transactions, l.logged)
	}
}

func TestOldTransactionsAreForgotten(t *testing.T) {
	var l Ledger
	for tid := range uint32(1000) {
		l.Divide(Events{}, []journal.Commit{committed(tid, nil)}, owners(nil))
	}
	if len(l.transactions) > rememberRounds+1 {
		t.Errorf("remembers %d transactions", len(l.transactions))
	}
}

// Whatever was seen: no time is lost or invented, in any phase.
func TestTheCulpritsOfAWaitAddUpToIt(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	pick := func() uint64 { return []uint64{waiting, neighbour, third, 1}[random.IntN(4)] }
	for range 300 {
		var l Ledger
		var put, got [Phases]uint64
		tid := uint32(random.Uint32())
		for range 20 {
			var events Events
			var commits []journal.Commit
			for range random.IntN(4) {
				tid++
				dirtied := make(map[uint64]int64)
				for range random.IntN(4) {
					dirtied[pick()] = random.Int64N(1000) - 100
				}
				if random.IntN(10) > 0 { // else the record is lost
					commits = append(commits, committed(tid, dirtied))
				}
				for range random.IntN(3) {
					events.Held = append(events.Held, Held{Dev: dev, Tid: tid, Cgroup: pick() * random.Uint64N(2), Ino: random.Uint64N(5), Nanoseconds: random.Uint64N(1 << 40)})
					events.Ordered = append(events.Ordered, Ordered{Dev: dev, Tid: tid, Ino: random.Uint64N(5), Bytes: random.Uint64N(1 << 30), Waits: random.Uint64N(3)})
				}
			}
			for range random.IntN(5) {
				w := Wait{Call: Call{Dev: dev, Cgroup: pick(), Operation: Operation(random.IntN(5))}, Tid: (tid - random.Uint32N(3)) * random.Uint32N(2)}
				for phase := range w.Nanoseconds {
					w.Nanoseconds[phase] = random.Uint64N(1<<40) * random.Uint64N(2)
					put[phase] += w.Nanoseconds[phase]
				}
				events.Waits = append(events.Waits, w)
			}
			add(t, &got, l.Divide(events, commits, owners(map[uint64]uint64{1: neighbour, 2: third})))
		}
		for range rememberRounds + 1 {
			add(t, &got, l.Divide(Events{}, nil, owners(nil)))
		}
		if put != got {
			t.Fatalf("put %v, got %v", put, got)
		}
	}
}

// add adds up the culprits and compares them with the phases.
func add(t *testing.T, sum *[Phases]uint64, waiters []Waiter) {
	t.Helper()
	for _, w := range waiters {
		var of [Phases]uint64
		for _, c := range w.Culprits {
			of[c.Cause] += c.Nanoseconds
			sum[c.Cause] += c.Nanoseconds
		}
		if of != w.Nanoseconds {
			t.Fatalf("the culprits have %v of %v", of, w.Nanoseconds)
		}
	}
}

// A journal in memory: its commits are in no other account, their records are the
// waiter's own, and who logged much lately filled the log.
func TestWaitsOnAJournalInMemoryAreDividedAtOnce(t *testing.T) {
	var l Ledger
	memory := func(tid uint32, phase Phase, ns uint64) Wait {
		w := waited(tid, phase, ns)
		w.Memory = tid != 0
		return w
	}
	l.Logged([]journal.Log{{Dev: dev, Cgroup: third, Bytes: 640, Commits: 1}})
	l.Logged([]journal.Log{{Dev: dev, Cgroup: neighbour, Bytes: 64 * 1000, Commits: 200}, {Dev: dev, Cgroup: waiting}})
	got := blamed(t, &l, Events{
		Waits: []Wait{memory(1, Lock, 1000), memory(1, Log, 70), memory(0, Checkpoint, 500)},
		Held:  []Held{{Dev: dev, Tid: 1, Cgroup: neighbour, Nanoseconds: 300}},
	}, nil, nil)
	if len(got) < 3 {
		t.Fatalf("culprits %+v", got)
	}
	wantCulprits(t, got[:3], Culprit{neighbour, Lock, 1000}, Culprit{neighbour, Checkpoint, got[1].Nanoseconds}, Culprit{waiting, Log, 70})
	if got[1].Nanoseconds < 495 {
		t.Errorf("the neighbour, who logged a hundred times as much, has %d of 500 ns of the checkpoint", got[1].Nanoseconds)
	}
}

func TestWaitsOfTwoIntervalsAreAddedUp(t *testing.T) {
	other := Call{Dev: dev, Cgroup: third, Operation: Handle}
	first := []Waiter{{Call: fsyncs, Calls: Histogram{10: 1}, Nanoseconds: [Phases]uint64{Lock: 5}, Culprits: []Culprit{{neighbour, Lock, 5}}}}
	second := []Waiter{
		{Call: fsyncs, Calls: Histogram{10: 2, 11: 1}, Nanoseconds: [Phases]uint64{Lock: 7, Log: 1}, Culprits: []Culprit{{neighbour, Lock, 4}, {third, Lock, 3}, {neighbour, Log, 1}}},
		{Call: other, Calls: Histogram{3: 1}, Nanoseconds: [Phases]uint64{Rest: 2}, Culprits: []Culprit{{Nobody, Rest, 2}}},
	}
	got := Combine(Combine(nil, first), second)
	want := []Waiter{
		{Call: fsyncs, Calls: Histogram{10: 3, 11: 1}, Nanoseconds: [Phases]uint64{Lock: 12, Log: 1}, Culprits: []Culprit{{neighbour, Lock, 9}, {third, Lock, 3}, {neighbour, Log, 1}}},
		second[1],
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v; want %+v", got, want)
	}
}
