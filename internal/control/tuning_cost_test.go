package control

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/account"
)

// slowSyncer is a disk in steps of half a second. /ca waits for its syncs: it is served in
// every second step only, and lacks most of its share whatever its weight. tuned and plain are
// what it and /cb do, in bytes per second, with and without slice_idle 33; n is the step.
func slowSyncer(f *fakeHost, steps int, tuned, plain func(n int) [2]float64) []func() account.Sample {
	n := 0
	return repeat(steps, func() account.Sample {
		n++
		rates := plain(n)
		if f.tunables["slice_idle"] == "33" {
			rates = tuned(n)
		}
		var burst float64
		if n%2 == 0 {
			burst = 2
		}
		ca, cb := did("/ca", uint64(0.5*burst*rates[0]), 0), did("/cb", uint64(0.5*rates[1]), 0)
		ca.BusySeconds, cb.BusySeconds = 0.5, 0.5
		ca.RequestSeconds, cb.RequestSeconds = 0.5, 4
		sample := sampleOf(ca, cb)
		sample.IntervalSeconds = 0.5
		return sample
	})
}

// A container whose syncs take longer with the tunables that are to help it does not want
// them, even if the disk does more.
func TestTunablesThatHarmTheOneTheyAreToHelpAreRestored(t *testing.T) {
	always := func(a, b float64) func(int) [2]float64 { return func(int) [2]float64 { return [2]float64{a, b} } }
	for _, test := range []struct {
		name         string
		tuned, plain func(int) [2]float64
		// restored: slice_idle is 8 in the end.
		restored bool
		logged   string
	}{
		{"the disk does less", always(1e6, 4e6), always(1e6, 14e6), true, "the disk does 5.0 MB/s, and 15.0 MB/s without; control restores what it set last"},
		{"it does less, and the disk more", always(0.2e6, 33e6), always(1e6, 14e6), true, "cost throughput: /ca does 0.20 MB/s, and 1.02 MB/s without; control restores what it set last"},
		{"it does more, and the disk a little less", always(2e6, 11e6), always(1e6, 14e6), false, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFakeHost("/ca", "/cb")
			// strict_guarantees and timeout_sync are as they should be: the second level adds nothing.
			f.tunables = map[string]string{"low_latency": "0", "strict_guarantees": "1", "timeout_sync": "40", "nr_requests": "256", "slice_idle": "8"}
			options := fakeOptions(t, f, "actuator: weights\n"+twoEqual, slowSyncer(f, 160, test.tuned, test.plain)...)
			var log bytes.Buffer
			options.Log = slog.New(slog.NewTextHandler(&log, nil))
			was, last := false, ""
			options.OnInterval = func(Decision) {
				last = f.tunables["slice_idle"]
				was = was || last == "33"
			}
			if err := Run(context.Background(), options); err != nil {
				t.Fatal(err)
			}
			if !was || (last == "8") != test.restored {
				t.Errorf("slice_idle was set: %t; in the end it is %s, want it restored: %t\n%s", was, last, test.restored, log.String())
			}
			if !strings.Contains(log.String(), test.logged) {
				t.Errorf("not logged: %q\n%s", test.logged, log.String())
			}
			// It is set once, and not again for the level that adds nothing.
			if sets := strings.Count(log.String(), "tunable=slice_idle value=33"); sets != 1 {
				t.Errorf("slice_idle was set %d times:\n%s", sets, log.String())
			}
		})
	}
}

// Tunables that were good for one load can harm the next. Control measures again when shares
// are missed with them, and not all the time.
func TestTunablesAreDoubtedWhenTheLoadHasChanged(t *testing.T) {
	for harm, want := range map[bool]struct {
		last     string
		restored int
	}{true: {"8", 1}, false: {"33", 1}} {
		f := newFakeHost("/ca", "/cb")
		f.tunables = map[string]string{"low_latency": "0", "strict_guarantees": "1", "timeout_sync": "40", "nr_requests": "256", "slice_idle": "8"}
		// They help for 50 s, so that both have the same. Then /ca is slow for as long, and so on.
		helpful := func(n int) bool { return n/100%2 == 0 }
		tuned := func(n int) [2]float64 {
			switch {
			case helpful(n):
				return [2]float64{10e6, 10e6}
			case harm:
				return [2]float64{0.2e6, 20e6}
			}
			return [2]float64{1e6, 20e6}
		}
		plain := func(n int) [2]float64 {
			if helpful(n) {
				return [2]float64{5e6, 15e6}
			}
			return [2]float64{1e6, 20e6}
		}
		options := fakeOptions(t, f, "actuator: weights\n"+twoEqual, slowSyncer(f, 700, tuned, plain)...)
		var log bytes.Buffer
		options.Log = slog.New(slog.NewTextHandler(&log, nil))
		last, restored := "", 0
		options.OnInterval = func(Decision) {
			now := f.tunables["slice_idle"]
			if last == "33" && now == "8" {
				restored++
			}
			last = now
		}
		if err := Run(context.Background(), options); err != nil {
			t.Fatal(err)
		}
		if last != want.last || restored != want.restored {
			t.Errorf("they harm: %t: slice_idle is %s in the end, and was restored %d times; want %+v\n%s", harm, last, restored, want, log.String())
		}
		if !strings.Contains(log.String(), "shares are missed with BFQ's tunables slice_idle=33; control restores them for a while, to measure again") {
			t.Errorf("they harm: %t: not doubted:\n%s", harm, log.String())
		}
	}
}

