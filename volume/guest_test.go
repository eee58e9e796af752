package volume_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/vm/vmtest"
	"github.com/daybook-project/daybook/volume"
)

// guestPool makes a pool on an ext4 on the guest's disk, under BFQ.
func guestPool(t *testing.T) *volume.Pool {
	t.Helper()
	disk, err := blockdev.Lookup(vmtest.Device(t, "disk0"))
	if err != nil {
		t.Fatal(err)
	}
	if err := disk.SetScheduler(blockdev.BFQ); err != nil {
		t.Fatal(err)
	}
	if err := ext4.Make(t.Context(), disk.Node(), ext4.MakeOptions{}); err != nil {
		t.Fatal(err)
	}
	directory := t.TempDir()
	if err := ext4.Mount(disk.Node(), directory, ext4.MountOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(directory, 0); err != nil {
			t.Error(err)
		}
	})
	pool, err := volume.Open(t.Context(), directory, volume.PoolOptions{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	return pool
}

// cgroupsOf lists the cgroups, with the controllers on below them.
func cgroupsOf(t *testing.T, tree *cgroup.Tree) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(tree.Root(), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		on, err := os.ReadFile(filepath.Join(path, "cgroup.subtree_control"))
		all = append(all, fmt.Sprintf("%s [%s]", strings.TrimPrefix(path, tree.Root()), strings.TrimSpace(string(on))))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	return all
}

func TestGuestJournalThreadIsPlacedOnCgroupV2(t *testing.T) {
	vmtest.InGuest(t, vmtest.Config{
		Disks: []string{"256M"}, Modules: "ext4,bfq,loop", Give: []string{"mke2fs"}, Fresh: true,
	}, func(t *testing.T) {
		tree, err := cgroup.Find()
		if err != nil || tree.Version() != cgroup.V2 {
			t.Fatalf("%v, %v; want cgroup v2", tree, err)
		}
		enableCPU(t, tree, "/")
		before := cgroupsOf(t, tree)
		pool := guestPool(t)
		if _, err := pool.Create(t.Context(), "db", volume.CreateOptions{SizeBytes: 64 << 20, Weight: 700}); err != nil {
			t.Fatal(err)
		}
		target := filepath.Join(t.TempDir(), "db")
		status, err := pool.Attach(t.Context(), "db", volume.AttachOptions{Target: target})
		if err != nil {
			t.Fatal(err)
		}
		if at, err := tree.Of(status.JBD2PID); err != nil || at != "/daybook/db/journal" {
			t.Errorf("the jbd2 thread %d is in %q, %v", status.JBD2PID, at, err)
		}
		if !status.DirectIO || status.WeightInForce != 700 || status.JournalWeight != 1000 {
			t.Errorf("direct I/O %v, weight in force %d, the journal's %d", status.DirectIO, status.WeightInForce, status.JournalWeight)
		}
		if weight, err := os.ReadFile(tree.Root() + "/daybook/db/io.bfq.weight"); err != nil || !strings.Contains(string(weight), "700") {
			t.Errorf("io.bfq.weight is %q, %v", weight, err)
		}
		fill(t, target, "", 500)
		if status, err = pool.Inspect(t.Context(), "db"); err != nil || status.JournalWriteBytes < 500*4096 {
			t.Errorf("the journal's cgroup was charged with %d bytes, %v", status.JournalWriteBytes, err)
		}
		t.Logf("the journal's cgroup was charged with %d bytes", status.JournalWriteBytes)

		enableCPU(t, tree, "/daybook")
		for _, limit := range []struct{ cpuMax, want string }{{cpuQuota, "/daybook/db"}, {"max", ""}} {
			setFile(t, tree.Root()+"/daybook/db/cpu.max", limit.cpuMax)
			if status, err = pool.Inspect(t.Context(), "db"); err != nil || status.JournalProcessorLimit != limit.want {
				t.Errorf("with cpu.max %q, %q limits the thread, %v", limit.cpuMax, status.JournalProcessorLimit, err)
			}
		}

		// The kernel has it since 5.14.
		if _, err := os.Stat(tree.Root() + "/daybook/db/cgroup.kill"); err == nil {
			volume.KillFreezersCgroup(t, pool, "db")
		}

		// A new mount has a new thread, which the keeper places.
		if err := unix.Unmount(target, 0); err != nil {
			t.Fatal(err)
		}
		if err := ext4.Mount(status.LoopDevice, target, ext4.MountOptions{}); err != nil {
			t.Fatal(err)
		}
		keeper, err := pool.Keeper()
		if err != nil {
			t.Fatal(err)
		}
		keeper.Once()
		if status, err = pool.Inspect(t.Context(), "db"); err != nil || !status.Placed {
			t.Errorf("the new jbd2 thread %d is in %q, %v", status.JBD2PID, status.JournalCgroup, err)
		}
		if err := keeper.Close(); err != nil {
			t.Error(err)
		}
		if err := pool.Detach(t.Context(), "db"); err != nil {
			t.Fatal(err)
		}
		if after := cgroupsOf(t, tree); !slices.Equal(before, after) {
			t.Errorf("cgroups before %q, after %q", before, after)
		}
		if loops, err := blockdev.Loops(); err != nil || len(loops) > 0 {
			t.Errorf("loop devices are left: %v, %v", loops, err)
		}
		if err := pool.Delete(t.Context(), "db", volume.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
}
