package cgroup

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/vm/vmtest"
)

// inGuest runs a test on cgroup v2, with the guest's two disks and a new
// cgroup.
func inGuest(t *testing.T, test func(t *testing.T, tree *Tree, path string, disk, other testDisk)) {
	t.Helper()
	vmtest.InGuest(t, vmtest.Config{Disks: []string{"64M", "64M"}, Modules: "bfq", Give: []string{"dd"}}, func(t *testing.T) {
		tree, err := Find()
		if err != nil || tree.Version() != V2 {
			t.Fatalf("%v, %v; want cgroup v2", tree, err)
		}
		path := hostCgroup(t, tree)
		if err := tree.write(path, "cgroup.subtree_control", "+io"); err != nil {
			t.Fatal(err)
		}
		test(t, tree, path, guestDisk(t, "disk0"), guestDisk(t, "disk1"))
	})
}

// guestDisk is a disk of the guest. Its scheduler is none again at the end of
// the test.
func guestDisk(t *testing.T, name string) testDisk {
	t.Helper()
	disk, err := blockdev.Lookup(vmtest.Device(t, name))
	if err != nil {
		t.Fatal(err)
	}
	d := testDisk{t: t, name: disk.Name, dev: disk.Dev}
	d.use("none")
	t.Cleanup(func() { d.use("none") })
	return d
}

func TestGuestCountsAreIOStats(t *testing.T) {
	inGuest(t, func(t *testing.T, tree *Tree, path string, disk, _ testDisk) {
		countsOfTwoChildren(t, tree, path, disk, FromIOStat, 0)
	})
}

func TestGuestBFQWeightIsSetReadAndRestored(t *testing.T) {
	inGuest(t, func(t *testing.T, tree *Tree, path string, disk, other testDisk) {
		disk.use("bfq")
		other.use("bfq")
		weightsAreSetReadAndRestored(t, tree, path, disk, other)
	})
}

func TestGuestBFQRestoreIsInForceNotOnlyInTheFile(t *testing.T) {
	inGuest(t, func(t *testing.T, tree *Tree, path string, disk, other testDisk) {
		disk.use("bfq")
		other.use("bfq")
		a := path + "/a"
		makeCgroup(t, tree, a)
		restoreIsInForce(t, tree, a, disk, other)
	})
}

