package adopt

import (
	"bytes"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/blockdev/blockdevtest"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/control"
	"github.com/daybook-project/daybook/internal/ext4test"
	"github.com/daybook-project/daybook/internal/kernel"
)

// What control has corrected says nothing of what a cgroup shall have.
func TestTheLargestWeightIsThatWithoutCorrections(t *testing.T) {
	r := newRig(t)
	weights := r.weighted()
	disk, err := blockdev.Lookup(r.fs.Disk.Node())
	if err != nil {
		t.Fatal(err)
	}
	boot, err := kernel.BootID()
	if err != nil {
		t.Fatal(err)
	}
	state := control.State{Version: control.StateVersion, BootID: boot, Device: disk.Name, Dev: disk.Dev.String(), WeightFile: weights.File()}
	var cgroups []string
	for name, weight := range map[string]struct{ original, corrected uint64 }{"a": {300, 700}, "b": {400, 90}} {
		at := r.container(name).path
		if err := weights.Set(at, weight.corrected); err != nil {
			t.Fatal(err)
		}
		found, err := r.tree.Lookup(at)
		if err != nil {
			t.Fatal(err)
		}
		cgroups = append(cgroups, at)
		state.Cgroups = append(state.Cgroups, control.CgroupState{Cgroup: at, ID: found.ID, Weight: control.Setting{Default: 100, Device: weight.original}})
	}
	originals := control.Originals{RunDir: t.TempDir(), StateDir: t.TempDir()}
	for _, want := range []uint64{700, 400} {
		if largest, err := largestWeight(disk.Dev, cgroups, originals); err != nil || largest != want {
			t.Errorf("the largest weight is %d, %v; want %d", largest, err, want)
		}
		if err := state.Save(originals.StateDir); err != nil {
			t.Fatal(err)
		}
	}
	// A state that cannot be read yet may have other weights.
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	if err := os.WriteFile(control.StatePath(originals.StateDir, disk.Name), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	shared := SharedWeight{}
	get := func(when string, want uint64) {
		t.Helper()
		if largest, err := shared.get(disk.Dev, cgroups, originals, logger); err != nil || largest != want {
			t.Errorf("%s: the largest weight is %d, %v; want %d", when, largest, err, want)
		}
		shared.looked = shared.looked.Add(-time.Minute)
	}
	get("unreadable", 700)
	if err := weights.Set(cgroups[0], 900); err != nil { // a correction
		t.Fatal(err)
	}
	get("unreadable, corrected again", 700)
	if err := state.Save(originals.StateDir); err != nil {
		t.Fatal(err)
	}
	get("readable", 400)
	if err := state.Remove(originals.StateDir); err != nil {
		t.Fatal(err)
	}
	get("the cgroups are the same", 400)
	if n := strings.Count(log.String(), "may be a correction of control"); n != 1 {
		t.Errorf("reported %d times:\n%s", n, log.String())
	}
	thread := r.store().thread(&Record{Name: "a"}, r.log())
	if thread.Uncorrected == nil {
		t.Error("a placement does not look for corrections")
	}
}

// A container can have file systems on several disks. Its weight on one says nothing of that on
// another.
func TestTheWeightsOfAContainerOnTwoDisksAreRestored(t *testing.T) {
	r := newRig(t)
	c := r.container("db")
	one := r.weighted()
	f := r.filesystem()
	other := ext4test.New(t, ext4test.Options{Image: "other"})
	if err := blockdevtest.SetScheduler(t, other.Disk.Disk, blockdev.BFQ); err != nil {
		t.Fatal(err)
	}
	two, err := r.tree.Weights(other.Disk.Dev, blockdev.BFQ)
	if err != nil {
		t.Fatal(err)
	}
	g, err := At(other.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := two.Set(c.path, 50); err != nil { // the user's
		t.Fatal(err)
	}
	want := func(when string, first, second uint64) {
		t.Helper()
		for weights, want := range map[*cgroup.Weights]uint64{one: first, two: second} {
			if now, err := weights.Get(c.path); err != nil || now.Effective() != want {
				t.Errorf("%s: weight %+v, %v; want %d", when, now, err, want)
			}
		}
	}
	before, err := one.Get(c.path)
	if err != nil {
		t.Fatal(err)
	}
	want("before", before.Effective(), 50)
	k := r.keeper()
	for _, order := range [][2]Filesystem{{f, g}, {g, f}} {
		for _, next := range order {
			weight := uint64(300)
			if next == g {
				weight = 400
			}
			r.keep(k, Wanted{Filesystem: next, Cgroup: c.path, Weight: weight})
		}
		want("both are placed", 300, 400)
		if err := k.Release(background(), f.Name); err != nil {
			t.Fatal(err)
		}
		want("one is released", before.Effective(), 400)
		if err := k.Release(background(), g.Name); err != nil {
			t.Fatal(err)
		}
		want("both are released", before.Effective(), 50)
	}
}
