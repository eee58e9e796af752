package fio

import (
	"math"
	"testing"
)

func TestResultsOfFio333(t *testing.T) {
	near := func(a, b float64) bool { return math.Abs(a-b) <= 1e-12*math.Max(math.Abs(a), 1) }
	for file, want := range map[string]Result{
		"no-fsync.json": {Seconds: 1.501, WrittenBytes: 927563776},
		"high-fsync.json": {
			Seconds: 1.501, WrittenBytes: 431276032, Syncs: 26323,
			SyncMeanSeconds: 54492.405045e-9, SyncP50Seconds: 49920e-9, SyncP99Seconds: 128512e-9,
		},
	} {
		got, err := parseFile(t, file)
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		if got.Syncs != want.Syncs || got.WrittenBytes != want.WrittenBytes || !near(got.Seconds, want.Seconds) ||
			!near(got.SyncMeanSeconds, want.SyncMeanSeconds) || !near(got.SyncP50Seconds, want.SyncP50Seconds) || !near(got.SyncP99Seconds, want.SyncP99Seconds) {
			t.Errorf("%s: got %+v; want %+v", file, got, want)
		}
	}
	// Each write was synced once, so the written bytes match the number of
	// syncs.
	r, err := parseFile(t, "high-fsync.json")
	if err != nil || r.WrittenBytes/16384 != r.Syncs || math.Abs(r.BytesPerSecond()-287325804) > 1 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestResultOfAFioThatASignalEnded(t *testing.T) {
	r, err := parseFile(t, "stopped.json")
	if err != nil {
		t.Fatal(err)
	}
	if r.Seconds != 1.75 || r.WrittenBytes != 678117376 || r.Syncs != 646 {
		t.Errorf("%+v", r)
	}
}
