package control

import (
	"bytes"
	"context"
	"log/slog"
	"math"
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

const threeEqual = "actuator: weights\ncontainers: [{match: /ca, weight: 500}, {match: /cb, weight: 500}, {match: /cc, weight: 500}]"

// withThird adds /cc to the samples of slowSyncer, with that many bytes in each step for which now
// reports true.
func withThird(steps []func() account.Sample, bytes uint64, now func(n int) bool) (three []func() account.Sample) {
	n := 0
	for _, step := range steps {
		three = append(three, func() account.Sample {
			sample := step()
			if n++; now(n) {
				cc := did("/cc", bytes, 0)
				cc.BusySeconds, cc.RequestSeconds = 0.5, 4
				sample.Devices[1].Containers = append(sample.Devices[1].Containers, cc)
			}
			return sample
		})
	}
	return three
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

// A container with much journal has more than its share at the ideal weights. Control takes that
// from it, and for some seconds a little more, because it repays. That is no cost of the tunables
// that are set meanwhile.
func TestWhatControlTakesFromAContainerIsNoCostOfTunables(t *testing.T) {
	f := newFakeHost("/ca", "/cb", "/cc")
	f.tunables = map[string]string{"low_latency": "0", "strict_guarantees": "0", "timeout_sync": "124", "nr_requests": "256", "slice_idle": "8"}
	// Three readers of a BFQ that follows its weights. The third also logs a tenth of the disk,
	// and has less than its weight gives it in the second window of 5 s.
	const stepSeconds, diskBytes, journalPart, lackPart = 0.5, 19e6, 0.1, 0.12
	n := 0
	readers := []string{"/ca", "/cb", "/cc"}
	steps := repeat(240, func() account.Sample {
		n++
		var sum float64
		for _, cgroup := range readers {
			sum += float64(f.weight(cgroup).Effective())
		}
		var containers []account.Container
		for _, cgroup := range readers {
			part, journal, requests := (1-journalPart)*float64(f.weight(cgroup).Effective())/sum, 0.0, 8.0
			if cgroup == "/cc" {
				journal, requests = journalPart*diskBytes, 1
			}
			if n > 10 && n <= 20 {
				part += map[string]float64{"/ca": lackPart / 2, "/cb": lackPart / 2, "/cc": -lackPart}[cgroup]
			}
			c := did(cgroup, uint64(max(0, part)*diskBytes), uint64(journal))
			c.BusySeconds, c.RequestSeconds = stepSeconds, requests*stepSeconds
			containers = append(containers, c)
		}
		sample := sampleOf(containers...)
		sample.IntervalSeconds = stepSeconds
		return sample
	})
	const weights = "containers: [{match: /ca, weight: 500}, {match: /cb, weight: 300}, {match: /cc, weight: 200}]"
	options := fakeOptions(t, f, weights, steps...)
	var log bytes.Buffer
	options.Log = slog.New(slog.NewTextHandler(&log, nil))
	last := ""
	options.OnInterval = func(Decision) { last = f.tunables["strict_guarantees"] + " " + f.tunables["slice_idle"] }
	if err := Run(context.Background(), options); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), "/cc lacked ") || last != "1 33" {
		t.Errorf("strict_guarantees and slice_idle are %s in the end; want both set because /cc lacked a part of its share\n%s", last, log.String())
	}
	if strings.Contains(log.String(), "to measure again") {
		t.Errorf("control restored the tunables for a while:\n%s", log.String())
	}
}

