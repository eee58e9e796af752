package meter

import (
	"context"
	"math"
	"testing"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/cgroup"
)

// describedTargets are the target shares that a meter shows for the cgroups.
func describedTargets(t *testing.T, promises func(string) (Promises, bool), ideal func(path, name string) (uint64, bool), cgroups ...string) map[string]float64 {
	t.Helper()
	f := fakeTree{t, t.TempDir()}
	tree := cgroup.Open(cgroup.V1, f.dir)
	m := &Meter{
		options: Options{Tree: tree, Ideal: ideal, Promises: promises}, present: map[string]bool{}, units: newUnits(tree, plain{}, ideal),
		disks: map[uint32]*openDisk{7 << 20: {disk: blockdev.Disk{Name: "fake"}, weights: newWeightCache(tree, blockdev.Disk{Name: "fake"})}},
	}
	device := account.Device{Device: "fake", Containers: []account.Container{{Cgroup: account.RootCgroup}}}
	for _, path := range cgroups {
		device.Containers = append(device.Containers, account.Container{Cgroup: path})
	}
	if err := m.units.refresh(context.Background()); err != nil {
		t.Fatal(err)
	}
	m.describe(&device)
	if p, ok := m.promises("fake"); ok != (device.Control != nil) || ok && *device.Control != p.Control {
		t.Errorf("control is %+v; want %+v, %v", device.Control, p.Control, ok)
	}
	targets := map[string]float64{}
	for _, c := range device.Containers {
		if c.TargetShare != 0 {
			targets[c.Cgroup] = c.TargetShare
		}
	}
	return targets
}

func TestTargetsAreTheConfiguredShares(t *testing.T) {
	all := []string{"/ca", "/cb", "/cc", "/d/x", "/d/y", "/other"}
	for name, c := range map[string]struct {
		promises Promises
		want     map[string]float64
	}{
		"siblings": {
			Promises{Configured: true, Weights: map[string]uint64{"/ca": 500, "/cb": 300, "/cc": 200}, Units: map[string]bool{"/ca": true, "/cb": true, "/cc": true}},
			map[string]float64{"/ca": 0.5, "/cb": 0.3, "/cc": 0.2},
		},
		"levels": {
			Promises{Configured: true, Control: account.Control{Actuator: account.ActuatorLimits, WeightsIgnored: true}, Weights: map[string]uint64{"/ca": 60, "/d": 40, "/d/x": 30, "/d/y": 10}, Units: map[string]bool{"/ca": true, "/d/x": true, "/d/y": true}},
			map[string]float64{"/ca": 0.6, "/d/x": 0.3, "/d/y": 0.1},
		},
		"one parent that holds all": {
			Promises{Configured: true, Weights: map[string]uint64{"/d/x": 30, "/d/y": 10}, Units: map[string]bool{"/d/x": true, "/d/y": true}},
			map[string]float64{"/d/x": 0.75, "/d/y": 0.25},
		},
		"no rules": { // the others at their weights as found, here 1 each
			Promises{Weights: map[string]uint64{"/ca": 3, "/cb": 2}, Units: map[string]bool{"/ca": true, "/cb": true}},
			map[string]float64{"/ca": 3. / 8, "/cb": 2. / 8, "/cc": 1. / 8, "/d/x": 1. / 16, "/d/y": 1. / 16, "/other": 1. / 8},
		},
	} {
		got := describedTargets(t, func(device string) (Promises, bool) { return c.promises, device == "fake" }, nil, all...)
		if len(got) != len(c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		for path, share := range c.want {
			if math.Abs(got[path]-share) > 1e-9 {
				t.Errorf("%s: %v, want %v", name, got, c.want)
				break
			}
		}
	}
}

func TestAnUncontrolledDiskHasTargetsByItsFirstWeights(t *testing.T) {
	// The configuration of another disk does not apply to this one.
	elsewhere := func(path, _ string) (uint64, bool) { return 1, path == "/ca" }
	got := describedTargets(t, func(string) (Promises, bool) { return Promises{}, false }, elsewhere, "/ca", "/cb")
	if got["/ca"] != 0.5 || got["/cb"] != 0.5 {
		t.Errorf("%v; want a half each", got)
	}
}
