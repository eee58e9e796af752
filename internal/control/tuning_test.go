package control

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/account"
)

// tunedReaders are deepReaders of a BFQ that follows its weights with strict_guarantees
// only, and then does part of its throughput.
func tunedReaders(f *fakeHost, samples int, part float64) []func() account.Sample {
	strict := func(int) bool { return f.tunables["strict_guarantees"] == "1" }
	steps := deepReaders(f, samples, strict)
	for n, step := range steps {
		steps[n] = func() account.Sample {
			sample := step()
			if !strict(0) {
				return sample
			}
			for n := range sample.Devices[1].Containers {
				c := &sample.Devices[1].Containers[n]
				c.ChargedReadBytes = uint64(part * float64(c.ChargedReadBytes))
			}
			return sample
		}
	}
	return steps
}

func TestControlSetsTheTunablesThatWeightsNeed(t *testing.T) {
	defaults := map[string]string{"low_latency": "1", "strict_guarantees": "0", "timeout_sync": "124", "nr_requests": "64", "slice_idle": "8"}
	for _, test := range []struct {
		config string
		// part of the throughput is left with strict_guarantees.
		part float64
		// during control, strict_guarantees, timeout_sync, slice_idle, nr_requests and the actuator.
		during string
		logged string
	}{
		{"", 0.9, "1 60 33 256 weights", "control sets BFQ's tunables that help, until the end: slice_idle=33 strict_guarantees=1 timeout_sync=60 "},
		{"tunables: auto\n", 0.9, "1 60 33 256 weights", "control sets"},
		{"tunables: {low_latency: 0}\n", 0.9, "1 60 33 256 weights", "control sets"},
		{"tunables: {timeout_sync: 100, slice_idle: 8}\n", 0.9, "1 100 8 256 weights", "until the end: strict_guarantees=1 ("},
		{"tunables: {strict_guarantees: 0}\n", 0.9, "0 124 8 256 limits", "until the end: slice_idle=33 timeout_sync=60 ("},
		{"tunables: none\n", 0.9, "0 124 8 64 limits", "weights have not held the shares"},
		{"actuator: weights\n", 0.9, "1 60 33 256 weights", "control sets"},
		{"actuator: limits\n", 0.9, "0 124 8 64 limits", "limits hold the shares"},
		{"", 0.5, "0 124 8 256 limits", "strict_guarantees=1 timeout_sync=60 cost throughput: the disk does 20.0 MB/s, and 40.0 MB/s without; control restores what it set last"},
	} {
		f := newFakeHost("/ca", "/cb")
		f.tunables = map[string]string{}
		for name, value := range defaults {
			f.tunables[name] = value
		}
		var log bytes.Buffer
		options := fakeOptions(t, f, test.config+twoEqual, tunedReaders(f, 20, test.part)...)
		options.Log = slog.New(slog.NewTextHandler(&log, nil))
		f.before = func(what string) error {
			name, _, _ := strings.Cut(what, " ")
			if _, known := defaults[name]; !known {
				return nil
			}
			state, err := LoadState(options.Config.StateDir, "loop0")
			if err != nil || state.Tunables[name] != defaults[name] {
				t.Errorf("%q: %s: the state has %v, %v; want the original before the write", test.config, what, state, err)
			}
			return nil
		}
		during := ""
		options.OnInterval = func(Decision) {
			ideals, err := LoadIdeals(options.Config.StateDir, "loop0", fakeCgroups{f}.ID)
			if err != nil {
				t.Fatal(err)
			}
			during = ""
			for _, name := range []string{"strict_guarantees", "timeout_sync", "slice_idle", "nr_requests"} {
				during += f.tunables[name] + " "
			}
			during += ideals.Control.Actuator
		}
		if err := Run(context.Background(), options); err != nil {
			t.Fatal(err)
		}
		if during != test.during {
			t.Errorf("%q, part %.1f: %s; want %s", test.config, test.part, during, test.during)
		}
		if n := strings.Count(log.String(), test.logged); n != 1 {
			t.Errorf("%q, part %.1f: %q was logged %d times; want once:\n%s", test.config, test.part, test.logged, n, log.String())
		}
		for name, value := range defaults {
			if f.tunables[name] != value {
				t.Errorf("%q: %s is %s in the end; want %s", test.config, name, f.tunables[name], value)
			}
		}
	}
}

