package control

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/control/law"
)

// deepReaders are samples of 5 s of two readers with requests waiting all the
// time, /cb with a deeper queue. Where obeys says so, the scheduler follows the
// weights; limits always hold.
func deepReaders(f *fakeHost, samples int, obeys func(n int) bool) []func() account.Sample {
	n := 0
	return repeat(samples, func() account.Sample {
		n++
		f.mu.Lock()
		a, b := 1.0, 4.0
		if obeys(n) {
			a, b = float64(f.weights["/ca"].Effective()), float64(f.weights["/cb"].Effective())
		}
		bytes := law.Level(200e6, []law.Claim{{Ideal: a, Most: most(f.reads["/ca"])}, {Ideal: b, Most: most(f.reads["/cb"])}})
		f.mu.Unlock()
		ca, cb := did("/ca", uint64(bytes[0]), 0), did("/cb", uint64(bytes[1]), 0)
		ca.BusySeconds, cb.BusySeconds = 5, 5
		return sampleOf(ca, cb)
	})
}

// most is what a limit allows in 5 s.
func most(limit uint64) float64 {
	if limit == 0 {
		return 1e15
	}
	return 5 * float64(limit)
}

func TestLimitsHoldTheSharesWhileWeightsAreIgnored(t *testing.T) {
	f := newFakeHost("/ca", "/cb")
	f.tunables["strict_guarantees"] = "0"
	f.reads["/cb"] = 500e6 // the operator's own, far away
	var log bytes.Buffer
	// Weights are tried after 120 s, in vain, and after 240 s more with success.
	options := fakeOptions(t, f, "tunables: none\n"+twoEqual, deepReaders(f, 90, func(n int) bool { return n > 40 })...)
	options.Log = slog.New(slog.NewTextHandler(&log, nil))
	f.before = func(what string) error {
		if !strings.Contains(what, "limit") {
			return nil
		}
		state, err := LoadState(options.Config.StateDir, "loop0")
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range state.Cgroups {
			original := map[string]uint64{"/cb": 500e6}[c.Cgroup]
			if strings.HasPrefix(what, c.Cgroup) && (!c.Limited || c.ReadBytesPerSecond != original) {
				t.Errorf("%s: the state has %+v", what, c)
			}
		}
		return nil
	}
	var actuators []string
	var shares []float64
	options.OnInterval = func(d Decision) {
		ideals, err := LoadIdeals(options.Config.StateDir, "loop0", fakeCgroups{f}.ID)
		if err != nil {
			t.Fatal(err)
		}
		now := fmt.Sprint(ideals.Control.Actuator, " ", ideals.Control.WeightsIgnored)
		if n := len(actuators); n == 0 || actuators[n-1] != now {
			actuators = append(actuators, now)
		}
		shares = append(shares, d.Weights[0].Share)
	}
	if err := Run(context.Background(), options); err != nil {
		t.Fatal(err)
	}
	want := []string{"weights false", "limits true", "weights true", "limits true", "weights true", "weights false"}
	if strings.Join(actuators, ", ") != strings.Join(want, ", ") {
		t.Errorf("actuators %q; want %q", actuators, want)
	}
	for n := 5; n < 14; n++ {
		// It had a fifth before, and is repaid.
		if shares[n] < 0.49 || shares[n] > 0.56 {
			t.Errorf("sample %d by limits: share %.3f of /ca; want 0.5 to 0.56", n, shares[n])
		}
	}
	for text, times := range map[string]int{
		"weights have not held the shares: in windows of 10 s together, /ca has lacked": 1, "follows its weights again": 1,
		"echo 1 > /sys/block/loop0/queue/iosched/strict_guarantees": 2, // at the start, and as advice
	} {
		if n := strings.Count(log.String(), text); n != times {
			t.Errorf("%q was logged %d times; want %d:\n%s", text, n, times, log.String())
		}
	}
	if f.reads["/ca"] != 0 || f.reads["/cb"] != 500e6 || f.limits["/ca"] != 0 {
		t.Errorf("limits in the end: reads %v, writes %v", f.reads, f.limits)
	}
}

