package control

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/needs"
)

// killedOnADisk is a fake host after a killed control that had set tunables, limits and weights,
// and then another disk with values of its own, of which some are those that control wrote.
func killedOnADisk(t *testing.T, replaced *bool) (f *fakeHost, c *Controller) {
	t.Helper()
	f = newFakeHost("/ca", "/cb")
	f.weights["/ca"], f.weights["/cb"] = Setting{Default: 100, Device: 88}, Setting{Default: 100, Device: 77}
	f.limits["/cb"] = 50e6
	f.tunables = map[string]string{"low_latency": "1"}
	options := fakeOptions(t, f, "tunables: {low_latency: 0}\n"+twoEqual)
	options.Disks[0].Inode = 1000
	options.Disks[0].Replaced = func() bool { return *replaced }
	c = began(t, options)
	c.interval(sampleOf(did("/ca", 1e8, 0), did("/cb", 7e7, 3e7)))
	if f.tunables["low_latency"] != "0" || f.weight("/cb").Device == 77 {
		t.Fatalf("control has set %v, %v", f.tunables, f.weights)
	}
	return f, c
}

// another makes the host's disk another one.
func (f *fakeHost) another() {
	f.weights["/ca"], f.weights["/cb"] = Setting{Default: 100}, Setting{Default: 100, Device: 256}
	f.limits["/cb"] = 7e6
	f.log = nil
}

func (f *fakeHost) wantUntouched(t *testing.T) {
	t.Helper()
	if f.tunables["low_latency"] != "0" || f.limits["/cb"] != 7e6 || f.weight("/cb") != (Setting{Default: 100, Device: 256}) || f.weight("/ca") != (Setting{Default: 100}) {
		t.Errorf("the other disk has %v, limits %v, weights %v, after %q", f.tunables, f.limits, f.weights, f.log)
	}
}

func TestAnotherDiskOfTheSameNameKeepsItsSettings(t *testing.T) {
	t.Run("restore", func(t *testing.T) {
		replaced := false
		f, c := killedOnADisk(t, &replaced)
		c.lock.Release() // by the kernel
		f.another()
		if state, err := LoadState(c.config.StateDir, "loop0"); err != nil || state.DiskInode != 1000 {
			t.Fatalf("%+v, %v", state, err)
		}
		var log bytes.Buffer
		outcome, ok, err := Restore(c.config.StateDir, "", "loop0", "", func(s *State) (Host, error) {
			host := f.host()
			host.Replaced = true
			return host, nil
		}, slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil || !ok || !outcome.DiskReplaced || len(outcome.Tunables) != 0 || !strings.Contains(log.String(), "another disk has this name") {
			t.Errorf("%+v, %t, %v\n%s", outcome, ok, err, log.String())
		}
		f.wantUntouched(t)
	})
	t.Run("restore without records of what was written", func(t *testing.T) {
		replaced := false
		f, c := killedOnADisk(t, &replaced)
		c.lock.Release() // by the kernel
		f.another()
		f.weights["/ca"] = Setting{Default: 200} // by control, for all disks
		u := unitHost(f, map[string]uint64{"cb": 2560})
		state, err := LoadState(c.config.StateDir, "loop0")
		if err != nil {
			t.Fatal(err)
		}
		for n := range state.Cgroups {
			if state.Cgroups[n].Cgroup == "/cb" {
				state.Cgroups[n].SystemdUnit, state.Cgroups[n].SystemdWeight = "cb", 770
			}
		}
		host := f.host()
		host.Replaced, host.Units = true, u
		if outcome, left, err := state.restore(host, nil, discard); err != nil || left != nil || len(outcome.Restored) != 2 {
			t.Errorf("%+v, %+v, %v", outcome, left, err)
		}
		f.wantUntouched(t)
		u.check(t, "cb", 2560, Setting{Default: 100, Device: 256})
	})
	t.Run("end of the disk's control", func(t *testing.T) {
		replaced := false
		f, c := killedOnADisk(t, &replaced)
		f.another()
		replaced = true
		if err := c.stop(); err != nil {
			t.Fatal(err)
		}
		f.wantUntouched(t)
	})
}

// The state of a real disk is restored there, also by a version that wrote no inode.
func TestAStateIsOfTheDiskWithItsInode(t *testing.T) {
	needs.Root(t)
	image := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(image, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	loop, err := blockdev.Attach(image, blockdev.AttachOptions{})
	needs.That(t, err == nil, "a loop device")
	t.Cleanup(func() { _ = loop.Detach(context.Background()) })
	disk, err := blockdev.Lookup(loop.Name)
	if err != nil {
		t.Fatal(err)
	}
	tree := cgroup.Open(cgroup.V2, t.TempDir())
	opened, err := OpenDisk(tree, disk, ActuatorLimits)
	if err != nil || opened.Inode == 0 || opened.Replaced() {
		t.Fatalf("inode %d, %v", opened.Inode, err)
	}
	if scheduler, err := disk.Scheduler(); err != nil || opened.Host.Scheduler != scheduler.Current {
		t.Errorf("the disk was opened with the scheduler %q; it has %+v, %v", opened.Host.Scheduler, scheduler, err)
	}
	for inode, want := range map[uint64]bool{opened.Inode: false, 0: false, opened.Inode + 1: true} {
		host, err := OpenStateHost(tree, &State{Device: disk.Name, Dev: disk.Dev.String(), DiskInode: inode, WeightFile: noWeightFile})
		if err != nil || host.Replaced != want {
			t.Errorf("inode %d: replaced %t, %v; want %t", inode, host.Replaced, err, want)
		}
	}
}