// A disk or a load that changes when tunables are set is not their cost: it stays as slow
// when they are restored for a while.
func TestTunablesAreRefusedOnlyForWhatTheyCost(t *testing.T) {
	const cost, again = "cost throughput", "control sets them again"
	for _, test := range []struct {
		name string
		// part of the throughput is left with strict_guarantees, and later of the rest once
		// they were set first.
		part, later float64
		// pause: a container does nothing once they are restored.
		pause bool
		// kept: strict_guarantees is 1 in the end.
		kept   bool
		logged string
	}{
		{"the disk becomes slower", 1, 0.5, false, true, again},
		{"the disk becomes slower, and they cost a little", 0.9, 0.3, false, true, again},
		{"they cost half", 0.5, 1, false, false, cost},
		{"the disk becomes slower, and they cost half", 0.5, 0.5, false, false, cost},
		{"the disk becomes slower, and then nothing can be compared", 1, 0.5, true, false, cost},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFakeHost("/ca", "/cb")
			f.tunables = map[string]string{"low_latency": "0", "strict_guarantees": "0", "timeout_sync": "124", "nr_requests": "256", "slice_idle": "8"}
			was, kept, restored := false, false, 0
			samples := 40
			if test.pause {
				samples = 20 // with only one active for long, the first level is measured again
			}
			steps := tunedReaders(f, samples, test.part)
			for n, step := range steps {
				steps[n] = func() account.Sample {
					sample := step()
					kept = f.tunables["strict_guarantees"] == "1"
					if was && !kept && restored == 0 {
						restored = n
					}
					was = was || kept
					for m := range sample.Devices[1].Containers {
						if c := &sample.Devices[1].Containers[m]; was {
							c.ChargedReadBytes = uint64(test.later * float64(c.ChargedReadBytes))
							if test.pause && restored > 0 && m == 1 {
								c.ChargedReadBytes, c.BusySeconds = 0, 0
							}
						}
					}
					return sample
				}
			}
			options := fakeOptions(t, f, "actuator: weights\n"+twoEqual, steps...)
			var log bytes.Buffer
			options.Log = slog.New(slog.NewTextHandler(&log, nil))
			if err := Run(context.Background(), options); err != nil {
				t.Fatal(err)
			}
			if kept != test.kept || restored == 0 {
				t.Errorf("kept in the end: %t, want %t; restored in step %d", kept, test.kept, restored)
			}
			for _, text := range []string{cost, again} {
				if n := strings.Count(log.String(), text); n > 0 != (text == test.logged) || n > 1 {
					t.Errorf("%q was logged %d times:\n%s", text, n, log.String())
				}
			}
		})
	}
}

// A storm of metadata needs short slices, also before a share is missed.
func TestHiddenIOIsAReasonForTheFirstLevel(t *testing.T) {
	for hidden, want := range map[uint64]string{4e6: "124 8 0", 6e6: "60 33 0"} {
		f := newFakeHost("/ca", "/cb")
		f.tunables = map[string]string{"low_latency": "0", "strict_guarantees": "0", "timeout_sync": "124", "nr_requests": "256", "slice_idle": "8"}
		steps := repeat(5, func() account.Sample {
			ca, cb := did("/ca", 50e6, 0), did("/cb", 50e6-hidden, hidden)
			ca.BusySeconds, cb.BusySeconds = 5, 5
			return sampleOf(ca, cb)
		})
		options := fakeOptions(t, f, twoEqual, steps...)
		got := ""
		options.OnInterval = func(Decision) {
			got = fmt.Sprint(f.tunables["timeout_sync"], " ", f.tunables["slice_idle"], " ", f.tunables["strict_guarantees"])
		}
		if err := Run(context.Background(), options); err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Errorf("%d of 100 MB hidden: timeout_sync, slice_idle, strict_guarantees %s; want %s", hidden/1e6, got, want)
		}
	}
}

