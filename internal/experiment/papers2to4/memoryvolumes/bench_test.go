package memoryvolumes

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/experiment/report"
)

// samplesOf has each arrangement next to each neighbour, with a rate and a p99 of its own.
func samplesOf(o Options, change func(*Sample)) (all []Sample) {
	for range o.Rounds {
		for _, arrangement := range o.Arrangements {
			for _, neighbour := range o.Neighbours {
				s := Sample{
					Arrangement: arrangement, Neighbour: neighbour,
					Writer:    WriterResult{Syncs: 4000, Seconds: 1, SyncP50Seconds: 1e-3, SyncP99Seconds: 2e-3},
					Container: Writes{Count: 8000, Bytes: 70}, NeighbourIO: Writes{Bytes: 30}, Commits: 4000,
				}
				if arrangement == Shared || arrangement == SharedOrdered {
					s.Writer.Seconds = 4
				}
				if inMemory(arrangement) {
					s.Writer.Syncs, s.Writer.Seconds = wantedSyncs, 2.5
				}
				if neighbour != Alone && inMemory(arrangement) {
					// The mean of the two is the p99 next to the neighbour.
					s.AloneBefore = &WriterResult{Syncs: wantedSyncs, SyncP99Seconds: 1e-3}
					s.AloneAfter = &WriterResult{Syncs: wantedSyncs, SyncP99Seconds: 3e-3}
				}
				change(&s)
				all = append(all, s)
			}
		}
	}
	return all
}

func resultOf(t *testing.T, change func(*Sample)) Result {
	t.Helper()
	o := Full
	all, err := runs(o, samplesOf(o, change))
	if err != nil {
		t.Fatal(err)
	}
	return Result{Runs: all, Rounds: o.Rounds}
}

