package control

import "testing"

// choices has a control of /ca, which had a weight on the disk before, and of /cb.
func choices(t *testing.T, inode func() uint64) (f *fakeHost, c *Controller, original Setting) {
	t.Helper()
	f, original = newFakeHost("/ca", "/cb"), Setting{Default: 100, Device: 88}
	f.weights["/ca"] = original
	options := fakeOptions(t, f, twoEqual)
	options.Disks[0].Host.SchedulerInode = inode
	c = began(t, options)
	t.Cleanup(func() {
		if err := c.stop(); err != nil {
			t.Error(err)
		}
	})
	c.interval(journalling())
	for _, path := range []string{"/ca", "/cb"} {
		if f.weight(path).Device == 0 {
			t.Fatalf("%s has %+v", path, f.weight(path))
		}
	}
	return f, c, original
}

// As a choice of the scheduler before a placement begins, which later removes its weights at once.
func TestAChoiceOfTheSchedulerThatRemovedNoWeightExplainsNoLaterRemoval(t *testing.T) {
	inode := uint64(7)
	f, c, _ := choices(t, func() uint64 { return inode })
	all := func(setting Setting) {
		f.choose("/ca", setting)
		f.choose("/cb", setting)
		c.lookForChanges()
	}
	all(Setting{Default: 300}) // no weights on the disk
	inode++
	c.lookForChanges()
	all(Setting{Default: 300, Device: 321})
	all(Setting{Default: 300})
	for path, g := range c.cgroups {
		if g.Weight != (Setting{Default: 300}) {
			t.Errorf("%s has %+v as its original weight; want the one that another program left", path, g.Weight)
		}
	}
}

func TestAChoiceOfTheSchedulerIsNotHiddenByAnotherProgramsWeight(t *testing.T) {
	inode := uint64(7)
	f, c, original := choices(t, func() uint64 { return inode })
	inode++
	f.choose("/ca", Setting{Default: 100})
	f.choose("/cb", Setting{Default: 100, Device: 321})
	c.lookForChanges()
	if g := c.cgroups["/ca"]; g.Weight != original || g.chosen {
		t.Errorf("/ca is known as %+v; want its original weight %+v", g, original)
	}
	if g := c.cgroups["/cb"]; g.Weight.Device != 321 {
		t.Errorf("/cb is known as %+v; want the weight of the other program", g)
	}
}

func TestTheSchedulerCanBeChosenAgainDuringALook(t *testing.T) {
	inode, looks := uint64(7), func() {}
	f, c, original := choices(t, func() uint64 {
		before := inode
		looks()
		return before
	})
	looks = func() {
		looks = func() {}
		inode++
		f.choose("/ca", Setting{Default: 100})
	}
	c.lookForChanges()
	inLook := c.cgroups["/ca"].Weight
	f.choose("/cb", Setting{Default: 100}) // as if it was found in place before
	c.lookForChanges()
	if inLook != original || c.cgroups["/cb"].chosen {
		t.Errorf("/ca has the original weight %+v, and /cb is known as %+v; want %+v, and no choice of another program", inLook, c.cgroups["/cb"], original)
	}
}

// Choosing the scheduler again resets its tunables, also where no weight is lost.
func TestTunablesAreHeldUnderASchedulerThatIsChosenAgainWithoutContainers(t *testing.T) {
	inode := uint64(7)
	f := newFakeHost()
	f.tunables["low_latency"] = "1"
	options := fakeOptions(t, f, "tunables: {low_latency: 0}")
	options.Disks[0].Host.SchedulerInode = func() uint64 { return inode }
	c := began(t, options)
	step := func(want string) {
		t.Helper()
		c.interval(sampleOf())
		if got := f.tunables["low_latency"]; got != want {
			t.Errorf("low_latency is %s, want %s", got, want)
		}
	}
	step("0")
	f.tunables["low_latency"] = "1" // by another program
	step("1")
	inode++
	step("0")
	if err := c.stop(); err != nil || f.tunables["low_latency"] != "1" {
		t.Errorf("in the end %v, %v", f.tunables, err)
	}
}
