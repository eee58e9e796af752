package control

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
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
		"weights have not held the shares: for 10 s in all, /ca has lacked": 1, "follows its weights again": 1,
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