func TestARateIsComparedWithWhatIsDueAtMost(t *testing.T) {
	before := rates{all: 40, one: 12, due: 8} // it had 12 and repays at most 3 % of 40
	for _, test := range []struct {
		now    rates
		before rates
		want   bool
	}{
		{rates{all: 38, one: 7.4}, before, true},
		{rates{all: 38, one: 5.5}, before, true},
		{rates{all: 38, one: 5.3}, before, false},
		{rates{all: 31, one: 8}, before, false},                             // the disk does less
		{rates{all: 40, one: 5}, rates{all: 40, one: 6, due: 8}, true},      // it had less than is due
		{rates{all: 40, one: 4.7}, rates{all: 40, one: 6, due: 8}, false},   // 0.8 times 6 is 4.8
		{rates{all: 40, one: 6.1}, rates{all: 40, one: 8.2, due: 8}, false}, // 0.2 more than is due
		{rates{all: 40, one: 6.3}, rates{all: 40, one: 8.2, due: 8}, true},  // 0.8 times 7.8
		{rates{all: 40}, rates{all: 40}, true},                              // of none
	} {
		if got := test.now.reach(0.8, test.before); got != test.want {
			t.Errorf("%+v reaches 0.8 of %+v: %t, want %t", test.now, test.before, got, test.want)
		}
	}
}

func TestTheDueRateIsThatAmongActiveSiblings(t *testing.T) {
	groups := []Group{
		{Parent: "/", Members: []Member{{Cgroup: "/a", Ideal: 500}, {Cgroup: "/b", Ideal: 300}, {Cgroup: "/c", Ideal: 200}}},
		{Parent: "/a", Members: []Member{{Cgroup: "/a/x", Ideal: 100}, {Cgroup: "/a/y", Ideal: 300}}},
	}
	var done throughput
	done.add(bytesDone{all: 70, each: map[string]float64{"/a": 40, "/b": 0, "/c": 30, "/a/x": 40, "/a/y": 0}}, 1, 10)
	for cgroup, want := range map[string]float64{"/a": 50, "/c": 20, "/b": 21, "/a/x": 40, "/a/y": 30, "": 0} {
		if got := done.of(cgroup, groups).due; math.Abs(got-want) > 1e-9 {
			t.Errorf("%q: %v is due, want %v", cgroup, got, want)
		}
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
		steps := withThird(slowSyncer(f, test.slow+400, tuned, plain), 2.5e6, func(n int) bool { return n < test.ended })
		was, last, log := runForSliceIdle(t, f, fakeOptions(t, f, threeEqual, steps...))
		if was == 0 || was > 200 || last != "8" {
			t.Errorf("%s: slice_idle was 33 in %d steps of half a second, and is %s in the end; want it restored\n%s", test.name, was, last, log)
		}
	}
}

// With tunables that make a disk wait for one container, the others are starved, and then they look
// like containers that do nothing. The disk does not stall for a minute because of that.
func TestTunablesThatStarveOthersAreRestoredSoon(t *testing.T) {
	const most = 30 // steps of half a second: 5 s until they are idle, 10 s that are measured
	for _, starved := range []func(n int) float64{
		func(int) float64 { return 0 },
		func(n int) float64 { // a little now and then
			if n%14 == 0 {
				return 2e6
			}
			return 0
		},
	} {
		f := newFakeHost("/ca", "/cb")
		f.tunables = map[string]string{"low_latency": "0", "strict_guarantees": "1", "timeout_sync": "40", "nr_requests": "256", "slice_idle": "8"}
		tuned := func(n int) [2]float64 { return [2]float64{4e6, starved(n)} }
		plain := func(int) [2]float64 { return [2]float64{4e6, 30e6} }
		was, last, log := runForSliceIdle(t, f, fakeOptions(t, f, "actuator: weights\n"+twoEqual, slowSyncer(f, 240, tuned, plain)...))
		if was == 0 || was > most || last != "8" {
			t.Errorf("slice_idle was 33 in %d steps of half a second, want at most %d; it is %s in the end, want 8\n%s", was, most, last, log)
		}
	}
}

