package adopt

import (
	"bytes"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

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