// Between two requests of one that keeps a single one outstanding, BFQ serves others,
// unless strict_guarantees is 1.
func TestOneThatKeepsASingleRequestOutstandingNeedsTheTopLevelAtOnce(t *testing.T) {
	for requestSeconds, want := range map[float64]string{0: "60 33 0", 5: "60 33 1", 7: "60 33 1", 8: "60 33 0", 40: "60 33 0"} {
		f := newFakeHost("/ca", "/cb")
		f.tunables = map[string]string{"low_latency": "0", "strict_guarantees": "0", "timeout_sync": "124", "nr_requests": "256", "slice_idle": "8"}
		steps := repeat(1, func() account.Sample {
			ca, cb := did("/ca", 43e6, 0), did("/cb", 57e6, 0)
			ca.BusySeconds, cb.BusySeconds = 5, 5
			ca.RequestSeconds, cb.RequestSeconds = requestSeconds, 40
			return sampleOf(ca, cb)
		})
		options := fakeOptions(t, f, twoEqual, steps...)
		got := ""
		options.OnInterval = func(Decision) {
			got = fmt.Sprint(f.tunables["timeout_sync"], " ", f.tunables["slice_idle"], " ", f.tunables["strict_guarantees"])
		}
		if err := Run(context.Background(), options); err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Errorf("%.0f s of requests in 5 s: timeout_sync, slice_idle, strict_guarantees %s; want %s", requestSeconds, got, want)
		}
	}
}

// What BFQ serves past a low weight, the container has to wait for later.
func TestWeightsAreTheIdealOnesUntilTheFirstWindowEnded(t *testing.T) {
	f := newFakeHost("/ca", "/cb")
	f.tunables = map[string]string{"low_latency": "0", "strict_guarantees": "0", "timeout_sync": "124", "nr_requests": "256", "slice_idle": "8"}
	n := 0
	steps := repeat(30, func() account.Sample {
		if n++; n <= 10 && f.weight("/ca") != f.weight("/cb") {
			t.Errorf("step %d: weights %+v and %+v; want equal ones", n, f.weight("/ca"), f.weight("/cb"))
		}
		ca, cb := did("/ca", 4e6, 0), did("/cb", 4e6, 2e6)
		ca.BusySeconds, cb.BusySeconds = 0.5, 0.5
		sample := sampleOf(ca, cb)
		sample.IntervalSeconds = 0.5
		return sample
	})
	options := fakeOptions(t, f, twoEqual, steps...)
	var last Decision
	options.OnInterval = func(d Decision) { last = d }
	if err := Run(context.Background(), options); err != nil {
		t.Fatal(err)
	}
	if last.Weights[1].After >= last.Weights[0].After*9/10 {
		t.Errorf("in the end /cb, which logs, has the weight %d beside %d", last.Weights[1].After, last.Weights[0].After)
	}
}

// What costs little throughput is tried first where little is missed: one container lacks 6
// points, or one has 6 too much, and two lack 3 each.
func TestTunablesAreSetOneLevelAfterTheOther(t *testing.T) {
	const three = "containers: [{match: /ca, weight: 330}, {match: /cb, weight: 330}, {match: /cc, weight: 340}]"
	for config, charged := range map[string][]uint64{twoEqual: {44e6, 56e6, 0}, three: {30e6, 30e6, 40e6}} {
		f := newFakeHost("/ca", "/cb", "/cc")
		f.tunables = map[string]string{"low_latency": "0", "strict_guarantees": "0", "timeout_sync": "124", "nr_requests": "256", "slice_idle": "8"}
		var seen []string
		steps := repeat(4, func() account.Sample {
			seen = append(seen, fmt.Sprint(f.tunables["timeout_sync"], " ", f.tunables["slice_idle"], " ", f.tunables["strict_guarantees"]))
			ca, cb, cc := did("/ca", charged[0], 0), did("/cb", charged[1], 0), did("/cc", charged[2], 0)
			ca.BusySeconds, cb.BusySeconds, cc.BusySeconds = 5, 5, 5
			return sampleOf(ca, cb, cc)
		})
		if err := Run(context.Background(), fakeOptions(t, f, config, steps...)); err != nil {
			t.Fatal(err)
		}
		if got, want := strings.Join(seen, ", "), "124 8 0, 60 33 0, 60 33 0, 60 33 1"; got != want {
			t.Errorf("%v: timeout_sync, slice_idle, strict_guarantees: %s; want %s", charged, got, want)
		}
	}
}