// Where limits cost more than they give, weights come back for a while.
func TestLimitsThatCostThroughputEnd(t *testing.T) {
	f := newFakeHost("/ca", "/cb")
	var log bytes.Buffer
	free := deepReaders(f, 30, func(int) bool { return false })
	var steps []func() account.Sample
	for _, step := range free {
		steps = append(steps, func() account.Sample {
			sample := step()
			if f.reads["/ca"]+f.reads["/cb"] == 0 {
				return sample
			}
			for n := range sample.Devices[1].Containers {
				sample.Devices[1].Containers[n].ChargedReadBytes /= 3
			}
			return sample
		})
	}
	options := fakeOptions(t, f, twoEqual, steps...)
	options.Log = slog.New(slog.NewTextHandler(&log, nil))
	limited := 0
	options.OnInterval = func(Decision) {
		if f.reads["/ca"]+f.reads["/cb"] > 0 {
			limited++
		}
	}
	if err := Run(context.Background(), options); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(log.String(), "limits cost the disk's throughput"); n != 1 || limited < 4 || limited > 10 {
		t.Errorf("logged %d times; limits in force in %d of 30 samples; the log:\n%s", n, limited, log.String())
	}
}

func TestIgnoredWeightsAreOnlyReportedWhereTheConfigurationSaysSo(t *testing.T) {
	f := newFakeHost("/ca", "/cb")
	var log bytes.Buffer
	options := fakeOptions(t, f, "actuator: weights\n"+twoEqual, deepReaders(f, 20, func(int) bool { return false })...)
	options.Log = slog.New(slog.NewTextHandler(&log, nil))
	if err := Run(context.Background(), options); err != nil {
		t.Fatal(err)
	}
	for _, write := range f.writes() {
		if strings.Contains(write, "limit") {
			t.Errorf("wrote %s", write)
		}
	}
	if n := strings.Count(log.String(), "weights have not held the shares"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, log.String())
	}
}

// unweighted is the host of a disk that nothing shares by weights.
func (f *fakeHost) unweighted() Host {
	host := f.host()
	host.Unweighted = true
	return host
}

func TestLimitsHoldTheSharesOfADiskWithoutWeights(t *testing.T) {
	for _, config := range []string{twoEqual, "actuator: limits\n" + twoEqual} {
		f := newFakeHost("/ca", "/cb")
		options := fakeOptions(t, f, config, deepReaders(f, 20, func(int) bool { return false })...)
		if config == twoEqual {
			options.Disks[0].Host = f.unweighted()
		}
		var last Decision
		options.OnInterval = func(d Decision) { last = d }
		if err := Run(context.Background(), options); err != nil {
			t.Fatal(err)
		}
		if share := last.Weights[0].Share; share < 0.48 || share > 0.52 {
			t.Errorf("share %.3f of /ca; want 0.5", share)
		}
		for _, write := range f.writes() {
			if config == twoEqual && strings.Contains(write, "weight") {
				t.Errorf("wrote %s", write)
			}
		}
		if f.reads["/ca"]+f.reads["/cb"] != 0 {
			t.Errorf("limits in the end: %v", f.reads)
		}
	}
}