// weightsAreSetReadAndRestored uses two disks that are divided by weights.
func weightsAreSetReadAndRestored(t *testing.T, tree *Tree, path string, disk, other testDisk) {
	t.Helper()
	w, err := tree.Weights(disk.dev, disk.scheduler(t))
	if err != nil {
		t.Fatal(err)
	}
	otherWeights, err := tree.Weights(other.dev, other.scheduler(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := otherWeights.Set(path, 333); err != nil {
		t.Fatal(err)
	}
	before, err := tree.read(path, w.File())
	if err != nil {
		t.Fatal(err)
	}
	found, err := w.Get(path)
	if err != nil || found != (Setting{Default: 100}) {
		t.Fatalf("new cgroup: got %+v, %v", found, err)
	}
	for _, weight := range []uint64{w.Min(), 700, w.Max()} {
		if err := w.Set(path, weight); err != nil {
			t.Fatal(err)
		}
		if s, err := w.Get(path); err != nil || s != (Setting{100, weight}) {
			t.Errorf("after Set(%d): got %+v, %v", weight, s, err)
		}
	}
	if err := w.Set(path, w.Max()+1); err == nil {
		t.Errorf("%d is accepted", w.Max()+1)
	}
	if err := w.Restore(path, found); err != nil {
		t.Fatal(err)
	}
	if after, err := tree.read(path, w.File()); err != nil || string(after) != string(before) {
		t.Errorf("after Restore: the file holds %q, %v; want %q", after, err, before)
	}
	own := Setting{Default: 250, Device: 400}
	if err := w.Restore(path, own); err != nil {
		t.Fatal(err)
	}
	if s, err := w.Get(path); err != nil || s != own {
		t.Errorf("got %+v, %v; want %+v", s, err, own)
	}
	if s, err := otherWeights.Get(path); err != nil || s != (Setting{250, 333}) {
		t.Errorf("other disk: got %+v, %v; want its own weight kept", s, err)
	}
	gone := path + "/gone"
	makeCgroup(t, tree, gone)
	if err := os.Remove(tree.dir(gone)); err != nil {
		t.Fatal(err)
	}
	if err := w.Restore(gone, own); !errors.Is(err, ErrVanished) {
		t.Errorf("Restore of a removed cgroup: got %v; want ErrVanished", err)
	}
	if err := w.Set(gone, 100); !errors.Is(err, ErrVanished) {
		t.Errorf("Set of a removed cgroup: got %v; want ErrVanished", err)
	}
}

func (d testDisk) scheduler(t *testing.T) string {
	t.Helper()
	disk, err := blockdev.Lookup(d.name)
	if err != nil {
		t.Fatal(err)
	}
	s, err := disk.Scheduler()
	if err != nil {
		t.Fatal(err)
	}
	return s.Current
}

// The command in the error enables io.cost, the kernel's files show that it is
// enabled, and the weights work.
func TestGuestIOCostIsFoundAndItsWeightsAreSetReadAndRestored(t *testing.T) {
	inGuest(t, func(t *testing.T, tree *Tree, path string, disk, other testDisk) {
		for _, d := range []testDisk{disk, other} {
			_, err := tree.Weights(d.dev, "none")
			if !errors.Is(err, ErrNoWeights) {
				t.Fatalf("got %v; want ErrNoWeights", err)
			}
			_, command, found := strings.Cut(err.Error(), "or enable io.cost: ")
			if !found {
				t.Fatalf("%q does not contain the command that enables io.cost", err)
			}
			if out, err := exec.Command("sh", "-c", command).CombinedOutput(); err != nil {
				t.Fatalf("%s: %v: %s", command, err, out)
			}
			t.Cleanup(func() {
				costQoS(t, tree, d, "enable=0 ctrl=auto")
				if err := tree.write(RootPath, v2CostModel, d.dev.String()+" ctrl=auto"); err != nil {
					t.Error(err)
				}
			})
			if cost, err := tree.Cost(d.dev); err != nil || cost != (Cost{Enabled: true}) {
				t.Errorf("after %s: got %+v, %v; want it enabled and by the kernel's own table", command, cost, err)
			}
		}
		weightsAreSetReadAndRestored(t, tree, path, disk, other)

		costQoS(t, tree, disk, "enable=1 ctrl=user rpct=90 rlat=20000 wpct=0 wlat=0 min=50 max=100")
		if err := tree.write(RootPath, v2CostModel, disk.dev.String()+" ctrl=user model=linear rbps=15000000 rseqiops=4000 rrandiops=4000 wbps=15000000 wseqiops=4000 wrandiops=4000"); err != nil {
			t.Fatal(err)
		}
		if cost, err := tree.Cost(disk.dev); err != nil || cost != (Cost{Enabled: true, OwnModel: true}) {
			t.Errorf("got %+v, %v", cost, err)
		}
		for _, file := range []string{v2CostQoS, v2CostModel} {
			content, err := tree.read(RootPath, file)
			t.Logf("%s: %q, %v", file, content, err)
		}

		costQoS(t, tree, disk, "enable=0")
		if _, err := tree.Weights(disk.dev, "none"); !errors.Is(err, ErrNoWeights) {
			t.Errorf("after enable=0: got %v; want ErrNoWeights", err)
		}
		w, err := tree.WeightsIn("io.weight", disk.dev, "none")
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Restore(path, Setting{Default: 100}); err != nil {
			t.Error(err)
		}
		if s, err := w.Get(path); err != nil || s != (Setting{Default: 100}) {
			t.Errorf("restored without io.cost: got %+v, %v", s, err)
		}
	})
}

func costQoS(t *testing.T, tree *Tree, disk testDisk, words string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(tree.Root(), v2CostQoS), fmt.Appendf(nil, "%s %s\n", disk.dev, words), 0); err != nil {
		t.Error(err)
	}
}

func TestGuestLimitIsSetReadAndRestored(t *testing.T) {
	inGuest(t, func(t *testing.T, tree *Tree, path string, disk, other testDisk) {
		none, err := tree.Limits(path, disk.dev)
		if err != nil || none != (Limit{}) {
			t.Fatalf("got %+v, %v", none, err)
		}
		kept := Limit{ReadBps: 1 << 30, WriteIOPS: 300}
		if err := tree.SetLimit(path, other.dev, kept); err != nil {
			t.Fatal(err)
		}
		before, err := tree.read(path, v2IOMax)
		if err != nil {
			t.Fatal(err)
		}
		limit := Limit{ReadBps: 1 << 30, WriteBps: 1 << 20, ReadIOPS: 1000, WriteIOPS: 1<<32 - 2}
		if err := tree.SetLimit(path, disk.dev, limit); err != nil {
			t.Fatal(err)
		}
		if got, err := tree.Limits(path, disk.dev); err != nil || got != limit {
			t.Errorf("got %+v, %v; want %+v", got, err, limit)
		}
		limit.WriteBps = 1 << 19
		if err := tree.SetLimit(path, disk.dev, limit); err != nil {
			t.Fatal(err)
		}
		if got, err := tree.Limits(path, disk.dev); err != nil || got != limit {
			t.Errorf("got %+v, %v; want %+v", got, err, limit)
		}
		if got, err := tree.Limits(path, other.dev); err != nil || got != kept {
			t.Errorf("other disk: got %+v, %v; want %+v", got, err, kept)
		}
		if err := tree.SetLimit(path, disk.dev, none); err != nil {
			t.Fatal(err)
		}
		if after, err := tree.read(path, v2IOMax); err != nil || string(after) != string(before) {
			t.Errorf("io.max holds %q, %v; want %q", after, err, before)
		}
	})
}