func TestVerdictsFollowTheGoals(t *testing.T) {
	if err := resultOf(t, func(*Sample) {}).Check(); err != nil {
		t.Error(err)
	}
	for _, c := range []struct {
		what, says string
		change     func(*Sample)
	}{
		{"a slow sync next to a neighbour", "memory-data: p99 of a sync next to the neighbour low-fsync", func(s *Sample) {
			if s.Arrangement == MemoryData && s.Neighbour == LowFsync {
				s.Writer.SyncP99Seconds *= 1.21
			}
		}},
		{"faster alone, before", "memory: p99 of a sync next to the neighbour limited, over that alone: 1.25×", func(s *Sample) {
			if s.Arrangement == Memory && s.Neighbour == Limited {
				s.AloneBefore.SyncP99Seconds = 0.2e-3
			}
		}},
		{"too few alone", "memory: p99 of a sync next to the neighbour limited, over that alone: no verdict", func(s *Sample) {
			if s.Arrangement == Memory && s.Neighbour == Limited {
				s.AloneAfter.Syncs = wantedSyncs - 1
			}
		}},
		{"too few next to the neighbour, although enough in all rounds together", "memory: p99 of a sync next to the neighbour limited, over that alone: no verdict", func(s *Sample) {
			if s.Arrangement == Memory && s.Neighbour == Limited {
				s.Writer.Syncs = wantedSyncs - 1
			}
		}},
		{"a fast shared file system", "memory: syncs a second next to the neighbour high-fsync, over shared:", func(s *Sample) {
			if s.Arrangement == Shared {
				s.Writer.Seconds = 1.4
			}
		}},
		{"a fast ordered one", "over shared-ordered: 3.00×", func(s *Sample) {
			if s.Arrangement == SharedOrdered {
				s.Writer.Seconds = 3
			}
		}},
		{"too few syncs", "no verdict", func(s *Sample) { s.Writer.Syncs = 3000 }},
	} {
		err := resultOf(t, c.change).Check()
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}

// With MariaDB the goals are the same, for transactions.
func TestVerdictsOfMariaDBAreOfTransactions(t *testing.T) {
	result := resultOf(t, func(s *Sample) {
		if s.Writer.Syncs = wantedTransactions; inMemory(s.Arrangement) {
			s.Writer.Seconds = 0.5
			if s.Neighbour != Alone {
				s.AloneBefore.Syncs, s.AloneAfter.Syncs = wantedTransactions, wantedTransactions
			}
		}
	})
	result.Load = MariaDB
	if err := result.Check(); err != nil {
		t.Error(err)
	}
	result = resultOf(t, func(s *Sample) {
		if s.Neighbour == HighFsync {
			s.Writer.SyncP99Seconds *= 1.21
		}
	})
	result.Load = MariaDB
	if err := result.Check(); err == nil || !strings.Contains(err.Error(), "memory: p99 of a transaction next to the neighbour high-fsync") {
		t.Errorf("%v", err)
	}
	for _, table := range result.mustReport(t).Tables[1:] {
		if table.Columns[1] != "transactions a second" || table.Columns[2] != "mean ms" {
			t.Errorf("%s: %q", table.Title, table.Columns)
		}
	}
}

func (r Result) mustReport(t *testing.T) report.Report {
	t.Helper()
	page, err := r.Report()
	if err != nil {
		t.Fatal(err)
	}
	return page
}

func TestNoMeasurementMayBeMissing(t *testing.T) {
	all := samplesOf(Full, func(*Sample) {})
	if _, err := runs(Full, all[1:]); err == nil {
		t.Error("a missing measurement was not noticed")
	}
	last := &all[len(all)-1]
	around := last.AloneAfter
	last.AloneAfter = nil
	if _, err := runs(Full, all); err == nil {
		t.Error("a missing measurement alone was not noticed")
	}
	last.AloneAfter = around
	all[3].Writer.Syncs = 0
	if _, err := runs(Full, all); err == nil {
		t.Error("a measurement without syncs was not noticed")
	}
}

func TestThePageHasEachMeasurement(t *testing.T) {
	for _, load := range Loads() {
		t.Run(load, func(t *testing.T) { pageHasAll(t, load) })
	}
}

func pageHasAll(t *testing.T, load string) {
	result := resultOf(t, func(*Sample) {})
	result.Load = load
	page := result.mustReport(t)
	rows := 0
	for _, table := range page.Tables[1:] {
		for _, row := range table.Rows {
			if rows++; len(row) != len(table.Columns) {
				t.Errorf("%s: %d cells in %d columns", table.Title, len(row), len(table.Columns))
			}
		}
	}
	if rows != len(Arrangements())*len(Neighbours()) {
		t.Errorf("%d rows", rows)
	}
}

// Each measurement next to a neighbour is between two without it, whatever neighbour is the first.
func TestTheMeasurementsAroundAreThoseWithoutTheNeighbour(t *testing.T) {
	for first, want := range map[string]struct {
		neighbours []string
		syncs      [][3]uint64 // before, next to the neighbour, after; 0: none
	}{
		"a neighbour": {[]string{HighFsync, Limited}, [][3]uint64{{1, 2, 3}, {3, 4, 5}}},
		"none":        {[]string{Alone, HighFsync}, [][3]uint64{{0, 1, 0}, {1, 2, 3}}},
	} {
		p := &pair{asked: nativeCase{Arrangement: Memory}}
		var measured []string
		measure := func(_ context.Context, neighbour string) (Sample, error) {
			measured = append(measured, neighbour)
			return Sample{Neighbour: neighbour, Writer: WriterResult{Syncs: uint64(len(measured))}}, nil
		}
		var got [][3]uint64
		for _, neighbour := range want.neighbours {
			sample, err := p.measureAround(t.Context(), neighbour, measure)
			if err != nil || sample.Neighbour != neighbour {
				t.Fatalf("%s first: %+v, %v", first, sample, err)
			}
			around := [3]uint64{1: sample.Writer.Syncs}
			if sample.AloneBefore != nil {
				around[0], around[2] = sample.AloneBefore.Syncs, sample.AloneAfter.Syncs
			}
			got = append(got, around)
		}
		if !slices.Equal(got, want.syncs) {
			t.Errorf("%s first: %v of %q; want %v", first, got, measured, want.syncs)
		}
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for _, change := range []func(*Options){
		func(o *Options) { o.Arrangements = nil }, func(o *Options) { o.Neighbours = []string{Alone, Alone} },
		func(o *Options) { o.Arrangements = []string{"none"} }, func(o *Options) { o.Rounds = 0 },
		func(o *Options) { o.MostMilliseconds = o.LeastMilliseconds - 1 }, func(o *Options) { o.Load = "mysql" },
		func(o *Options) { o.JudgedSyncs = 0 },
	} {
		o := Full
		change(&o)
		if o.Check() == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
	if err := Full.Check(); err != nil {
		t.Error(err)
	}
	if Full.Syncs*uint64(Full.Rounds) < wantedSyncs || Full.JudgedSyncs < wantedSyncs {
		t.Error("the full benchmark has too few syncs for a verdict")
	}
}

func TestCountersAreRead(t *testing.T) {
	dev := blockdev.Dev{Major: 250, Minor: 0}
	w, err := parseWrites("7:0 rbytes=1 wbytes=2 wios=3\n250:0 rbytes=0 wbytes=8192 rios=0 wios=2 dbytes=0 dios=0\n", dev)
	if err != nil || w != (Writes{Count: 2, Bytes: 8192}) {
		t.Errorf("%+v, %v", w, err)
	}
	if w, err := parseWrites("", dev); err != nil || w != (Writes{}) {
		t.Errorf("%+v, %v", w, err)
	}
	if n, err := parseCommits("42 transactions (40 requested), each up to 8192 blocks\naverage:\n"); err != nil || n != 42 {
		t.Errorf("%d, %v", n, err)
	}
	if _, err := parseCommits("average:"); err == nil {
		t.Error("no statistics of jbd2 were accepted")
	}
	if n, err := counter("device memory0\ncommits 17\ncommits_merged 3\n", "commits"); err != nil || n != 17 {
		t.Errorf("%d, %v", n, err)
	}
	if _, err := counter("device memory0\n", "commits"); err == nil {
		t.Error("a missing counter was not noticed")
	}
}

func TestTheAnswerOfAWriterIsRead(t *testing.T) {
	got, err := parseWriter(`{"bytes": 8192, "seconds": 0.500000000, "syncs": 2, "sync_p50_seconds": 0.000001000, "sync_p99_seconds": 0.000002000, "sync_max_seconds": 0.000003000, "waits": 5, "preempted": 7}` + "\n")
	want := WriterResult{Bytes: 8192, Seconds: 0.5, Syncs: 2, SyncP50Seconds: 1e-6, SyncP99Seconds: 2e-6, SyncMaxSeconds: 3e-6, Waits: 5, Preempted: 7}
	if err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := parseWriter(""); err == nil {
		t.Error("no answer was accepted")
	}
}

func TestALineOfAWriter(t *testing.T) {
	w := writer{path: "/tmp/a/log", writeBytes: 4096, syncBytes: 4096, fileBytes: 1 << 20, syncs: 100, leastMilliseconds: 10, mostMilliseconds: 1000}
	if got := w.line(); got != "/tmp/a/log 4096 4096 1048576 100 10 1000" {
		t.Errorf("%q", got)
	}
}