// Without tunables a scheduler can starve a container that has a part of the disk with them. It
// then looks like one that does nothing. The check of what they cost does not wait for it.
func TestACheckDoesNotWaitForAContainerThatIsStarvedWithoutTheTunables(t *testing.T) {
	for _, test := range []struct {
		name  string
		plain float64
		// now: it is served in this step all the same.
		now     func(n int) bool
		refused bool
	}{
		{"the others do more", 30e6, func(int) bool { return false }, true},
		{"the others do more, and it a little", 30e6, func(n int) bool { return n%14 == 0 }, true},
		{"the others do no more", 4e6, func(int) bool { return false }, false},
	} {
		f := newFakeHost("/ca", "/cb", "/cc")
		f.tunables = map[string]string{"low_latency": "0", "strict_guarantees": "1", "timeout_sync": "40", "nr_requests": "256", "slice_idle": "8"}
		tuned := func(int) [2]float64 { return [2]float64{2e6, 2e6} }
		plain := func(n int) [2]float64 {
			if n <= 10 {
				return [2]float64{2e6, 30e6}
			}
			return [2]float64{1e6, test.plain}
		}
		// 50 s; a check lasts 60 s at most.
		steps := withThird(slowSyncer(f, 100, tuned, plain), 0.5e6, func(n int) bool {
			return n <= 10 || f.tunables["slice_idle"] == "33" || test.now(n)
		})
		_, _, log := runForSliceIdle(t, f, fakeOptions(t, f, threeEqual, steps...))
		if !strings.Contains(log, "to measure again") || strings.Contains(log, "cost throughput") != test.refused {
			t.Errorf("%s: want a check, and that it refuses the tunables within 50 s: %t\n%s", test.name, test.refused, log)
		}
	}
}

// A container can pause just when a check begins, and the others then do more. Tunables that were
// refused because of that are tried again later.
func TestTunablesAreTriedAgainAfterACheckWithoutAContainer(t *testing.T) {
	f := newFakeHost("/ca", "/cb", "/cc")
	f.tunables = map[string]string{"low_latency": "0", "strict_guarantees": "1", "timeout_sync": "40", "nr_requests": "256", "slice_idle": "8"}
	tuned, paused := 0, false
	does := func(n int) [2]float64 {
		if f.tunables["slice_idle"] == "33" {
			tuned = n
		}
		paused = tuned > 0 && tuned < 200 && n > tuned && n <= tuned+36 // the check, and 18 s
		switch {
		case n <= 10:
			return [2]float64{1e6, 30e6}
		case paused:
			return [2]float64{1e6, 15e6}
		}
		return [2]float64{1e6, 4e6}
	}
	steps := withThird(slowSyncer(f, 1600, does, does), 0.5e6, func(int) bool { return !paused })
	_, last, log := runForSliceIdle(t, f, fakeOptions(t, f, threeEqual, steps...))
	if !strings.Contains(log, "cost throughput") || last != "33" {
		t.Errorf("slice_idle is %s in the end; want it refused once, and set again 10 minutes later\n%s", last, log)
	}
}

// A disk of which the containers want less does not stall because of the tunables.
func TestTunablesStayIfTheDiskDoesAsLittleWithoutThem(t *testing.T) {
	f := newFakeHost("/ca", "/cb")
	f.tunables = map[string]string{"low_latency": "0", "strict_guarantees": "1", "timeout_sync": "40", "nr_requests": "256", "slice_idle": "8"}
	does := func(n int) [2]float64 {
		if n < 14 {
			return [2]float64{4e6, 30e6}
		}
		return [2]float64{4e6, 1e6}
	}
	was, last, log := runForSliceIdle(t, f, fakeOptions(t, f, "actuator: weights\n"+twoEqual, slowSyncer(f, 240, does, does)...))
	if was < 150 || last != "33" || !strings.Contains(log, "control sets them again") {
		t.Errorf("slice_idle was 33 in %d steps, and is %s in the end; want it restored once, to measure, and set again\n%s", was, last, log)
	}
}

// A verdict that shares are missed can come before it is known what the tunables cost. They
// are doubted later all the same.
func TestTunablesAreDoubtedAlsoBeforeTheyAreJudged(t *testing.T) {
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
	steps := withThird(slowSyncer(f, 1500, tuned, plain), 2.5e6, func(n int) bool { return n <= 10 || n > 50 })
	if was, last, log := runForSliceIdle(t, f, fakeOptions(t, f, threeEqual, steps...)); was == 0 || last != "8" {
		t.Errorf("slice_idle was 33 in %d steps; it is %s in the end, want 8\n%s", was, last, log)
	}
}

