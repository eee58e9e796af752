package journal

import (
	"math/rand/v2"
	"reflect"
	"testing"
)

// What is charged does not depend on how often the events were collected, and the combined
// events of a long time are few.
func TestCombinedEventsAreChargedAsTheirParts(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	estimator := Handles{BlockBytes: func(uint32) uint64 { return 4096 }}
	for range 100 {
		var all, combined Events
		want := Combined{Forced: map[uint64]uint64{}}
		var seconds float64
		logged := map[Filesystem]map[uint64]uint64{{Dev: 7}: {}, {Dev: 8}: {}}
		for tid := range uint32(200) {
			c := Commit{
				Dev: 7 + uint32(random.IntN(2)), JournalDisk: uint32(random.IntN(2)), Tid: tid, Partial: random.IntN(9) == 0,
				Dirtied: map[uint64]int64{1: int64(random.IntN(3)), 20: int64(random.IntN(90)) - 5, 30: int64(random.IntN(50))},
			}
			if c.JournalDisk != 0 && random.IntN(4) > 0 { // else all of it was returned before its end
				c.JournalBytes = uint64(random.IntN(1 << 20))
			}
			if !c.Partial {
				c.BlocksLogged, c.DurationSeconds, c.ForcedBy = uint32(random.IntN(300)), float64(random.IntN(3)), uint64(random.IntN(2))*20
				want.Commits++
				seconds += c.DurationSeconds
				if c.DurationSeconds > 0 {
					want.Timed++
				}
				if c.ForcedBy != 0 {
					want.Forced[c.ForcedBy]++
				}
			}
			for cgroup, bytes := range c.Logged(4096) {
				logged[c.Filesystem()][cgroup] += bytes
			}
			one := Events{
				Commits: []Commit{c}, Lost: 2, OwnersForgotten: 3,
				Writes: []Write{{Disk: 7, Kind: KindData, Charged: 1, Owner: 20, Bytes: 5}, {Disk: 7, Kind: KindJournal, Charged: uint64(1 + tid%2), Bytes: 1}},
				Logs:   []Log{{Dev: 7, Cgroup: 20, Bytes: 64, Blocks: 1, Handles: 2, Commits: 3, Forced: 1}},
			}
			all.Commits = append(all.Commits, c)
			combined = combined.Combine(one)
		}
		if len(combined.Commits) > 8 {
			t.Fatalf("%d commits are left, want one for each file system and journal disk", len(combined.Commits))
		}
		if got, whole := estimator.Attribute(combined), estimator.Attribute(all); !reflect.DeepEqual(got, whole) {
			t.Fatalf("charged %v; want %v", got, whole)
		}
		got := Combined{Forced: map[uint64]uint64{}}
		for _, c := range combined.Commits {
			counts := c.Counts()
			got.Commits, got.Timed = got.Commits+counts.Commits, got.Timed+counts.Timed
			seconds -= c.DurationSeconds
			for cgroup, n := range counts.Forced {
				got.Forced[cgroup] += n
			}
		}
		if !reflect.DeepEqual(got, want) || seconds != 0 {
			t.Fatalf("%+v, %g s less; want %+v", got, seconds, want)
		}
		for _, c := range combined.Commits {
			for cgroup, bytes := range c.Logged(4096) {
				logged[c.Filesystem()][cgroup] -= bytes
			}
		}
		for fs, sums := range logged {
			for cgroup, bytes := range sums {
				if bytes != 0 {
					t.Fatalf("of what cgroup %d logged in %+v, %d bytes are missing", cgroup, fs, int64(bytes))
				}
			}
		}
		combined.Commits = nil
		sums := Events{
			Lost: 400, OwnersForgotten: 600,
			Writes: []Write{
				{Disk: 7, Kind: KindData, Charged: 1, Owner: 20, Bytes: 1000},
				{Disk: 7, Kind: KindJournal, Charged: 1, Bytes: 100}, {Disk: 7, Kind: KindJournal, Charged: 2, Bytes: 100},
			},
			Logs: []Log{{Dev: 7, Cgroup: 20, Bytes: 12800, Blocks: 200, Handles: 400, Commits: 600, Forced: 200}},
		}
		if !reflect.DeepEqual(combined, sums) {
			t.Fatalf("%+v; want %+v", combined, sums)
		}
	}
}

// What was returned of a commit before its end does not matter for who logged its blocks.
func TestACommitWhoseBytesWereReturnedBeforeItsEndHasItsLoggedBlocksAllTheSame(t *testing.T) {
	first := Commit{Dev: 7, JournalDisk: 7, BlocksLogged: 1000, JournalBytes: 40960, Dirtied: map[uint64]int64{20: 1000}}
	second := Commit{Dev: 7, JournalDisk: 7, BlocksLogged: 1000, JournalBytes: 4096000, Dirtied: map[uint64]int64{30: 10}}
	returned := Commit{Dev: 7, JournalDisk: 7, BlocksLogged: 500, Dirtied: map[uint64]int64{40: 1, 20: 1}}
	events := Events{Commits: []Commit{first}}.Combine(Events{Commits: []Commit{second}}).Combine(Events{Commits: []Commit{returned}})
	want := map[uint64]uint64{20: 1250 * 1024, 30: 1000 * 1024, 40: 250 * 1024}
	if got := events.Commits[0].Logged(1024); !reflect.DeepEqual(got, want) {
		t.Errorf("logged %v, want %v", got, want)
	}
}
