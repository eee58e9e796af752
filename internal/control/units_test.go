package control

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/account"
)

// fakeUnits are units of the same names as the cgroups of a fakeHost, in a service
// manager that keeps a unit's weight when its cgroup is gone.
type fakeUnits struct {
	*fakeHost
	units map[string]uint64
	// ignored means that the files never follow, as with BFQ before systemd 251.
	ignored bool
	// late means that the files follow when the service manager is asked the next time.
	late    bool
	failure error
	sets    []string
	// plain are cgroups without a unit. unanswered means that a change is made and no answer
	// comes.
	plain      map[string]bool
	unanswered bool
	// asked is called at each call.
	asked func()
	// awaited: calls wait now; undone are the changes made meanwhile.
	awaited bool
	undone  int
}

func unitHost(f *fakeHost, original map[string]uint64) *fakeUnits {
	u := &fakeUnits{fakeHost: f, units: map[string]uint64{}}
	for unit, weight := range original {
		u.units[unit] = weight
		u.apply(unit)
	}
	return u
}

func (u *fakeUnits) Find(cgroup string) (string, uint64, error) {
	if u.plain[cgroup] {
		return "", 0, nil
	}
	unit := strings.TrimPrefix(cgroup, "/")
	return unit, u.units[unit], u.failure
}

func (u *fakeUnits) Weight(unit string) (uint64, error) {
	if u.asked != nil {
		u.asked()
	}
	if u.late {
		u.apply(unit)
	}
	return u.units[unit], u.failure
}

func (*fakeUnits) Of(weight uint64) uint64 { return 10 * weight }

func (u *fakeUnits) Await() (end func()) {
	u.awaited = true
	return func() { u.awaited = false }
}

func (u *fakeUnits) Set(unit string, weight uint64) error {
	if u.failure != nil {
		return u.failure
	}
	u.sets = append(u.sets, fmt.Sprintf("%s %d", unit, weight))
	if u.awaited {
		u.undone++
	}
	u.units[unit] = weight
	if !u.late {
		u.apply(unit)
	}
	if u.unanswered {
		u.unanswered = false
		return errBusy
	}
	return nil
}

// apply does what systemd does at a change and at daemon-reload. Like io.weight, a
// file keeps a weight that is removed from its unit.
func (u *fakeUnits) apply(unit string) {
	cgroup := "/" + unit
	if s := u.weight(cgroup); !u.ignored && s.Default != 0 && u.units[unit] != 0 {
		u.choose(cgroup, Setting{Default: s.Default, Device: u.units[unit] / 10})
	}
}

// restart gives the unit another cgroup, with the unit's weight.
func (u *fakeUnits) restart(unit string) {
	u.remove("/" + unit)
	u.create("/" + unit)
	u.apply(unit)
}

func (u *fakeUnits) options(t *testing.T, config string, steps ...func() account.Sample) Options {
	t.Helper()
	options := fakeOptions(t, u.fakeHost, config, steps...)
	options.Disks[0].Host.Units = u
	return options
}

func (u *fakeUnits) check(t *testing.T, unit string, weight uint64, want Setting) {
	t.Helper()
	if u.units[unit] != weight {
		t.Errorf("unit %s has the weight %d, want %d; set %v", unit, u.units[unit], weight, u.sets)
	}
	if got := u.weight("/" + unit); got != want {
		t.Errorf("/%s has %+v, want %+v", unit, got, want)
	}
}