// What an operator sets meanwhile bounds Daybook's limits, and stays.
func TestALimitThatAnotherProgramSetsIsABoundAndStays(t *testing.T) {
	f := newFakeHost("/ca", "/cb")
	steps := deepReaders(f, 20, func(int) bool { return false })
	steps[8] = func() account.Sample {
		f.mu.Lock()
		f.reads["/cb"] = 5e6
		f.mu.Unlock()
		return steps[0]()
	}
	options := fakeOptions(t, f, "actuator: limits\n"+twoEqual, steps...)
	n := 0
	options.OnInterval = func(Decision) {
		if n++; n > 9 && (f.reads["/cb"] == 0 || f.reads["/cb"] > 5e6) {
			t.Errorf("interval %d: /cb may read %d bytes/s; want at most 5000000", n, f.reads["/cb"])
		}
	}
	if err := Run(context.Background(), options); err != nil {
		t.Fatal(err)
	}
	if f.reads["/cb"] != 5e6 || f.reads["/ca"] != 0 {
		t.Errorf("limits in the end: %v", f.reads)
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

// Windows of all groups end together: a group that came later and shows nothing does
// not interrupt the evidence of another.
func TestAGroupThatComesLaterHidesNoIgnoredWeights(t *testing.T) {
	f := newFakeHost("/p/a", "/p/b", "/q/x")
	options := fakeOptions(t, f, "actuator: weights\n")
	c, err := start(options, options.Disks[0])
	if err != nil {
		t.Fatal(err)
	}
	defer c.lock.Release()
	p, q := Group{Parent: "/p"}, Group{Parent: "/q"}
	c.groups, c.laws = []Group{p, q}, map[string]law.Law{"/p": law.NewFeedback(law.BFQRange), "/q": law.NewFeedback(law.BFQRange)}
	const seconds = 0.5
	ignored := []law.Observation{
		{ID: "a", Ideal: 100, Weight: 500, OtherBytes: 1e6, BusySeconds: 4}, {ID: "b", Ideal: 100, Weight: 100, OtherBytes: 9e6, BusySeconds: 4},
	}
	for step := range 60 {
		c.observeScheduler(p, seconds, ignored)
		if step > 2 && step != 30 { // and misses a step
			c.observeScheduler(q, seconds, []law.Observation{{ID: "x", Ideal: 100, Weight: 100, OtherBytes: 1e6, BusySeconds: 4}})
		}
		c.judgeScheduler(seconds, nil)
	}
	if !c.scheduler.Ignored {
		t.Errorf("weights were ignored for 30 s, and that was not noticed: %+v", c.scheduler.Trust)
	}
}

// Of a limit that could be written only in part, the part is Daybook's, not another
// program's: it does not stay.
func TestALimitWrittenHalfIsRemoved(t *testing.T) {
	for _, repaired := range []bool{false, true} {
		f := newFakeHost("/ca", "/cb")
		steps := repeat(12, func() account.Sample {
			ca, cb := did("/ca", 20e6, 0), did("/cb", 60e6, 0)
			ca.BusySeconds, cb.BusySeconds, cb.ChargedWriteBytes = 5, 5, 60e6
			return sampleOf(ca, cb)
		})
		failed := 0
		f.before = func(what string) error {
			if strings.HasPrefix(what, "/cb limit") && (failed == 0 || !repaired && !strings.HasSuffix(what, " 0")) {
				failed++
				return errors.New("refused")
			}
			return nil
		}
		options := fakeOptions(t, f, "actuator: limits\n"+twoEqual, steps...)
		if err := Run(context.Background(), options); err != nil {
			t.Fatal(err)
		}
		if failed == 0 || f.reads["/cb"] != 0 || f.limits["/cb"] != 0 {
			t.Errorf("repaired %v: %d failures; limits in the end: reads %v, writes %v", repaired, failed, f.reads, f.limits)
		}
	}
}

// A limit is still lifted when the state cannot be saved any more.
func TestAStateThatCannotBeSavedKeepsNoLimitInForce(t *testing.T) {
	f := newFakeHost("/ca", "/cb", "/cd")
	var options Options
	samples := deepReaders(f, 8, func(int) bool { return false })
	full := func() account.Sample {
		f.mu.Lock()
		limited := f.reads["/cb"] > 0
		f.mu.Unlock()
		if !limited {
			t.Error("/cb has no limit, so the test shows nothing")
		}
		// A file where the state's directory was: nothing can be saved in it.
		if err := errors.Join(os.Rename(options.Config.StateDir, options.Config.StateDir+"-away"), os.WriteFile(options.Config.StateDir, nil, 0o600)); err != nil {
			t.Error(err)
		}
		return samples[0]()
	}
	samples = append(samples, full)
	samples = append(samples, repeat(5, func() account.Sample {
		// /ca is idle; a third one would need a limit, which cannot be recorded.
		cb, cd := did("/cb", 20e6, 0), did("/cd", 80e6, 0)
		cb.BusySeconds, cd.BusySeconds = 5, 5
		return sampleOf(cb, cd)
	})...)
	lifted := false
	last := func() account.Sample {
		f.mu.Lock()
		lifted = f.reads["/cb"] == 0
		f.mu.Unlock()
		if err := errors.Join(os.Remove(options.Config.StateDir), os.Rename(options.Config.StateDir+"-away", options.Config.StateDir)); err != nil {
			t.Error(err)
		}
		return sampleOf()
	}
	samples = append(samples, last)
	options = fakeOptions(t, f, "actuator: limits\ncontainers:\n  - {match: /ca, weight: 100}\n  - {match: /cb, weight: 100}\n  - {match: /cd, weight: 100}\n", samples...)
	if err := Run(context.Background(), options); err != nil {
		t.Fatal(err)
	}
	if !lifted {
		t.Error("the limit of /cb stayed while the state could not be saved")
	}
	if f.reads["/cb"] != 0 {
		t.Errorf("limits in the end: %v", f.reads)
	}
}

// A container that reads and then writes, or the other way round, has nearly its
// whole limit within a second, and never much more than it.
func TestALimitFollowsAChangeFromReadingToWriting(t *testing.T) {
	const limit, step = 10e6, 0.5
	for _, change := range []struct{ before, after float64 }{{1, 0}, {0, 1}, {0.8, 0.2}, {0.5, 1}} {
		var reads, writes law.Mean
		did := func(part float64, l Limits) (read, written float64) {
			bound := func(want float64, limit uint64) float64 {
				if limit == 0 {
					return want
				}
				return min(want, float64(limit))
			}
			read, written = bound(part*limit, l.Read), bound((1-part)*limit, l.Write)
			reads.Add(read*step, step, law.SplitSeconds)
			writes.Add(written*step, step, law.SplitSeconds)
			return read, written
		}
		var l Limits
		for range 20 {
			did(change.before, l)
			l = splitLimit(limit, reads.Rate(), writes.Rate())
		}
		for n := range 10 {
			read, written := did(change.after, l)
			l = splitLimit(limit, reads.Rate(), writes.Rate())
			if n >= 2 && read+written < 0.9*limit {
				t.Errorf("%+v: %.1f s after the change it reads %.1f and writes %.1f MB/s of %.1f", change, float64(n)*step, read/1e6, written/1e6, limit/1e6)
			}
		}
		if l.Read > 0 && l.Write > 0 && float64(l.Read+l.Write) > 1.11*limit {
			t.Errorf("%+v: limits %+v for %.0f", change, l, limit)
		}
	}
}

func TestNoPartOfALimitIsBelowTheLeast(t *testing.T) {
	for _, limit := range []float64{law.LeastLimit, 2 * law.LeastLimit, 50e6} {
		for reads := 0.0; reads <= 1; reads += 0.01 {
			l := splitLimit(limit, reads*limit, (1-reads)*limit)
			if l.Read > 0 && l.Read < law.LeastLimit || l.Write > 0 && l.Write < law.LeastLimit {
				t.Errorf("%.0f bytes/s, of which %.0f %% are reads: %+v; want at least %d each", limit, 100*reads, l, law.LeastLimit)
			}
		}
	}
}

func TestALimitWaitsOnlyForItsOwnDirection(t *testing.T) {
	now := Limits{Read: 10_000, Write: 50_000_000}
	if rest := now.restSeconds(Limits{Read: 10_000, Write: 20_000_000}); rest > 0.1 {
		t.Errorf("a write limit of 50 MB/s stays for %.1f s because of a read limit", rest)
	}
	if rest := now.restSeconds(Limits{Read: 20_000, Write: 50_000_000}); rest < 100 {
		t.Errorf("a read limit of 10 kB/s stays for %.1f s; want the time of two large requests", rest)
	}
}

// A request that waits for a low limit must not wait anew at each step.
func TestALowLimitIsWrittenSeldomAndRaisedAtOnce(t *testing.T) {
	f := newFakeHost("/ca", "/cb")
	options := fakeOptions(t, f, "actuator: limits\n")
	c, err := start(options, options.Disks[0])
	if err != nil {
		t.Fatal(err)
	}
	defer c.lock.Release()
	if err := c.begin(); err != nil {
		t.Fatal(err)
	}
	c.active["/ca"], c.active["/cb"] = true, true
	if err := c.refresh(); err != nil {
		t.Fatal(err)
	}
	const seconds = 0.5
	writes := func(steps int, of func(n int) uint64) (written int) {
		before := len(f.writes())
		for n := range steps {
			c.held["/ca"] = Limits{Read: of(n)}
			c.steerLimits(seconds, nil)
		}
		return len(f.writes()) - before
	}
	// Two requests of 1 MiB take 2 s at 1 MiB/s, and a fifth of one at 10 MiB/s.
	if n := writes(40, func(n int) uint64 { return 1<<20 + uint64(n%2)*100_000 }); n > 11 || n < 5 {
		t.Errorf("a limit of 1 MiB/s was written %d times in 20 s; want once in two seconds", n)
	}
	if n := writes(40, func(n int) uint64 { return 10<<20 + uint64(n%2)*1_000_000 }); n < 39 {
		t.Errorf("a limit of 10 MiB/s was written %d times in 40 steps; want each time", n)
	}
	writes(1, func(int) uint64 { return 1 << 20 })
	if n := writes(1, func(int) uint64 { return 2 << 20 }); n != 1 {
		t.Errorf("a limit that doubled was written %d times; want at once", n)
	}
	if n := writes(1, func(int) uint64 { return 0 }); n != 1 || f.reads["/ca"] != 0 {
		t.Errorf("a limit that ended was written %d times; want at once", n)
	}
}

func TestWhatALimitDoesNotHoldIsReportedOnce(t *testing.T) {
	for _, test := range []struct {
		name string
		flat bool
		want int
	}{{"cgroup v1", true, 1}, {"cgroup v2", false, 0}} {
		f := newFakeHost("/ca", "/cb", "/cb/inner", "/cbx/inner")
		options := fakeOptions(t, f, "actuator: limits\n"+twoEqual, deepReaders(f, 20, func(int) bool { return false })...)
		options.Disks[0].Host.FlatLimits = test.flat
		var log bytes.Buffer
		options.Log = slog.New(slog.NewTextHandler(&log, nil))
		if err := Run(context.Background(), options); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(log.String(), "does not apply to the cgroups below"); n != test.want || n > 0 && !strings.Contains(log.String(), "cgroup=/cb below=/cb/inner") {
			t.Errorf("%s: logged %d times; want %d:\n%s", test.name, n, test.want, log.String())
		}
	}
}

// The containers of a pod are in cgroups below the pod's. On cgroup v1 its limits do not apply
// to them: control that used limits would hold nothing, and set the weights to the ideal ones.
func TestWeightsStayWhereLimitsReachNothing(t *testing.T) {
	for _, test := range []struct {
		name   string
		flat   bool
		config string
		below  []string // which of the two have their I/O in a cgroup below
		limits bool
	}{
		{"pods on cgroup v1", true, twoEqual, []string{"/ca", "/cb"}, false},
		{"pods and their containers on cgroup v1", true, "containers: [{match: '/c*', weight: 500}, {match: '/c*/main', weight: 500}]", []string{"/ca", "/cb"}, false},
		{"pods on cgroup v2", false, twoEqual, []string{"/ca", "/cb"}, true},
		{"containers without cgroups below", true, twoEqual, nil, true},
		{"most of the I/O is that of containers without cgroups below", true, twoEqual, []string{"/ca"}, true},
		{"most of the I/O is that of a pod", true, twoEqual, []string{"/cb"}, false},
	} {
		f := newFakeHost("/ca", "/cb", "/ca/main", "/cb/main")
		var steps []func() account.Sample
		for _, step := range deepReaders(f, 20, func(int) bool { return false }) {
			steps = append(steps, func() account.Sample {
				sample := step()
				for n := range sample.Devices[1].Containers {
					if c := &sample.Devices[1].Containers[n]; slices.Contains(test.below, c.Cgroup) {
						c.Cgroup += "/main"
						c.Name = c.Cgroup
					}
				}
				return sample
			})
		}
		options := fakeOptions(t, f, "tunables: none\n"+test.config, steps...)
		options.Disks[0].Host.FlatLimits = test.flat
		var log bytes.Buffer
		options.Log = slog.New(slog.NewTextHandler(&log, nil))
		limited, last := false, Decision{}
		options.OnInterval = func(d Decision) {
			limited = limited || f.reads["/ca"]+f.reads["/cb"] > 0
			last = d
		}
		if err := Run(context.Background(), options); err != nil {
			t.Fatal(err)
		}
		if limited != test.limits {
			t.Errorf("%s: limits in force: %v", test.name, limited)
		}
		warned := strings.Count(log.String(), "limits would not hold the shares either")
		if corrected := last.Weights[0].After > last.Weights[1].After; corrected == test.limits || warned != map[bool]int{true: 0, false: 1}[test.limits] {
			t.Errorf("%s: the last weights are %+v; logged %d times:\n%s", test.name, last.Weights, warned, log.String())
		}
	}
}

func TestAStateDirectoryOnTheLimitedDiskIsReported(t *testing.T) {
	for _, actuator := range []string{ActuatorLimits, ActuatorAuto, ActuatorWeights} {
		f := newFakeHost("/ca", "/cb")
		options := fakeOptions(t, f, "actuator: "+actuator+"\n"+twoEqual)
		options.Disks[0].Carries = func(path string) bool { return path == options.Config.StateDir }
		var log bytes.Buffer
		options.Log = slog.New(slog.NewTextHandler(&log, nil))
		if err := Run(context.Background(), options); err != nil {
			t.Fatal(err)
		}
		if logged := strings.Contains(log.String(), "state_dir: /run/daybook"); logged != (actuator != ActuatorWeights) {
			t.Errorf("%s: logged %v:\n%s", actuator, logged, log.String())
		}
	}
}

func TestARecordingOnTheLimitedDiskIsReported(t *testing.T) {
	for _, path := range []string{"/mnt/recording", ""} {
		options := fakeOptions(t, newFakeHost("/ca", "/cb"), twoEqual)
		options.Recording = path
		options.Disks[0].Carries = func(path string) bool { return path != options.Config.StateDir }
		var log bytes.Buffer
		options.Log = slog.New(slog.NewTextHandler(&log, nil))
		if err := Run(context.Background(), options); err != nil {
			t.Fatal(err)
		}
		if logged := strings.Contains(log.String(), "record to another disk"); logged != (path != "") {
			t.Errorf("%q: logged %v:\n%s", path, logged, log.String())
		}
	}
}

func TestALawOfAGroupThatIsGoneIsForgotten(t *testing.T) {
	f := newFakeHost("/p", "/p/a", "/p/b", "/q", "/q/a", "/q/b")
	options := fakeOptions(t, f, "actuator: limits\ncontainers:\n  - {match: /*/*, weight: 100}\n")
	c, err := start(options, options.Disks[0])
	if err != nil {
		t.Fatal(err)
	}
	defer c.lock.Release()
	if err := c.begin(); err != nil {
		t.Fatal(err)
	}
	sample := sampleOf(did("/p/a", 1e6, 0), did("/q/a", 1e6, 0))
	c.interval(sample)
	before := len(c.limitLaws)
	f.remove("/q/a")
	f.remove("/q/b")
	c.interval(sample)
	if before != 3 || len(c.limitLaws) != 1 {
		t.Errorf("%d laws, and %d after /q is empty; want 3, then that of /p", before, len(c.limitLaws))
	}
}

// What limits cost is compared also after a container has ended that was active once.
func TestLimitsThatCostThroughputEndWithFewerContainersThanOnce(t *testing.T) {
	f := newFakeHost("/ca", "/cb", "/cc")
	var log bytes.Buffer
	n := 0
	var steps []func() account.Sample
	for _, step := range deepReaders(f, 60, func(n int) bool { return n <= 30 }) {
		steps = append(steps, func() account.Sample {
			sample := step()
			if f.reads["/ca"]+f.reads["/cb"] > 0 {
				for n := range sample.Devices[1].Containers {
					sample.Devices[1].Containers[n].ChargedReadBytes /= 3
				}
			}
			if n++; n <= 5 {
				sample.Devices[1].Containers = append(sample.Devices[1].Containers, did("/cc", 100e6, 0))
			}
			return sample
		})
	}
	options := fakeOptions(t, f, "tunables: none\ncontainers: [{match: '/c?', weight: 500}]", steps...)
	options.Log = slog.New(slog.NewTextHandler(&log, nil))
	if err := Run(context.Background(), options); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(log.String(), "limits cost the disk's throughput"); n != 1 {
		t.Errorf("logged %d times; want once:\n%s", n, log.String())
	}
}

// A container whose bytes cost the disk more than others' lowers what all do together if it has
// its share. That is no fault of the limits.
func TestLimitsStayWhereTheSharesAreWorthTheThroughput(t *testing.T) {
	for _, test := range []struct {
		name   string
		seeker uint64
		said   string
	}{
		{"it has 15 times as much", 15e6, "limits stay, although"},
		{"it has as much as before", 1e6, "limits cost the disk's throughput"},
	} {
		f := newFakeHost("/ca", "/cb")
		var log bytes.Buffer
		options := fakeOptions(t, f, "tunables: none\n"+twoEqual, repeat(25, func() account.Sample {
			f.mu.Lock()
			limited := f.reads["/cb"] > 0
			f.mu.Unlock()
			ca, cb := did("/ca", 1e6, 0), did("/cb", 199e6, 0)
			if limited {
				ca, cb = did("/ca", test.seeker, 0), did("/cb", 15e6, 0)
			}
			ca.BusySeconds, cb.BusySeconds = 5, 5
			return sampleOf(ca, cb)
		})...)
		options.Log = slog.New(slog.NewTextHandler(&log, nil))
		if err := Run(context.Background(), options); err != nil {
			t.Fatal(err)
		}
		for _, said := range []string{"limits stay, although", "limits cost the disk's throughput"} {
			want := 0
			if said == test.said {
				want = 1
			}
			if n := strings.Count(log.String(), said); n != want {
				t.Errorf("%s: said %q %d times; want %d:\n%s", test.name, said, n, want, log.String())
			}
		}
	}
}

// A container that seeks cannot have its share of the bytes. That is said once, and not of one
// that only waits for its turn.
func TestAShareOutOfReachIsSaidOnce(t *testing.T) {
	for _, test := range []struct {
		name string
		// alone is what /ca does if /cb does nothing, in 5 s.
		alone float64
		want  int
	}{
		{"seeks", 11e6, 1},
		{"only waits", 200e6, 0},
	} {
		f := newFakeHost("/ca", "/cb")
		var log bytes.Buffer
		options := fakeOptions(t, f, "actuator: limits\n"+twoEqual, repeat(30, func() account.Sample {
			f.mu.Lock()
			others := min(180e6, most(f.reads["/cb"]))
			f.mu.Unlock()
			ca, cb := did("/ca", uint64(test.alone*(1-others/200e6)), 0), did("/cb", uint64(others), 0)
			ca.BusySeconds, cb.BusySeconds = 5, 5
			return sampleOf(ca, cb)
		})...)
		options.Log = slog.New(slog.NewTextHandler(&log, nil))
		if err := Run(context.Background(), options); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(log.String(), "/ca cannot have its share of 50 %"); n != test.want {
			t.Errorf("%s: said %d times; want %d:\n%s", test.name, n, test.want, log.String())
		}
	}
}

// The pause after which weights are tried again is short again once they were followed for long.
func TestThePauseIsShortAgainAfterWeightsWereFollowed(t *testing.T) {
	f := newFakeHost("/ca", "/cb")
	// Weights are tried after 120 s, in vain, and after 240 s more with success, for 400 s.
	obeys := func(n int) bool { return n > 40 && n <= 160 }
	options := fakeOptions(t, f, "tunables: none\n"+twoEqual, deepReaders(f, 220, obeys)...)
	var limited []int // the number of samples of each time by limits
	before := false
	options.OnInterval = func(Decision) {
		now := f.reads["/ca"]+f.reads["/cb"] > 0
		if now && !before {
			limited = append(limited, 0)
		}
		if before = now; now {
			limited[len(limited)-1]++
		}
	}
	if err := Run(context.Background(), options); err != nil {
		t.Fatal(err)
	}
	if len(limited) < 3 || limited[1] < 40 || limited[2] > 30 {
		t.Errorf("samples of 5 s by limits: %v; want some 24, 48, and 24 again", limited)
	}
}

// While nothing can be seen of the shares, the verdict stays.
func TestAnIdleDiskDoesNotHoldTheShares(t *testing.T) {
	f := newFakeHost("/ca", "/cb")
	var log bytes.Buffer
	steps := deepReaders(f, 20, func(int) bool { return false })
	steps = append(steps, repeat(10, func() account.Sample { return sampleOf(did("/ca", 0, 0), did("/cb", 0, 0)) })...)
	steps = append(steps, repeat(10, func() account.Sample { return sampleOf(did("/ca", 0, 0), did("/cb", 100e6, 0)) })...)
	options := fakeOptions(t, f, "tunables: none\nactuator: weights\n"+twoEqual, steps...)
	options.Log = slog.New(slog.NewTextHandler(&log, nil))
	last := Ideals{}
	options.OnIdeals = func(_ string, ideals Ideals) { last = ideals }
	if err := Run(context.Background(), options); err != nil {
		t.Fatal(err)
	}
	if !last.Control.WeightsIgnored || strings.Contains(log.String(), "they hold the shares") {
		t.Errorf("weights ignored: %v; the log:\n%s", last.Control.WeightsIgnored, log.String())
	}
}
