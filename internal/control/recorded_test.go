package control

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

// The recording is of the simulated disk of these tests, with much noise and
// bursts of metadata, uncontrolled; -update makes it again. A recording of a
// real disk (daybook top --record) with cgroups /a and /b serves as well.
const noisyRecording = "testdata/noisy.jsonl"

var update = flag.Bool("update", false, "make "+noisyRecording+" again")

func TestLawsOnRecordedNoisySamples(t *testing.T) {
	if *update {
		recordNoise(t)
	}
	unrest, reversals := map[string]float64{}, map[string]int{}
	for _, name := range []string{PaperLaw, FeedbackLaw} {
		law, _ := NewLaw(name, BFQRange)
		reader, err := account.OpenReader(noisyRecording)
		if err != nil {
			t.Fatal(err)
		}
		var weights []float64 // of /a
		for {
			sample, err := reader.Next(context.Background())
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			done := sums(sample.Devices[0])
			var observations []Observation
			for _, cgroup := range []string{"/a", "/b"} {
				observations = append(observations, Observation{ID: cgroup, Ideal: 500, Weight: 500,
					JournalBytes: float64(done[cgroup].hidden), OtherBytes: float64(done[cgroup].charged)})
			}
			next := law.Next(sample.IntervalSeconds, observations)
			for _, w := range next {
				if !(w >= 1 && w <= 1000) {
					t.Fatalf("%s: weight %v", name, w)
				}
			}
			weights = append(weights, next[0])
		}
		reader.Close()
		if len(weights) < 40 {
			t.Fatalf("only %d samples", len(weights))
		}
		for n := 12; n < len(weights); n++ {
			step := weights[n] - weights[n-1]
			unrest[name] += math.Abs(step)
			// A turn by more than five points of the disk.
			if before := weights[n-1] - weights[n-2]; step*before < 0 && math.Min(math.Abs(step), math.Abs(before)) > 50 {
				reversals[name]++
			}
		}
		unrest[name] /= float64(len(weights) - 12)
		t.Logf("%s: moves by %.0f of 1000 an interval, turns %d times in %d", name, unrest[name], reversals[name], len(weights)-12)
	}
	if unrest[FeedbackLaw] > 0.35*unrest[PaperLaw] {
		t.Errorf("feedback moves by %.0f, the paper's law by %.0f", unrest[FeedbackLaw], unrest[PaperLaw])
	}
	if 4*reversals[FeedbackLaw] > reversals[PaperLaw] {
		t.Errorf("feedback oscillates: %d turns, the paper's law %d", reversals[FeedbackLaw], reversals[PaperLaw])
	}
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
