package control

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/control/law"
)

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
func TestALowLimitIsWrittenSeldomAndAtOnceIfItIsWrong(t *testing.T) {
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
	c.seen.active["/ca"], c.seen.active["/cb"] = true, true
	if err := c.refresh(); err != nil {
		t.Fatal(err)
	}
	const seconds = 0.5
	writes := func(steps int, of func(n int) uint64) (written int) {
		before := len(f.writes())
		for n := range steps {
			c.limits.held["/ca"] = Limits{Read: of(n)}
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
	if n := writes(1, func(int) uint64 { return 1 << 20 }); n != 1 {
		t.Errorf("a limit that fell by half was written %d times; want at once", n)
	}
	if n := writes(1, func(int) uint64 { return 0 }); n != 1 || f.reads["/ca"] != 0 {
		t.Errorf("a limit that ended was written %d times; want at once", n)
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
	before := len(c.limits.laws)
	f.remove("/q/a")
	f.remove("/q/b")
	c.interval(sample)
	if before != 3 || len(c.limits.laws) != 1 {
		t.Errorf("%d laws, and %d after /q is empty; want 3, then that of /p", before, len(c.limits.laws))
	}
}

func TestLimitsAreLoweredByWhatEscapesThem(t *testing.T) {
	f := newFakeHost("/ca", "/cb")
	f.limits["/cb"] = 20e6
	options := fakeOptions(t, f, twoEqual, repeat(6, func() account.Sample {
		return sampleOf(did("/ca", 1e8, 0), did("/cb", 1e8, 25e6)) // 5 MB/s of journal
	})...)
	var lowest uint64 = 1 << 60
	f.before = func(what string) error {
		var bps uint64
		if _, err := fmt.Sscanf(what, "/cb limit %d", &bps); err == nil {
			lowest = min(lowest, bps)
		}
		return nil
	}
	if err := Run(context.Background(), options); err != nil {
		t.Fatal(err)
	}
	if lowest != 15e6 {
		t.Errorf("the limit was reduced to %d, want 15000000", lowest)
	}
	if f.limits["/cb"] != 20e6 {
		t.Errorf("in the end it is %d", f.limits["/cb"])
	}
}

func TestCorrectLimitKeepsAFloor(t *testing.T) {
	for _, c := range []struct {
		limit  uint64
		hidden float64
		want   uint64
	}{{100, 0, 100}, {100, 30, 70}, {100, 95, 10}, {100, 1e300, 10}, {5, 100, 1}, {1, 100, 1}, {100, -5, 100}} {
		if got := CorrectLimit(c.limit, c.hidden); got != c.want {
			t.Errorf("CorrectLimit(%d, %g) = %d, want %d", c.limit, c.hidden, got, c.want)
		}
	}
}
