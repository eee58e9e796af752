package control

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/daybook-project/daybook/internal/account"
)

// fsyncRecording is of three writers of 500:300:200 that call fsync, on a BFQ whose weights do
// not hold their shares, in the first intervals of a run on a busy host: a step of half a
// second lasted 0.51 to 0.58 s. In the fifth interval limits were in force.
const fsyncRecording = "testdata/fsync-writers.jsonl"

// recordedSteps divides each interval of a recording into ten steps, on the disk of a
// fakeHost.
func recordedSteps(t *testing.T, recording string) (steps []account.Sample) {
	t.Helper()
	reader, err := account.OpenReader(recording)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	for {
		sample, err := reader.Next(context.Background())
		if errors.Is(err, io.EOF) {
			return steps
		}
		if err != nil {
			t.Fatal(err)
		}
		const parts = 10
		device := sample.Devices[0]
		device.Device, device.Dev = "loop0", "7:0"
		device.CommitSeconds *= float64(device.Transactions) / parts // all of a step's
		device.Transactions = 1
		whole := device.Containers
		device.Containers = make([]account.Container, len(whole))
		for n, c := range whole {
			c.ChargedReadBytes, c.ChargedWriteBytes = c.ChargedReadBytes/parts, c.ChargedWriteBytes/parts
			c.JournalBytes, c.MetadataBytes, c.UnchargedBytes = c.JournalBytes/parts, c.MetadataBytes/parts, c.UnchargedBytes/parts
			c.RequestSeconds, c.BusySeconds = c.RequestSeconds/parts, c.BusySeconds/parts
			c.ForcedCommits = (c.ForcedCommits + parts - 1) / parts
			device.Containers[n] = c
		}
		for range parts {
			steps = append(steps, account.Sample{Time: sample.Time, IntervalSeconds: sample.IntervalSeconds / parts, Devices: []account.Device{device}})
		}
	}
}

// On a busy host a step takes longer, and windows of five seconds end a little earlier. The
// first window sets tunables, and two more that miss the shares change to limits: before the
// fourth interval, and not in it.
func TestTwoWindowsInARowAreTwoAlsoOnABusyHost(t *testing.T) {
	recorded := recordedSteps(t, fsyncRecording)
	for name, stretch := range map[string]float64{"as recorded": 1, "idle host": 0.5 / 0.535, "slower": 0.55 / 0.535} {
		f := newFakeHost("/A", "/B", "/C")
		f.tunables = map[string]string{"low_latency": "0", "strict_guarantees": "0", "timeout_sync": "124", "nr_requests": "256", "slice_idle": "8"}
		var steps []func() account.Sample
		for _, step := range recorded {
			step.IntervalSeconds *= stretch
			steps = append(steps, func() account.Sample { return step })
		}
		options := fakeOptions(t, f, "containers: [{match: /A, weight: 500}, {match: /B, weight: 300}, {match: /C, weight: 200}]", steps...)
		seconds, tuned, limited := 0.0, 0.0, 0.0
		options.OnInterval = func(d Decision) {
			seconds += d.Seconds
			if tuned == 0 && f.tunables["strict_guarantees"] == "1" {
				tuned = seconds
			}
			if ideals, err := LoadIdeals(options.Config.StateDir, "loop0", fakeCgroups{f}.ID); err != nil {
				t.Fatal(err)
			} else if limited == 0 && ideals.Control.Actuator == account.ActuatorLimits {
				limited = seconds
			}
		}
		if err := Run(context.Background(), options); err != nil {
			t.Fatal(err)
		}
		if tuned == 0 || limited == 0 || limited > 15.5 {
			t.Errorf("%s: tunables after %.1f s, limits after %.1f s of %.1f s; want limits after three windows of 5 s", name, tuned, limited, seconds)
		}
	}
}

// In these runs a window was 3 to 4 points off, and one of the next 6 to 9: then it is too
// late for tunables.
func TestTunablesAreSetBeforeAnIntervalMissesItsShares(t *testing.T) {
	for _, test := range []struct {
		recording string
		// interval is the one that is 3 to 4 points off, want the tunables after it.
		interval int
		want     string
	}{
		{"testdata/readers-one.jsonl", 2, "60 33 1"},
		{"testdata/readers-other.jsonl", 3, "60 33 1"},
		{"testdata/writers.jsonl", 3, "60 33 0"},
	} {
		f := newFakeHost("/A", "/B", "/C")
		f.tunables = map[string]string{"low_latency": "0", "strict_guarantees": "0", "timeout_sync": "124", "nr_requests": "256", "slice_idle": "8"}
		var steps []func() account.Sample
		for _, step := range recordedSteps(t, test.recording)[:10*test.interval] {
			steps = append(steps, func() account.Sample { return step })
		}
		options := fakeOptions(t, f, "containers: [{match: /A, weight: 500}, {match: /B, weight: 300}, {match: /C, weight: 200}]", steps...)
		var seen []string
		options.OnInterval = func(Decision) {
			seen = append(seen, f.tunables["timeout_sync"]+" "+f.tunables["slice_idle"]+" "+f.tunables["strict_guarantees"])
		}
		if err := Run(context.Background(), options); err != nil {
			t.Fatal(err)
		}
		// A window can end a step before the interval does.
		for n, want := range map[int]string{len(steps) - 11: "124 8 0", len(steps) - 1: test.want} {
			if seen[n] != want {
				t.Errorf("%s, step %d: timeout_sync, slice_idle, strict_guarantees %s; want %s", test.recording, n+1, seen[n], want)
			}
		}
	}
}
