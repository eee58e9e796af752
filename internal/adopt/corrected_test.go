package adopt

import (
	"testing"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/control"
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
	thread := r.store().thread(&Record{Name: "a"}, r.log())
	if thread.Uncorrected == nil {
		t.Error("a placement does not look for corrections")
	}
}
