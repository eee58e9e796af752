package journal

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

func TestSplitKeepsTheTotal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		total := rapid.Uint64().Draw(t, "total")
		parts := rapid.MapOf(rapid.Uint64(), rapid.Int64Range(math.MinInt32, math.MaxInt32)).Draw(t, "parts")
		var sum, positive uint64
		for _, value := range parts {
			if value > 0 {
				positive += uint64(value)
			}
		}
		for key, bytes := range Split(total, parts) {
			sum += bytes
			if positive == 0 {
				if key != RootCgroupID {
					t.Fatalf("no cgroup dirtied, but cgroup %d is charged", key)
				}
				continue
			}
			if parts[key] <= 0 && bytes > 0 {
				t.Fatalf("cgroup %d dirtied %d blocks and is charged %d bytes", key, parts[key], bytes)
			}
			exact := float64(total) * float64(parts[key]) / float64(positive)
			if math.Abs(float64(bytes)-exact) > 1+1e-9*exact {
				t.Fatalf("cgroup %d is charged %d bytes, its proportion is %v", key, bytes, exact)
			}
		}
		if sum != total {
			t.Fatalf("the parts add up to %d of %d", sum, total)
		}
	})
}

func TestSplitGivesRemaindersToTheLargestFractions(t *testing.T) {
	got := Split(11, map[uint64]int64{7: 1, 8: 1, 9: 5, 10: -3})
	want := map[uint64]uint64{7: 2, 8: 1, 9: 8} // 1.57, 1.57, 7.86: then the lower id
	for key, bytes := range want {
		if got[key] != bytes {
			t.Fatalf("Split = %v, want %v", got, want)
		}
	}
}

func TestHandlesSplitsEachCommitByItsOwnTransaction(t *testing.T) {
	got := Handles{}.Attribute(Events{Commits: []Commit{
		{Dev: 1, JournalDisk: 1, JournalBytes: 100, Dirtied: map[uint64]int64{5: 1}},
		{Dev: 1, JournalDisk: 1, JournalBytes: 200, Dirtied: map[uint64]int64{6: 3, 5: 1}},
		{Dev: 2, JournalDisk: 2, JournalBytes: 7},
	}})
	if got[1][5] != 150 || got[1][6] != 150 || got[2][RootCgroupID] != 7 {
		t.Errorf("charges %v, want 150 each on device 1 and 7 for root on device 2", got)
	}
}

func TestHandlesFallsBackToBlocksWhereNoWriteWasSeen(t *testing.T) {
	h := Handles{BlockBytes: func(uint32) uint64 { return 1024 }}
	got := h.Attribute(Events{Commits: []Commit{{Dev: 1, BlocksLogged: 3, Dirtied: map[uint64]int64{5: 1}}}})
	if got[1][5] != 3072 {
		t.Errorf("charges %v, want 3072", got)
	}
}

func TestSyscallsLeavesTheUnexplainedToRoot(t *testing.T) {
	s := Syscalls{Costs: func(uint32) Costs { return Costs{OperationMkdir: 100} }}
	got := s.Attribute(Events{
		Calls:   []Call{{Cgroup: 5, Dev: 1, Operation: OperationMkdir, Count: 3}},
		Commits: []Commit{{Dev: 1, JournalBytes: 1000}, {Dev: 2, JournalBytes: 50}},
	})
	if got[1][5] != 300 || got[1][RootCgroupID] != 700 || got[2][RootCgroupID] != 50 {
		t.Errorf("charges %v", got)
	}
}

func TestHandlesOfALostCommitAreAddedToTheNext(t *testing.T) {
	commits := []Commit{{Dev: 1, Tid: 5}, {Dev: 2, Tid: 9}, {Dev: 1, Tid: 7}, {Dev: 3, Tid: 1}}
	cases := []struct {
		dev, tid uint32
		want     *Commit
	}{
		{1, 5, &commits[0]},
		{1, 6, &commits[2]},
		{1, 8, nil},
		{2, 9, &commits[1]},
		{3, math.MaxUint32, &commits[3]}, // numbers wrap around
	}
	if got := commitOf(commits, Filesystem{Dev: 1, Instance: 1}, 5); got != nil {
		t.Errorf("a transaction of another file system on device 1 goes with %v", got)
	}
	for _, c := range cases {
		if got := commitOf(commits, Filesystem{Dev: c.dev}, c.tid); got != c.want {
			t.Errorf("transaction %d of device %d goes with %v, want %v", c.tid, c.dev, got, c.want)
		}
	}
}