// Containers come and go. What tunables cost is measured also if fewer containers are active
// than before they were set, or than at the busiest time since the start.
func TestTunablesAreJudgedWithFewerContainersThanBefore(t *testing.T) {
	const three = "actuator: weights\ncontainers: [{match: /ca, weight: 500}, {match: /cb, weight: 500}, {match: /cc, weight: 500}]"
	for _, test := range []struct {
		name string
		// ended is the step in which /cc ends, slow that from which /ca lacks its share.
		ended, slow int
	}{
		{"it ended long before", 40, 400},
		{"it ended just before", 40, 41},
		{"it ended just after", 45, 31},
		// /cb has more too much than /ca lacks, because /cc lacks some, too.
		{"it never ends", 1000, 31},
	} {
		f := newFakeHost("/ca", "/cb", "/cc")
		f.tunables = map[string]string{"low_latency": "0", "strict_guarantees": "1", "timeout_sync": "40", "nr_requests": "256", "slice_idle": "8"}
		even := func(n int) bool { return n < test.slow }
		tuned := func(n int) [2]float64 {
			if even(n) {
				return [2]float64{5e6, 5e6}
			}
			return [2]float64{0.2e6, 33e6}
		}
		plain := func(n int) [2]float64 {
			if even(n) {
				return [2]float64{5e6, 5e6}
			}
			return [2]float64{1e6, 14e6}
		}
		n := 0
		var steps []func() account.Sample
		for _, step := range slowSyncer(f, test.slow+400, tuned, plain) {
			steps = append(steps, func() account.Sample {
				sample := step()
				if n++; n < test.ended {
					cc := did("/cc", 2.5e6, 0)
					cc.BusySeconds, cc.RequestSeconds = 0.5, 4
					sample.Devices[1].Containers = append(sample.Devices[1].Containers, cc)
				}
				return sample
			})
		}
		was, last, log := runForSliceIdle(t, f, fakeOptions(t, f, three, steps...))
		if was == 0 || was > 200 || last != "8" {
			t.Errorf("%s: slice_idle was 33 in %d steps of half a second, and is %s in the end; want it restored\n%s", test.name, was, last, log)
		}
	}
}

// A verdict that shares are missed can come before it is known what the tunables cost. They
// are doubted later all the same.
func TestTunablesAreDoubtedAlsoBeforeTheyAreJudged(t *testing.T) {
	const three = "actuator: weights\ncontainers: [{match: /ca, weight: 500}, {match: /cb, weight: 500}, {match: /cc, weight: 500}]"
	f := newFakeHost("/ca", "/cb", "/cc")
	f.tunables = map[string]string{"low_latency": "0", "strict_guarantees": "1", "timeout_sync": "40", "nr_requests": "256", "slice_idle": "8"}
	// Later /ca could do more without them.
	tuned := func(int) [2]float64 { return [2]float64{0.9e6, 14e6} }
	plain := func(n int) [2]float64 {
		if n <= 10 {
			return [2]float64{1e6, 14e6}
		}
		return [2]float64{5e6, 14e6}
	}
	n := 0
	var steps []func() account.Sample
	for _, step := range slowSyncer(f, 1500, tuned, plain) {
		steps = append(steps, func() account.Sample {
			sample := step()
			if n++; n <= 10 || n > 50 {
				cc := did("/cc", 2.5e6, 0)
				cc.BusySeconds, cc.RequestSeconds = 0.5, 4
				sample.Devices[1].Containers = append(sample.Devices[1].Containers, cc)
			}
			return sample
		})
	}
	if was, last, log := runForSliceIdle(t, f, fakeOptions(t, f, three, steps...)); was == 0 || last != "8" {
		t.Errorf("slice_idle was 33 in %d steps; it is %s in the end, want 8\n%s", was, last, log)
	}
}

// runForSliceIdle returns in how many steps slice_idle was 33, its value in the end, and the
// log.
func runForSliceIdle(t *testing.T, f *fakeHost, options Options) (was int, last, log string) {
	t.Helper()
	var written bytes.Buffer
	options.Log = slog.New(slog.NewTextHandler(&written, nil))
	options.OnInterval = func(Decision) {
		if last = f.tunables["slice_idle"]; last == "33" {
			was++
		}
	}
	if err := Run(context.Background(), options); err != nil {
		t.Fatal(err)
	}
	return was, last, written.String()
}
