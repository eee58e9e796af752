package control

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/awaittest"
	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/systemd"
	"github.com/daybook-project/daybook/internal/systemdtest"
)

// checkQuiet fails if something was logged that an operator must read.
func checkQuiet(t *testing.T, log *bytes.Buffer) {
	t.Helper()
	for _, text := range []string{"level=WARN", "level=ERROR", "another program"} {
		if strings.Contains(log.String(), text) {
			t.Errorf("logged %s:\n%s", text, log.String())
		}
	}
}

// While systemd is busy, nobody knows whose a new cgroup is. It is left alone, and the others
// are controlled.
func TestANewCgroupWaitsForABusySystemd(t *testing.T) {
	u := unitHost(newFakeHost("/ca", "/cb"), map[string]uint64{"cb": 7000})
	u.plain = map[string]bool{"/ca": true}
	u.failure = errBusy
	var log bytes.Buffer
	options := u.options(t, twoEqual)
	options.Log = slog.New(slog.NewTextHandler(&log, nil))
	c := began(t, options)
	for range 3 {
		c.interval(journalling())
	}
	if got := u.weight("/ca").Device; got != 500 {
		t.Errorf("/ca, which has no unit, has the weight %d; want 500", got)
	}
	if got := u.weight("/cb").Device; got != 700 || c.cgroups["/cb"] != nil {
		t.Errorf("the unit's cgroup has the weight %d while systemd is busy; want the unit's 700", got)
	}
	u.failure = nil
	c.interval(journalling())
	if len(u.sets) == 0 || c.cgroups["/cb"] == nil || c.cgroups["/cb"].SystemdUnit != "cb" {
		t.Errorf("once systemd answers: set %v", u.sets)
	}
	checkQuiet(t, &log)
	if err := c.stop(); err != nil {
		t.Fatal(err)
	}
	u.check(t, "cb", 7000, Setting{Default: 100, Device: 700})
}

// What control would write to a unit's file, systemd would undo at the end of its reload.
func TestNoWeightOfAUnitIsWrittenPastABusySystemd(t *testing.T) {
	u := unitHost(newFakeHost("/ca", "/cb"), nil)
	u.plain = map[string]bool{"/ca": true}
	var log bytes.Buffer
	options := u.options(t, twoEqual)
	options.Log = slog.New(slog.NewTextHandler(&log, nil))
	var last Decision
	options.OnInterval = func(d Decision) { last = d }
	c := began(t, options)
	c.interval(journalling())
	u.failure = errBusy
	before, plain := u.weight("/cb"), u.weight("/ca")
	if before.Device == 0 || before.Device*10 != u.units["cb"] {
		t.Fatalf("the unit's cgroup has %+v", before)
	}
	other := func() account.Sample { return sampleOf(did("/ca", 150e6, 0), did("/cb", 50e6, 0)) }
	for range 3 {
		c.interval(other()) // so that weights change
	}
	if now := u.weight("/cb"); now != before {
		t.Errorf("the unit's cgroup has %+v; want %+v", now, before)
	}
	if now := u.weight("/ca"); now == plain {
		t.Errorf("the other cgroup still has %+v", now)
	}
	// In a reload, BFQ's weights on single disks are gone for a moment.
	u.choose("/cb", Setting{Default: 100})
	c.interval(other())
	if now := u.weight("/cb").Device; now != 0 {
		t.Errorf("in the reload the unit's cgroup has the weight %d", now)
	}
	u.apply("cb")
	u.failure = nil
	c.interval(other())
	if now := u.weight("/cb"); now == before || now.Device*10 != u.units["cb"] {
		t.Errorf("after the reload the cgroup has %+v, and the unit %d", now, u.units["cb"])
	}
	if last.Weights[1].Ideal != 500 {
		t.Errorf("the ideal weight is %d", last.Weights[1].Ideal)
	}
	checkQuiet(t, &log)
	if err := c.stop(); err != nil {
		t.Fatal(err)
	}
	u.check(t, "cb", 0, Setting{Default: 100})
}

// While systemd fails, control writes the files of units, and systemd may undo that at the end
// of its reload. No program chose that weight.
func TestWhatSystemdUndoesAfterItFailedIsNotChosen(t *testing.T) {
	for name, test := range map[string]struct {
		begin, end func(*fakeUnits)
		filesOnly  bool
	}{
		"it does not say whose a cgroup is": {
			begin: func(u *fakeUnits) { u.failure = errors.New("systemd fails") },
			end:   func(u *fakeUnits) { u.failure = nil },
		},
		"it does not write its units' weights": {
			begin:     func(u *fakeUnits) { u.ignored = true },
			end:       func(u *fakeUnits) { u.ignored = false },
			filesOnly: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			u := unitHost(newFakeHost("/ca", "/cb"), map[string]uint64{"cb": 7000})
			var log bytes.Buffer
			options := u.options(t, twoEqual)
			options.Log = slog.New(slog.NewTextHandler(&log, nil))
			var last Decision
			options.OnInterval = func(d Decision) { last = d }
			test.begin(u)
			c := began(t, options)
			c.interval(journalling())
			if got := u.weight("/cb").Device; got == 700 || u.units["cb"] != 7000 {
				t.Fatalf("the cgroup has the weight %d, and its unit %d; want only the file written", got, u.units["cb"])
			}
			test.end(u)
			u.apply("cb")
			for range 2 {
				c.interval(journalling())
			}
			got, unit := u.weight("/cb").Device, u.units["cb"]
			if last.Weights[1].Ideal != 500 || got == 700 || test.filesOnly != (unit == 7000) || !test.filesOnly && unit != 10*got {
				t.Errorf("after a reload that undid the weight, the ideal is %d, the cgroup has %d, and its unit %d\n%s",
					last.Weights[1].Ideal, got, unit, log.String())
			}
			if strings.Contains(log.String(), "another program") {
				t.Error(log.String())
			}
			if err := c.stop(); err != nil {
				t.Fatal(err)
			}
			u.check(t, "cb", 7000, Setting{Default: 100, Device: 700})
		})
	}
}

