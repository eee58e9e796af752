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
	options := u.options(t, twoEqual)
	c := began(t, options)
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
	if err := c.stop(); err != nil {
		t.Fatal(err)
	}
}

// systemd can say that it knows no unit of the cgroup of a unit that is about to start.
func TestAUnitThatSystemdDoesNotKnowYetIsFoundLater(t *testing.T) {
	for name, isNew := range map[string]bool{"a new cgroup": true, "one that was there at the start": false} {
		t.Run(name, func(t *testing.T) {
			u := unitHost(newFakeHost("/ca"), nil)
			u.plain = map[string]bool{"/cb": true}
			if !isNew {
				u.create("/cb")
			}
			var log bytes.Buffer
			options := u.options(t, twoEqual)
			options.Log = slog.New(slog.NewTextHandler(&log, nil))
			c := began(t, options)
			c.interval(journalling())
			if isNew {
				u.create("/cb")
				c.interval(journalling())
			}
			if now := u.weight("/cb"); now.Device == 0 || u.units["cb"] != 0 {
				t.Fatalf("the cgroup of no unit has %+v, and a unit %d", now, u.units["cb"])
			}
			u.plain = nil
			c.interval(journalling())
			if !isNew {
				if u.units["cb"] != 0 {
					t.Errorf("systemd is asked in each interval about a cgroup that has no unit")
				}
				c.cgroups["/cb"].unitRetry = time.Now() // half a minute later
				c.interval(journalling())
			}
			if now := u.weight("/cb"); u.units["cb"] == 0 || u.units["cb"] != 10*now.Device {
				t.Errorf("the cgroup has %+v, and the unit %d; want the same", now, u.units["cb"])
			}
			checkQuiet(t, &log)
			if err := c.stop(); err != nil {
				t.Fatal(err)
			}
			u.check(t, "cb", 0, Setting{Default: 100})
		})
	}
}
