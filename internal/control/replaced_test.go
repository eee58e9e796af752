package control

import (
	"bytes"
	"errors"
	"log/slog"
	"testing"
	"time"
)

// To restore the weight of a unit that ended can take a second, in which the unit starts again.
// The new cgroup is not controlled by the identity of the one that was listed before.
func TestACgroupThatIsReplacedDuringALookIsRestored(t *testing.T) {
	u := unitHost(newFakeHost("/ca", "/cb"), nil)
	c := began(t, u.options(t, twoEqual))
	c.interval(journalling())
	u.restart("cb")
	u.asked = func() { // the list of this look has been made
		u.asked = nil
		u.remove("/cb")
		u.create("/cb")
		u.plain = map[string]bool{"/cb": true} // systemd does not say whose it is yet
	}
	c.interval(journalling())
	if g := c.cgroups["/cb"]; g != nil && g.ID != u.ids["/cb"] {
		t.Errorf("the cgroup is known by the identity %d; it has %d", g.ID, u.ids["/cb"])
	}
	for range 2 {
		c.interval(journalling())
	}
	if g := c.cgroups["/cb"]; g == nil || g.ID != u.ids["/cb"] || g.Weight != (Setting{Default: 100}) || u.weight("/cb").Device == 0 {
		t.Errorf("the new cgroup, %d, has %+v and is known as %+v; want it controlled, with its own weight as the original", u.ids["/cb"], u.weight("/cb"), g)
	}
	if err := c.stop(); err != nil {
		t.Fatal(err)
	}
	u.check(t, "cb", 0, Setting{Default: 100})
}

// What is written to another cgroup than the one in the state would not be restored.
func TestNothingIsWrittenToACgroupThatReplacedAnother(t *testing.T) {
	f := newFakeHost("/ca", "/cb")
	c := began(t, fakeOptions(t, f, twoEqual))
	c.interval(journalling())
	g := c.cgroups["/cb"]
	f.remove("/cb")
	f.create("/cb")
	if err := c.setWeight(g, 300); !errors.Is(err, ErrVanished) {
		t.Errorf("the error is %v; want one that wraps ErrVanished", err)
	}
	if now := f.weight("/cb"); now != (Setting{Default: 100}) {
		t.Errorf("the new cgroup has %+v; want its own weight", now)
	}
	if decisions := c.steerLimit(limitedCgroup{g: g, before: *g, holds: Limits{Write: 1 << 20}}); decisions != nil || f.limits["/cb"] != 0 {
		t.Errorf("the new cgroup has the limit %d, by %v; want none", f.limits["/cb"], decisions)
	}
	if err := c.stop(); err != nil {
		t.Fatal(err)
	}
}

// A unit can end and start again while systemd does not write its weight to the file.
func TestAFileIsNotWrittenInPlaceOfAUnitThatWasReplaced(t *testing.T) {
	u := unitHost(newFakeHost("/ca", "/cb"), nil)
	c := began(t, u.options(t, twoEqual))
	c.interval(journalling())
	u.ignored = true
	u.asked = func() {
		u.asked = nil
		u.remove("/cb")
		u.create("/cb")
	}
	if err := c.setWeight(c.cgroups["/cb"], 300); !errors.Is(err, ErrVanished) {
		t.Errorf("the error is %v; want one that wraps ErrVanished", err)
	}
	if now := u.weight("/cb"); now != (Setting{Default: 100}) {
		t.Errorf("the new cgroup has %+v; want its own weight", now)
	}
	u.choose("/cb", Setting{Default: 250})
	if err := c.stop(); err != nil {
		t.Fatal(err)
	}
	u.check(t, "cb", 0, Setting{Default: 250})
}

// systemd can say that it knows no unit of the cgroup of a unit that is about to start.
func TestAUnitThatSystemdDoesNotKnowYetIsFoundLater(t *testing.T) {
	for name, test := range map[string]struct{ isNew, undone bool }{
		"a new cgroup":                    {isNew: true},
		"one that was there at the start": {},
		"one whose unit systemd applies":  {undone: true},
	} {
		t.Run(name, func(t *testing.T) {
			u := unitHost(newFakeHost("/ca"), nil)
			u.plain = map[string]bool{"/cb": true}
			if !test.isNew {
				u.create("/cb")
			}
			var log bytes.Buffer
			options := u.options(t, twoEqual)
			options.Log = slog.New(slog.NewTextHandler(&log, nil))
			c := began(t, options)
			c.interval(journalling())
			if test.isNew {
				u.create("/cb")
				c.interval(journalling())
			}
			if now := u.weight("/cb"); now.Device == 0 || u.units["cb"] != 0 {
				t.Fatalf("the cgroup of no unit has %+v, and a unit %d", now, u.units["cb"])
			}
			u.plain = nil
			switch {
			case test.isNew:
				time.Sleep(youngUnitRetry)
			case test.undone: // systemd applies the unit's settings
				u.choose("/cb", Setting{Default: 100})
			default:
				c.interval(journalling())
				if u.units["cb"] != 0 {
					t.Errorf("systemd is asked in each interval about a cgroup that has no unit")
				}
				u.failure = errors.New("systemd fails")
				c.cgroups["/cb"].unit.pausedUntil = time.Now() // half a minute later
				c.interval(journalling())
				u.failure = nil
				c.cgroups["/cb"].unit.pausedUntil = time.Now()
			}
			for range 2 {
				c.interval(journalling())
			}
			if now := u.weight("/cb"); u.units["cb"] == 0 || u.units["cb"] != 10*now.Device || c.cgroups["/cb"].chosen {
				t.Errorf("the cgroup has %+v, and the unit %d; want the same, of control", now, u.units["cb"])
			}
			checkQuiet(t, &log)
			if err := c.stop(); err != nil {
				t.Fatal(err)
			}
			u.check(t, "cb", 0, Setting{Default: 100})
		})
	}
}

// Units below a user's service manager have names like those of systemd.
func TestSystemdIsAskedOnceAboutAUnitOfAUsersManager(t *testing.T) {
	const app = "/user@1000.service/app.scope"
	u := unitHost(newFakeHost("/user@1000.service", app), nil)
	u.plain = map[string]bool{app: true}
	c := began(t, u.options(t, "containers: [{match: "+app+", weight: 300}]\n"))
	c.interval(sampleOf(did(app, 100e6, 0)))
	if g := c.cgroups[app]; g == nil || g.unit.answer != unitCertain {
		t.Errorf("the cgroup is known as %+v; want one that is not asked about again", g)
	}
	if err := c.stop(); err != nil {
		t.Fatal(err)
	}
}
