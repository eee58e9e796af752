package control

import (
	"testing"

	"github.com/daybook-project/daybook/internal/blockdev"
)

// Without records of what control wrote, a weight of a unit that control does not set is the
// unit's own.
func TestTheWeightOfAUnitThatControlDoesNotSetIsOriginal(t *testing.T) {
	disk := blockdev.Disk{Name: "loop0", Dev: blockdev.Dev{Major: 7}}
	const file, id, inForce = "io.weight", 42, 3000
	for unit, want := range map[string]uint64{"": inForce, "a.slice": 500} {
		state := State{Version: StateVersion, BootID: bootID(), Device: disk.Name, Dev: disk.Dev.String(), WeightFile: file}
		of := CgroupState{Cgroup: "/a.slice", ID: id, Weight: Setting{Default: 100}, SystemdUnit: unit}
		if unit != "" {
			of.SystemdWeight = want
		}
		state.Cgroups = []CgroupState{of}
		originals := Originals{RunDir: t.TempDir(), StateDir: t.TempDir()}
		if err := state.Save(originals.StateDir); err != nil {
			t.Fatal(err)
		}
		files, ofUnit, err := originals.Weight(disk, file, id, Setting{Default: 100, Device: 300}, inForce)
		if err != nil || files != of.Weight || ofUnit != want {
			t.Errorf("unit %q: %+v, %d, %v; want %+v, %d", unit, files, ofUnit, err, of.Weight, want)
		}
	}
}