// A weight that was written to the file alone is given to the unit, too, once systemd says whose
// it is, although it is the right one already.
func TestAUnitThatIsFoundLateGetsTheWeightOfItsFile(t *testing.T) {
	u := unitHost(newFakeHost("/ca", "/cb"), nil)
	u.failure = errors.New("systemd fails")
	c := began(t, u.options(t, twoEqual))
	even := func() account.Sample { return sampleOf(did("/ca", 100e6, 0), did("/cb", 100e6, 0)) }
	c.interval(even())
	u.failure = nil
	for _, g := range c.cgroups {
		g.unit.pausedUntil = time.Time{}
	}
	file := u.weight("/cb")
	for range 2 {
		c.interval(even())
	}
	if file.Device == 0 {
		t.Fatalf("the cgroup has %+v", file)
	}
	u.check(t, "cb", 10*file.Device, file)
	if sets := len(u.sets); sets != 2 {
		t.Errorf("weights of units were set %d times, want once each: %v", sets, u.sets)
	}
	if err := c.stop(); err != nil {
		t.Fatal(err)
	}
	u.check(t, "cb", 0, Setting{Default: 100})
}

// Control asks systemd again every 30 s.
func TestThatSystemdSetsNoWeightsIsLoggedOnceForAUnit(t *testing.T) {
	u := unitHost(newFakeHost("/ca", "/cb"), nil)
	u.plain = map[string]bool{"/ca": true}
	var log bytes.Buffer
	options := u.options(t, twoEqual)
	options.Log = slog.New(slog.NewTextHandler(&log, nil))
	c := began(t, options)
	steps := 0
	step := func() { // its weight changes in each
		steps++
		c.cgroups["/cb"].unit.pausedUntil = time.Time{}
		own := uint64(50e6 + 100e6*(steps%2))
		c.interval(sampleOf(did("/ca", 200e6-own, 0), did("/cb", own, 0)))
	}
	step()
	fails := func(times int) {
		u.failure = errors.New("access denied")
		for range times {
			step()
		}
	}
	warned := func() int { return strings.Count(log.String(), "systemd did not set the weight") }
	if fails(3); warned() != 1 {
		t.Errorf("3 failures: warned %d times\n%s", warned(), log.String())
	}
	u.failure = nil
	step()
	if fails(2); warned() != 2 {
		t.Errorf("it failed, worked and failed: warned %d times\n%s", warned(), log.String())
	}
	u.failure = nil
	if err := c.stop(); err != nil {
		t.Fatal(err)
	}
	u.check(t, "cb", 0, Setting{Default: 100})
}

// systemd does what it is asked for also when control no longer waits for the answer.
func TestAWeightThatSystemdSetsLaterIsDaybooks(t *testing.T) {
	u := unitHost(newFakeHost("/ca", "/cb"), nil)
	var log bytes.Buffer
	options := u.options(t, twoEqual)
	options.Log = slog.New(slog.NewTextHandler(&log, nil))
	c := began(t, options)
	for range 4 {
		u.unanswered = true
		c.interval(journalling())
	}
	if u.unanswered {
		t.Error("no weight was set")
	}
	checkQuiet(t, &log)
	if err := c.stop(); err != nil {
		t.Fatal(err)
	}
	u.check(t, "ca", 0, Setting{Default: 100})
	u.check(t, "cb", 0, Setting{Default: 100})
}

func TestAUnitThatIsRestartedWhileSystemdIsBusyIsRestored(t *testing.T) {
	u := unitHost(newFakeHost("/ca", "/cb"), nil)
	var log bytes.Buffer
	options := u.options(t, twoEqual)
	options.Log = slog.New(slog.NewTextHandler(&log, nil))
	c := began(t, options)
	c.interval(journalling())
	u.restart("cb")
	u.failure = errBusy
	c.interval(journalling())
	if c.cgroups["/cb"] != nil {
		t.Error("a cgroup with a weight of Daybook's is taken into the state")
	}
	u.failure = nil
	for range 2 { // one step restores the unit
		c.interval(journalling())
	}
	if g := c.cgroups["/cb"]; g == nil || g.SystemdWeight != 0 || g.Weight != (Setting{Default: 100}) {
		t.Errorf("the unit's new cgroup is %+v", g)
	}
	checkQuiet(t, &log)
	if err := c.stop(); err != nil {
		t.Fatal(err)
	}
	u.check(t, "cb", 0, Setting{Default: 100})
}

