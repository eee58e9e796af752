package control

import (
	"errors"
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/daybook-project/daybook/internal/filetest"
)

// A cgroup that leaves the plan and returns has only the record of its last weight,
// in whatever slot.
func TestAReturningCgroupHasOneRecord(t *testing.T) {
	for _, order := range [][]uint64{{1, 2}, {2, 1}} {
		for _, returns := range order {
			dir := t.TempDir()
			l, err := newWrittenLog(dir, "loop0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.close()
			note := func(id, weight uint64) {
				t.Helper()
				if err := l.note(id, written{Setting: Setting{Default: 100, Device: weight}, Intended: weight}); err != nil {
					t.Fatal(err)
				}
			}
			for _, id := range []uint64{1, 2, 3} {
				note(id, 200)
			}
			for _, id := range order {
				l.forget(id)
			}
			note(returns, 300)
			got := readWritten(dir, "loop0")
			if ids := slices.Sorted(maps.Keys(got)); !slices.Equal(ids, []uint64{returns, 3}) {
				t.Errorf("forget %v, then %d: records of %v", order, returns, ids)
			}
			if got[returns].Device != 300 || got[3].Device != 200 {
				t.Errorf("forget %v, then %d: %+v", order, returns, got)
			}
			if info, err := l.file.Stat(); err != nil || info.Size() != 3*recordBytes {
				t.Errorf("%v, %v; want three slots", info, err)
			}
		}
	}
}

// A record that cannot be overwritten keeps its slot: a returning cgroup gets its
// new record there.
func TestARecordThatCannotBeForgottenKeepsItsSlot(t *testing.T) {
	dir := t.TempDir()
	l, err := newWrittenLog(dir, "loop0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	for _, id := range []uint64{1, 2} {
		if err := l.note(id, written{Intended: 200}); err != nil {
			t.Fatal(err)
		}
	}
	writable := l.file
	if l.file, err = os.Open(writtenPath(dir, "loop0")); err != nil {
		t.Fatal(err)
	}
	l.forget(1)
	if err := l.file.Close(); err != nil {
		t.Fatal(err)
	}
	l.file = writable
	for id, weight := range map[uint64]uint64{1: 300, 3: 400} {
		if err := l.note(id, written{Intended: weight}); err != nil {
			t.Fatal(err)
		}
	}
	got := readWritten(dir, "loop0")
	if len(got) != 3 || got[1].Intended != 300 || got[2].Intended != 200 || got[3].Intended != 400 {
		t.Errorf("%+v", got)
	}
}

// Records of an earlier version, which knew write limits only, are read.
func TestARecordOfAnEarlierVersionIsRead(t *testing.T) {
	id, w, ok := parseWritten("7 100 200 300 40 50          ")
	want := written{Setting: Setting{Default: 100, Device: 200}, Intended: 300, Limit: Limits{Write: 40}, IntendedLimit: Limits{Write: 50}, unitUnknown: true}
	if id != 7 || w != want || !ok {
		t.Errorf("%d, %+v, %v", id, w, ok)
	}
	for _, line := range []string{"", "7 100 200 300 40", "7 100 200 300 40 50 60", "7 100 200 300 40 50 60 70 80", "7 100 x 300 40 50"} {
		if _, _, ok := parseWritten(line); ok {
			t.Errorf("%q was read", line)
		}
	}
}

// Without the log every setting is restored, so that nothing of control's stays.
func TestALogThatOthersCouldWriteIsNotUsed(t *testing.T) {
	dir := t.TempDir()
	l, err := newWrittenLog(dir, "loop0")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(l.note(1, written{Intended: 200}), l.close()); err != nil {
		t.Fatal(err)
	}
	filetest.EachRefused(t, writtenPath(dir, "loop0"), recordBytes, func(way, _ string) {
		if got := readWritten(dir, "loop0"); got != nil {
			t.Errorf("%s: %+v", way, got)
		}
	})
	if got := readWritten(dir, "loop0"); len(got) != 1 {
		t.Errorf("afterwards: %+v", got)
	}
}