// began returns a controller before its first interval.
func began(t *testing.T, options Options) *Controller {
	t.Helper()
	c, err := start(options, options.Disks[0])
	if err == nil {
		err = c.begin()
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestAUnitThatIsRestartedKeepsItsOriginalWeight(t *testing.T) {
	for original, want := range map[uint64]Setting{0: {Default: 100}, 7000: {Default: 100, Device: 700}} {
		t.Run(fmt.Sprint(original), func(t *testing.T) {
			u := unitHost(newFakeHost("/ca", "/cb"), map[string]uint64{"cb": original})
			var log bytes.Buffer
			step := func() account.Sample { u.restart("cb"); return journalling() }
			options := u.options(t, twoEqual, journalling, journalling, step, journalling, step, journalling)
			options.Log = slog.New(slog.NewTextHandler(&log, nil))
			during := uint64(0)
			options.OnInterval = func(d Decision) { during = d.Weights[1].Ideal }
			if err := Run(context.Background(), options); err != nil {
				t.Fatal(err)
			}
			u.check(t, "cb", original, want)
			u.check(t, "ca", 0, Setting{Default: 100})
			if during != 500 {
				t.Errorf("the ideal weight of the restarted unit is %d, want the configured 500\n%s", during, log.String())
			}
		})
	}
}

func TestAUnitThatIsStoppedUnderControlIsRestored(t *testing.T) {
	u := unitHost(newFakeHost("/ca", "/cb"), nil)
	stopped := uint64(1)
	if err := Run(context.Background(), u.options(t, twoEqual, journalling,
		func() account.Sample { u.remove("/cb"); return journalling() },
		func() account.Sample { stopped = u.units["cb"]; return journalling() })); err != nil {
		t.Fatal(err)
	}
	if stopped != 0 || u.units["cb"] != 0 {
		t.Errorf("the stopped unit has the weight %d, in the end %d; want none", stopped, u.units["cb"])
	}
}

// Otherwise systemd would write another weight to the file when it applies the unit's settings.
func TestTheWeightThatAnotherProgramGaveAUnitStaysItsWeight(t *testing.T) {
	for _, original := range []uint64{0, 4000} {
		for _, killed := range []bool{false, true} {
			t.Run(fmt.Sprintf("original %d, killed %t", original, killed), func(t *testing.T) {
				u := unitHost(newFakeHost("/ca", "/cb"), map[string]uint64{"cb": original})
				options := u.options(t, twoEqual)
				c := began(t, options)
				c.interval(journalling())
				if err := u.Set("cb", 7000); err != nil {
					t.Fatal(err)
				}
				for range 4 {
					c.interval(journalling())
				}
				if u.units["cb"] == 7000 {
					t.Fatal("nothing was corrected")
				}
				endOrRestore(t, c, options, killed)
				u.check(t, "cb", 7000, Setting{Default: 100, Device: 700})
				u.check(t, "ca", 0, Setting{Default: 100})
			})
		}
	}
}

// endOrRestore ends the controller, or restores what it leaves when it is killed.
func endOrRestore(t *testing.T, c *Controller, options Options, killed bool) {
	t.Helper()
	var err error
	if killed {
		c.lock.Release()
		_, _, err = Restore(options.Config.StateDir, "", "loop0", "", func(*State) (Host, error) { return options.Disks[0].Host, nil }, discard)
	} else {
		err = c.stop()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A change after the last interval is found at the end, or after a kill.
func TestAUnitThatIsRestartedAtTheEndIsRestored(t *testing.T) {
	for what, change := range map[string]func(*fakeUnits){
		"restarted": func(u *fakeUnits) { u.restart("cb") },
		"stopped":   func(u *fakeUnits) { u.remove("/cb") },
	} {
		for _, killed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, killed %t", what, killed), func(t *testing.T) {
				u := unitHost(newFakeHost("/ca", "/cb"), nil)
				options := u.options(t, twoEqual)
				c := began(t, options)
				c.interval(journalling())
				if u.units["cb"] == 0 {
					t.Fatal("no unit was set")
				}
				change(u)
				endOrRestore(t, c, options, killed)
				if what == "restarted" {
					u.check(t, "cb", 0, Setting{Default: 100})
				} else if u.units["cb"] != 0 {
					t.Errorf("the unit has the weight %d", u.units["cb"])
				}
			})
		}
	}
}

// While D-Bus fails, the unit's new cgroup is not changed, and the state keeps what
// is to be restored.
func TestAUnitThatCannotBeRestoredStaysInTheState(t *testing.T) {
	u := unitHost(newFakeHost("/ca", "/cb"), nil)
	options := u.options(t, twoEqual)
	c := began(t, options)
	c.interval(journalling())
	u.restart("cb")
	u.failure = errors.New("no D-Bus")
	c.interval(journalling())
	if c.cgroups["/cb"] != nil {
		t.Error("a cgroup with a weight of Daybook's is taken into the state")
	}
	if err := c.stop(); err == nil {
		t.Error("no error")
	}
	u.failure = nil
	if _, ok, err := Restore(options.Config.StateDir, "", "loop0", "", func(*State) (Host, error) { return options.Disks[0].Host, nil }, discard); !ok || err != nil {
		t.Fatal(ok, err)
	}
	u.check(t, "cb", 0, Setting{Default: 100})
}

// After D-Bus failed, weights are written only to the file. The unit keeps another
// weight of Daybook's, which a daemon-reload writes to the file.
func TestAUnitsWeightIsDaybooksAfterAFallback(t *testing.T) {
	for _, reload := range []bool{false, true} {
		for _, killed := range []bool{false, true} {
			t.Run(fmt.Sprintf("reload %t, killed %t", reload, killed), func(t *testing.T) {
				u := unitHost(newFakeHost("/ca", "/cb"), nil)
				options := u.options(t, twoEqual)
				var log bytes.Buffer
				options.Log = slog.New(slog.NewTextHandler(&log, nil))
				var last Decision
				options.OnInterval = func(d Decision) { last = d }
				c := began(t, options)
				u.failure = errors.New("no D-Bus")
				for range 3 {
					c.interval(journalling())
				}
				if now := u.weight("/cb").Device; now*10 == u.units["cb"] || u.units["cb"] != 5000 {
					t.Fatalf("unit %d, file %d: no fallback", u.units["cb"], now)
				}
				u.failure = nil
				if reload {
					u.apply("ca")
					u.apply("cb")
				}
				var err error
				if killed {
					c.lock.Release()
					_, _, err = Restore(options.Config.StateDir, "", "loop0", "", func(*State) (Host, error) { return options.Disks[0].Host, nil }, discard)
				} else {
					c.interval(journalling())
					err = c.stop()
				}
				if err != nil {
					t.Fatal(err)
				}
				u.check(t, "cb", 0, Setting{Default: 100})
				u.check(t, "ca", 0, Setting{Default: 100})
				if strings.Contains(log.String(), "another program") || last.Weights[1].Ideal != 500 {
					t.Errorf("Daybook's own weight became another program's: %+v\n%s", last.Weights, log.String())
				}
			})
		}
	}
}

func TestUnitsAreNotUsedOnADiskWhereFilesDoNotFollow(t *testing.T) {
	u := unitHost(newFakeHost("/ca", "/cb"), map[string]uint64{"cb": 7000})
	u.ignored = true
	var log bytes.Buffer
	var under uint64
	options := u.options(t, twoEqual, repeat(4, func() account.Sample { under = u.units["cb"]; return journalling() })...)
	options.Log = slog.New(slog.NewTextHandler(&log, nil))
	var last Decision
	options.OnInterval = func(d Decision) { last = d }
	if err := Run(context.Background(), options); err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(u.sets, ", "), "ca 5000, ca 0"; got != want {
		t.Errorf("set %s; want %s", got, want)
	}
	if under != 7000 || last.Weights[0].After <= 500 {
		t.Errorf("under control: unit %d, decided %+v", under, last.Weights)
	}
	if n := strings.Count(log.String(), "level=WARN"); n != 1 {
		t.Errorf("%d warnings:\n%s", n, log.String())
	}
	u.check(t, "cb", 7000, Setting{Default: 100, Device: 700})
	u.check(t, "ca", 0, Setting{Default: 100})
}

// On a busy host it can take seconds until systemd writes the files.
func TestUnitsAreUsedWhereFilesFollowLate(t *testing.T) {
	u := unitHost(newFakeHost("/ca", "/cb"), map[string]uint64{"cb": 7000})
	u.late = true
	var log bytes.Buffer
	options := u.options(t, twoEqual)
	options.Log = slog.New(slog.NewTextHandler(&log, nil))
	c := began(t, options)
	u.check(t, "ca", 5000, Setting{Default: 100, Device: 500})
	u.check(t, "cb", 5000, Setting{Default: 100, Device: 500})
	if c.filesOnly || strings.Contains(log.String(), "level=WARN") {
		t.Errorf("files only: %t\n%s", c.filesOnly, log.String())
	}
	u.late = false
	if err := c.stop(); err != nil {
		t.Fatal(err)
	}
	u.check(t, "ca", 0, Setting{Default: 100})
	u.check(t, "cb", 7000, Setting{Default: 100, Device: 700})
}

func TestRecordsOfEarlierVersionsHaveAUnitsWeightInTheFiles(t *testing.T) {
	u := unitHost(newFakeHost(), nil)
	for line, own := range map[string][]uint64{
		"7 100 200 210 0 0":             {2000, 2100},
		"7 100 200 210 0 0 0 0":         {2000, 2100},
		"7 100 200 210 0 0 0 0 190 0":   {1900},
		"7 100 200 210 0 0 0 0 190 180": {1900, 1800},
		"7 100 200 210 0 0 0 0 0 0":     {},
	} {
		id, w, ok := parseWritten(line)
		if !ok || id != 7 || w.Device != 200 || w.Intended != 210 {
			t.Errorf("%q: %d %+v %t", line, id, w, ok)
		}
		var got []uint64
		for _, weight := range []uint64{2000, 2100, 1900, 1800, 50} {
			if w.ownUnit(weight, u.Of) {
				got = append(got, weight)
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(own) {
			t.Errorf("%q: %v are Daybook's, want %v", line, got, own)
		}
	}
}

// systemd answers nothing while it reloads. A cgroup that appears meanwhile has a unit all
// the same.
func TestAUnitIsFoundOnceSystemdAnswers(t *testing.T) {
	u := unitHost(newFakeHost("/ca", "/cb"), map[string]uint64{"ca": 7000})
	u.failure = errors.New("no answer")
	var log bytes.Buffer
	options := u.options(t, twoEqual)
	options.Log = slog.New(slog.NewTextHandler(&log, nil))
	c := began(t, options)
	c.interval(journalling())
	if len(u.sets) != 0 || u.weight("/ca").Device == 700 {
		t.Fatalf("without systemd: set %v, the file has %+v", u.sets, u.weight("/ca"))
	}
	u.failure = nil
	c.interval(journalling())
	if len(u.sets) != 0 {
		t.Errorf("systemd was asked again at once: set %v", u.sets)
	}
	for _, g := range c.cgroups {
		g.unit.pausedUntil = time.Time{}
	}
	for range 3 {
		c.interval(sampleOf(did("/ca", 150e6, 0), did("/cb", 50e6, 0))) // so that weights change
	}
	state, err := LoadState(options.Config.StateDir, "loop0")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range state.Cgroups {
		if want := strings.TrimPrefix(s.Cgroup, "/"); s.SystemdUnit != want {
			t.Errorf("the state has the unit %q of %s", s.SystemdUnit, s.Cgroup)
		}
	}
	if len(u.sets) == 0 || u.awaited || u.undone != 0 {
		t.Errorf("set %v through systemd; steps wait for it: %v", u.sets, u.awaited)
	}
	if err := c.stop(); err != nil {
		t.Fatal(err)
	}
	if u.undone == 0 || u.awaited {
		t.Errorf("%d changes were undone with patience; calls wait after the end: %v", u.undone, u.awaited)
	}
	if u.units["ca"] != 7000 || u.units["cb"] != 0 {
		t.Errorf("in the end: %v", u.units)
	}
	if n := strings.Count(log.String(), "cannot ask systemd"); n != 2 {
		t.Errorf("logged %d times, want once for each cgroup:\n%s", n, log.String())
	}
}