// What a reload restored is not measured, and corrections go on.
func TestTunablesThatAReloadRestoresAreNotMeasured(t *testing.T) {
	for name, test := range map[string]struct {
		config string
		// reload is the step of it. They are set in the tenth, and judged 12 s later.
		reload int
		check  bool
	}{
		"none, before they are judged":    {"tunables: none", 20, false},
		"none, once they are judged":      {"tunables: none", 60, false},
		"all named":                       {"tunables: {slice_idle: 8, timeout_sync: 40, strict_guarantees: 1}", 60, false},
		"the one that is set named":       {"tunables: {slice_idle: 8}", 60, false},
		"another named":                   {"tunables: {strict_guarantees: 1}", 20, true},
		"unchanged, once they are judged": {"", 60, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeHost("/ca", "/cb")
			f.tunables = map[string]string{"low_latency": "0", "strict_guarantees": "1", "timeout_sync": "40", "nr_requests": "256", "slice_idle": "8"}
			lacks := func(n int) [2]float64 {
				if n > 10 && n <= test.reload {
					return [2]float64{9e6, 10e6}
				}
				return [2]float64{1e6, 14e6}
			}
			config, err := ReadConfig(strings.NewReader("actuator: weights\n"+twoEqual+"\n"+test.config), "test")
			if err != nil {
				t.Fatal(err)
			}
			options := fakeOptions(t, f, "actuator: weights\n"+twoEqual)
			config.StateDir = options.Config.StateDir
			var log bytes.Buffer
			options.Log = slog.New(slog.NewTextHandler(&log, nil))
			c := began(t, options)
			var was, last string
			ideal := 0
			for n, step := range slowSyncer(f, test.reload+1400, lacks, lacks) { // 700 s
				if n == test.reload {
					was = f.tunables["slice_idle"]
					c.use(config)
					last = f.tunables["slice_idle"]
				}
				c.interval(step())
				if n > test.reload+20 && f.weight("/ca").Effective() == f.weight("/cb").Effective() {
					ideal++
				}
			}
			if was != "33" || (last == "8") == test.check {
				t.Fatalf("slice_idle was %s, and %s after the reload", was, last)
			}
			if measured := strings.Contains(log.String(), "to measure again"); measured != test.check || !measured && ideal > 0 {
				t.Errorf("measured again: %t, want %t; the ideal weights were in force in %d steps\n%s", measured, test.check, ideal, log.String())
			}
			if err := c.stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A check ends with a reload that leaves nothing to measure, and with no other one.
func TestAReloadEndsACheckOfTunablesThatItForbids(t *testing.T) {
	for text, want := range map[string]bool{"tunables: none": false, "tunables: auto": true, "interval: 10s": true} {
		f := newFakeHost("/ca", "/cb")
		f.tunables = map[string]string{"low_latency": "0", "strict_guarantees": "1", "timeout_sync": "40", "nr_requests": "256", "slice_idle": "8"}
		does := func(int) [2]float64 { return [2]float64{1e6, 14e6} }
		tuned := func(int) [2]float64 { return [2]float64{1e6, 4e6} }
		config, err := ReadConfig(strings.NewReader("actuator: weights\n"+twoEqual+"\n"+text), "test")
		if err != nil {
			t.Fatal(err)
		}
		options := fakeOptions(t, f, "actuator: weights\n"+twoEqual)
		config.StateDir = options.Config.StateDir
		c := began(t, options)
		for _, step := range slowSyncer(f, 100, tuned, does) {
			if c.tuning.check.level == 0 {
				c.interval(step())
			}
		}
		before := c.tuning.check
		c.use(config)
		if before.level == 0 || (c.tuning.check.level > 0) != want || c.onlyObserves() != want {
			t.Errorf("%s: a check of level %d before, and %d after; only observes: %t; want it to go on: %t", text, before.level, c.tuning.check.level, c.onlyObserves(), want)
		}
		if err := c.stop(); err != nil {
			t.Error(err)
		}
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
