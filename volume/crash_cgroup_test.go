package volume

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/cgroup"
)

// A parent cgroup that the user made gets its weight back after any kill.
func TestKilledAtEachStepTheUsersCgroupHasItsWeightBack(t *testing.T) {
	r := newHome(t)
	disk := r.newDisk(128<<20, 512, blockdev.BFQ)
	r.open(filepath.Join(disk.dir, "pool"))
	cgroupPath, weights := r.weightedCgroup(disk.Disk, "user", 250)
	before, err := weights.Get(cgroupPath)
	if err != nil {
		t.Fatal(err)
	}
	attach := AttachOptions{Target: r.target(r.name("v")), Cgroup: cgroupPath, Weight: 700}
	for _, c := range []crash{
		{
			name: "attach", prepare: func(r *rig, name string) { r.keep(name, CreateOptions{SizeBytes: testBytes}) },
			order: order{Operation: "attach", Attach: attach}, steps: []string{"weight intended", "weights", "attached"},
		},
		{
			name: "detach", prepare: func(r *rig, name string) {
				r.keep(name, CreateOptions{SizeBytes: testBytes})
				r.attach(name, attach)
			},
			order: order{Operation: "detach"}, steps: []string{"detaching", "weights undone", "placement undone"},
		},
	} {
		steps := r.stepsOf(c)
		for _, want := range c.steps {
			if !slices.Contains(steps, want) {
				t.Errorf("%s never reached %q: %q", c.name, want, steps)
			}
		}
		for at, step := range steps {
			name, o := r.begin(c)
			o.KillAt = at
			if !r.killed(o) {
				t.Fatalf("%s ended before step %q", c.name, step)
			}
			for n := 0; r.killed(order{Operation: "repair", KillAt: n}); n++ {
			}
			r.repair()
			r.wantTidy()
			now, err := weights.Get(cgroupPath)
			if err != nil {
				t.Fatal(err)
			}
			if r.inspect(name).Attachment != nil {
				if now.Effective() != 700 {
					t.Errorf("%s killed at %q: attached, and the weight is %+v", c.name, step, now)
				}
				r.detach(name)
				now, err = weights.Get(cgroupPath)
			}
			if err != nil || now != before {
				t.Errorf("%s killed at %q: weight %+v, %v; before %+v", c.name, step, now, err, before)
			}
			r.clear()
		}
	}
}

// weightedCgroup makes a cgroup with a weight on a disk; the rig removes it.
func (r *rig) weightedCgroup(disk blockdev.Disk, name string, weight uint64) (cgroupPath string, weights *cgroup.Weights) {
	r.t.Helper()
	scheduler, err := disk.Scheduler()
	if err != nil {
		r.t.Fatal(err)
	}
	if weights, err = r.tree.Weights(disk.Dev, scheduler.Current); err != nil {
		r.t.Fatal(err)
	}
	cgroupPath = "/" + r.name(name)
	if err := r.tree.Make(cgroupPath); err != nil {
		r.t.Fatal(err)
	}
	r.before = append(r.before, "cgroup "+cgroupPath)
	r.t.Cleanup(func() {
		if err := r.tree.Remove(cgroupPath); err != nil {
			r.t.Error(err)
		}
	})
	if err := weights.Set(cgroupPath, weight); err != nil {
		r.t.Fatal(err)
	}
	return cgroupPath, weights
}