// A disk on which weights hold the shares keeps its tunables, and its throughput.
func TestTunablesThatNobodyNeedsAreKept(t *testing.T) {
	f := newFakeHost("/ca", "/cb")
	f.tunables = map[string]string{"low_latency": "0", "strict_guarantees": "0", "timeout_sync": "124", "nr_requests": "256"}
	options := fakeOptions(t, f, twoEqual, deepReaders(f, 20, func(int) bool { return true })...)
	if err := Run(context.Background(), options); err != nil {
		t.Fatal(err)
	}
	for _, write := range f.writes() {
		if !strings.HasPrefix(write, "/c") {
			t.Errorf("wrote %s", write)
		}
	}
}

// What a dry run says is what control would do, and nothing is measured that did not happen.
func TestADryRunSaysWhichTunablesControlWouldSet(t *testing.T) {
	f := newFakeHost("/ca", "/cb")
	f.tunables = map[string]string{"low_latency": "0", "strict_guarantees": "0", "timeout_sync": "124", "nr_requests": "256", "slice_idle": "8"}
	options := fakeOptions(t, f, "actuator: weights\n"+twoEqual, tunedReaders(f, 200, 0.5)...)
	var log bytes.Buffer
	options.Log = slog.New(slog.NewTextHandler(&log, nil))
	options.DryRun = true
	if err := Run(context.Background(), options); err != nil {
		t.Fatal(err)
	}
	if len(f.writes()) != 0 {
		t.Errorf("wrote %v", f.writes())
	}
	if !strings.Contains(log.String(), "control would set BFQ's tunables that help") {
		t.Errorf("not logged what it would do:\n%s", log.String())
	}
	for _, text := range []string{"control sets", "control restores", "cost throughput"} {
		if strings.Contains(log.String(), text) {
			t.Errorf("%q was logged:\n%s", text, log.String())
		}
	}
}

// A kernel can refuse the value of a tunable. Weights work without it.
func TestControlBeginsWithoutATunableThatCannotBeSet(t *testing.T) {
	f := newFakeHost("/ca", "/cb")
	f.tunables = map[string]string{"low_latency": "1", "nr_requests": "64"}
	f.before = func(what string) error {
		if what == "low_latency 0" {
			return errors.New("refused")
		}
		return nil
	}
	options := fakeOptions(t, f, twoEqual, repeat(4, journalling)...)
	var log bytes.Buffer
	options.Log = slog.New(slog.NewTextHandler(&log, nil))
	during := ""
	options.OnInterval = func(d Decision) {
		during = fmt.Sprint(f.tunables["nr_requests"], " ", f.weight("/cb").Device < 500)
	}
	if err := Run(context.Background(), options); err != nil {
		t.Fatal(err)
	}
	if during != "256 true" {
		t.Errorf("nr_requests, and whether the weight was corrected: %s; want 256 true\n%s", during, log.String())
	}
	if !strings.Contains(log.String(), "level=WARN msg=\"cannot set all of the scheduler's tunables") {
		t.Errorf("no warning:\n%s", log.String())
	}
}

// Each level sets all tunables again. One that cannot be set is an error once.
func TestATunableThatCannotBeSetIsLoggedOnce(t *testing.T) {
	f := newFakeHost("/ca", "/cb")
	f.tunables = map[string]string{"low_latency": "0", "strict_guarantees": "0", "timeout_sync": "124", "nr_requests": "256", "slice_idle": "8"}
	f.before = func(what string) error {
		if what == "slice_idle 33" {
			return errors.New("refused")
		}
		return nil
	}
	options := fakeOptions(t, f, "actuator: weights\n"+twoEqual, repeat(8, func() account.Sample {
		ca, cb := did("/ca", 44e6, 0), did("/cb", 56e6, 0)
		ca.BusySeconds, cb.BusySeconds = 5, 5
		return sampleOf(ca, cb)
	})...)
	var log bytes.Buffer
	options.Log = slog.New(slog.NewTextHandler(&log, nil))
	options.Name = func(path string) string { return "shop" + path }
	if err := Run(context.Background(), options); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(log.String(), "cannot set all of the scheduler's tunables"); n != 1 || !strings.Contains(log.String(), "tunable=strict_guarantees value=1") {
		t.Errorf("logged %d times; want once, and a second level:\n%s", n, log.String())
	}
	if !strings.Contains(log.String(), "shop/ca (/ca) lacked") {
		t.Errorf("the container is not named:\n%s", log.String())
	}
}
