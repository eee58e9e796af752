package law

import (
	"context"
	"errors"
	"flag"
	"io"
	"math"
	"os"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/account"
)

// noisyRecording is of the simulated disk of these tests, with more noise and more
// bursts of metadata than real ones have, uncontrolled; -update makes it again.
// diskRecording is of a real BFQ and a real jbd2 on a simulated disk, uncontrolled:
// /A reads, /B reads and makes 2000 directories a second; daybook-bench record
// makes it.
const (
	noisyRecording = "testdata/noisy.jsonl"
	diskRecording  = "testdata/disk.jsonl"
)

var update = flag.Bool("update", false, "make "+noisyRecording+" again")

func TestLawsOnRecordedNoisySamples(t *testing.T) {
	if *update {
		recordNoise(t)
	}
	for _, c := range []struct {
		recording string
		cgroups   [2]string
		// unrest and turns are the maximum ratios of the feedback law's to the
		// paper's.
		unrest, turns float64
	}{
		{noisyRecording, [2]string{"/a", "/b"}, 0.35, 0.25},
		{diskRecording, [2]string{"/A", "/B"}, 0.6, 0.5},
	} {
		paper, feedback := unrestOn(t, PaperLaw, c.recording, c.cgroups), unrestOn(t, FeedbackLaw, c.recording, c.cgroups)
		t.Logf("%s, in %d samples: the paper's law moves by %.0f of 1000 an interval and turns %d times, feedback by %.0f and %d times",
			c.recording, paper.samples, paper.moves, paper.turns, feedback.moves, feedback.turns)
		if feedback.moves > c.unrest*paper.moves {
			t.Errorf("%s: feedback moves by %.0f, the paper's law by %.0f", c.recording, feedback.moves, paper.moves)
		}
		if float64(feedback.turns) > c.turns*float64(paper.turns) {
			t.Errorf("%s: feedback oscillates: %d turns, the paper's law %d", c.recording, feedback.turns, paper.turns)
		}
	}
}

// unrest is how much a law moves the first cgroup's weight over a recording: the
// mean change in an interval, and the number of reversals by more than five points
// of the disk.
type unrest struct {
	moves          float64
	turns, samples int
}

// warmUp is the number of samples before a law is judged.
const warmUp = 12

func unrestOn(t *testing.T, name, recording string, cgroups [2]string) (u unrest) {
	t.Helper()
	law, err := NewLaw(name, BFQRange)
	if err != nil {
		t.Fatal(err)
	}
	reader, err := account.OpenReader(recording)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	var weights []float64 // of the first
	for {
		sample, err := reader.Next(context.Background())
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		var observations []Observation
		for _, cgroup := range cgroups {
			for _, did := range sample.Devices[0].Containers {
				if did.Cgroup == cgroup && did.ChargedReadBytes+did.ChargedWriteBytes > 0 {
					observations = append(observations, Observation{ID: cgroup, Ideal: 500, Weight: 500,
						JournalBytes: float64(did.Hidden()), WritebackBytes: float64(did.MetadataBytes + did.UnchargedBytes),
						OtherBytes: float64(did.ChargedReadBytes + did.ChargedWriteBytes)})
				}
			}
		}
		if len(observations) != len(cgroups) {
			t.Fatalf("%s: of %v not all were charged at %v", recording, cgroups, sample.Time)
		}
		next := law.Next(sample.IntervalSeconds, observations)
		for _, w := range next {
			if !(w >= 1 && w <= 1000) {
				t.Fatalf("%s: weight %v", name, w)
			}
		}
		weights = append(weights, next[0])
	}
	if u.samples = len(weights); u.samples < 40 {
		t.Fatalf("only %d samples", u.samples)
	}
	for n := warmUp; n < len(weights); n++ {
		step, before := weights[n]-weights[n-1], weights[n-1]-weights[n-2]
		u.moves += math.Abs(step) / float64(len(weights)-warmUp)
		if step*before < 0 && math.Min(math.Abs(step), math.Abs(before)) > 50 {
			u.turns++
		}
	}
	return u
}

func recordNoise(t *testing.T) {
	if err := os.RemoveAll(noisyRecording); err != nil {
		t.Fatal(err)
	}
	recorder, err := account.OpenRecorder(noisyRecording)
	if err != nil {
		t.Fatal(err)
	}
	defer recorder.Close()
	burst := metadataWriter(500, 2e6)
	burst.burst, burst.inPlace = 6, 0.5
	disk := newSimDisk(11, 0.2, reader(500), burst)
	names := []string{"/a", "/b"}
	for n := range 60 {
		device := account.Device{Device: "loop0", Dev: "7:0"}
		for k, o := range disk.run(5) {
			c := account.Container{Cgroup: names[k], Name: names[k], TargetShare: 0.5, Weight: 500,
				ChargedReadBytes: uint64(o.OtherBytes), JournalBytes: uint64(o.JournalBytes)}
			device.DiskBytes += c.Bytes()
			device.JournalBytes += c.JournalBytes
			device.Containers = append(device.Containers, c)
		}
		for k := range device.Containers {
			device.Containers[k].Share = float64(device.Containers[k].Bytes()) / float64(device.DiskBytes)
		}
		sample := account.Sample{Time: time.Date(2026, 1, 1, 0, 0, 5*n+5, 0, time.UTC), IntervalSeconds: 5, Estimator: "handles", Devices: []account.Device{device}}
		if err := recorder.Record(sample); err != nil {
			t.Fatal(err)
		}
	}
}
