package main

import (
	"bytes"
	"cmp"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/account"
)

// recordingPath holds a synthetic recording: the two readers of paper 1, one of
// which makes directories, 50:50, 12 intervals without and 12 with control, and
// a second disk with containers with unusual names.
const recordingPath = "testdata/two-readers.daybook"

var update = flag.Bool("update", false, "rewrite the files in testdata")

const mib = 1 << 20

// syntheticSamples is the content of the recording. The disk serves 100 MiB/s. The
// two readers divide by weight what the journal leaves. The kernel charged journal
// and metadata to the root cgroup; all of it was returned to its owners, so charged
// bytes are the rest.
func syntheticSamples() []account.Sample {
	var samples []account.Sample
	weightA, weightB := uint64(100), uint64(100)
	for n := range 24 {
		if n == 12 {
			weightA, weightB = 139, 61
		}
		// A small fixed variation, so that the screen changes.
		wobble := uint64(n*7%5) * mib
		hidden := 140*mib + wobble
		governed := 500*mib - hidden
		a := governed * weightA / (weightA + weightB)
		first := account.Device{
			Device: "loop0", Dev: "7:0", DiskBytes: 500*mib + 3*4096, JournalBytes: 105*mib + wobble, MetadataBytes: 35 * mib,
			UnaccountedBytes: 3 * 4096, Transactions: 5, CommitSeconds: 0.0417,
			Containers: []account.Container{
				{Cgroup: "/docker/4f2a9c0e8d1b", Name: "reader", Runtime: "docker", TargetShare: 0.5, Weight: weightA, ChargedReadBytes: a},
				{Cgroup: "/docker/b81c77d2aa90", Name: "reader-and-mkdir", Runtime: "docker", TargetShare: 0.5, Weight: weightB,
					ChargedReadBytes: governed - a, JournalBytes: 104*mib + wobble, MetadataBytes: 35 * mib, ForcedCommits: 5},
				{Cgroup: "/", Name: "/", JournalBytes: 1 * mib, ReturnedBytes: 140*mib + wobble},
			},
		}
		second := account.Device{
			Device: "sdb", Dev: "8:16", DiskBytes: 40 * mib, JournalBytes: 20 * mib, JournalElsewhereBytes: 20 * mib, MetadataBytes: 4 * mib,
			Transactions: 1, CommitSeconds: 0.0021, LostEvents: uint64(n / 20),
			Containers: []account.Container{
				{Cgroup: "/lxc.payload.web", Name: "web", Runtime: "lxc", TargetShare: 0.4, Weight: 400, ChargedWriteBytes: 24 * mib, JournalBytes: 8 * mib, UnchargedBytes: 6 * mib},
				{Cgroup: "/kubepods/burstable/pod1/é", Name: "データベース-" + string(rune('a'+n%3)), Runtime: "containerd", TargetShare: 0.6, Weight: 600, ChargedReadBytes: 6 * mib, JournalBytes: 4 * mib, MetadataBytes: 4 * mib},
				{Cgroup: "/evil", Name: "\x1b[2J\x1b[41mclear\nscreen\u202e", JournalBytes: 8 * mib, ForcedCommits: 120},
			},
		}
		devices := []account.Device{first, second}
		for _, d := range devices {
			shareOut(d.Containers)
		}
		samples = append(samples, account.Sample{
			Time:            time.Date(2026, 11, 21, 14, 0, 5*(n+1), 0, time.UTC),
			IntervalSeconds: 5, Estimator: "handles", Devices: devices,
		})
	}
	return samples
}

func shareOut(containers []account.Container) {
	var sum uint64
	for _, c := range containers {
		sum += c.Bytes()
	}
	for i := range containers {
		containers[i].Share = float64(containers[i].Bytes()) / float64(sum)
	}
	slices.SortStableFunc(containers, func(a, b account.Container) int { return cmp.Compare(b.Bytes(), a.Bytes()) })
}

func TestSyntheticRecordingIsWhatTheRecorderWrites(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r")
	if *update {
		if err := os.MkdirAll(filepath.Dir(recordingPath), 0o755); err != nil {
			t.Fatal(err)
		}
		os.Remove(recordingPath)
		path = recordingPath
	}
	r, err := account.OpenRecorder(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range syntheticSamples() {
		if err := r.Record(s); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(recordingPath)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not what this version records; if the format changed on purpose: go test ./cmd/daybook -run Recorder -update", recordingPath)
	}
}