// The weight of a unit may have to wait for systemd at the end. Nothing else waits for that.
func TestWhatNeedsNoSystemdIsRestoredFirst(t *testing.T) {
	u := unitHost(newFakeHost("/ca", "/cb"), nil)
	u.plain = map[string]bool{"/cb": true}
	u.limits["/ca"] = 50e6
	options := u.options(t, twoEqual)
	c := began(t, options)
	for range 3 {
		c.interval(sampleOf(did("/ca", 100e6, 100e6), did("/cb", 70e6, 0)))
	}
	if u.limits["/ca"] == 50e6 || u.weight("/cb").Device == 0 {
		t.Fatalf("limits %v, weight of /cb %+v", u.limits, u.weight("/cb"))
	}
	u.failure = errors.New("no answer")
	asked := false
	u.asked = func() {
		asked = true
		if now := u.weight("/cb"); u.awaited && now != (Setting{Default: 100}) {
			t.Errorf("while systemd is asked, /cb has %+v", now)
		}
		if now := u.limits["/ca"]; u.awaited && now != 50e6 {
			t.Errorf("while systemd is asked, the limit of /ca is %d", now)
		}
	}
	if err := c.stop(); err == nil || !asked {
		t.Errorf("systemd was asked: %t; error: %v", asked, err)
	}
}

// A systemd that hangs delays no step for long. Control waits some seconds for it, and then
// writes the file of the unit's cgroup.
func TestASystemdThatHangsDelaysNoOtherContainer(t *testing.T) {
	if serviceManager.Patience != stepPatience {
		t.Errorf("a step waits for %v", serviceManager.Patience)
	}
	bus := systemdtest.StartBus(t)
	f := newFakeHost("/a.service", "/cb")
	var log bytes.Buffer
	options := fakeOptions(t, f, "containers: [{match: /a.service, weight: 500}, {match: /cb, weight: 500}]")
	options.Log = slog.New(slog.NewTextHandler(&log, nil))
	options.Disks[0].Host.Units = hostUnits{systemd.DiskWeights{
		Manager: &systemd.Manager{Patience: stepPatience}, Devices: blockdev.Host, Path: "/dev/loop0", File: "fake.weight",
	}}
	sample := func() account.Sample { return sampleOf(did("/a.service", 100e6, 0), did("/cb", 70e6, 30e6)) }
	begun := time.Now()
	c := began(t, options)
	c.interval(sample())
	if f.weight("/cb").Device == 0 {
		t.Error("the other container is not controlled")
	}
	if time.Since(begun) < 4*time.Second { // however slow this test is
		if f.weight("/a.service").Device != 0 {
			t.Error("the unit's cgroup was written at once")
		}
		if log.Len() != 0 && strings.Contains(log.String(), "level=WARN") {
			t.Errorf("logged at once:\n%s", log.String())
		}
	}
	awaittest.Until(t, awaittest.Patience, "control writes the unit's cgroup", func() bool {
		c.interval(sample())
		return f.weight("/a.service").Device != 0
	})
	// It was called once at first, and then every 2 s.
	if seconds := time.Since(begun).Seconds(); float64(bus.Calls.Load()) > 2+seconds/2 || bus.Calls.Load() == 0 {
		t.Errorf("%d calls in %.1f s", bus.Calls.Load(), seconds)
	}
	if n := strings.Count(log.String(), "cannot ask systemd whose"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, log.String())
	}
	if err := c.stop(); err != nil {
		t.Fatal(err)
	}
	if got := f.weight("/a.service"); got != (Setting{Default: 100}) {
		t.Errorf("in the end it has %+v", got)
	}
}

// A signal ends control although a call has no answer.
func TestASystemdThatHangsDoesNotDelayTheEnd(t *testing.T) {
	bus := systemdtest.StartBus(t)
	f := newFakeHost("/a.service", "/cb")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	options := fakeOptions(t, f, "containers: [{match: /a.service, weight: 500}, {match: /cb, weight: 500}]", journalling)
	options.Disks[0].Host.Units = hostUnits{systemd.DiskWeights{
		Manager: &systemd.Manager{Patience: stepPatience}, Devices: blockdev.Host, Path: "/dev/loop0", File: "fake.weight",
	}}
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, options) }()
	awaittest.Until(t, awaittest.Patience, "systemd is called", func() bool { return bus.Calls.Load() > 0 })
	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(awaittest.Patience):
		t.Fatal("control does not end")
	}
	if writes := f.writes(); slices.ContainsFunc(writes, func(w string) bool { return strings.HasPrefix(w, "/a.service") }) {
		t.Errorf("wrote %v", writes)
	}
}
