package attribution

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/experiment/fixture/fixturetest"
	"github.com/daybook-project/daybook/internal/workload"
	"github.com/daybook-project/daybook/vm/vmtest"
)

// guestConfig has a disk, a disk for its journal, and a small disk for the
// journal in which handles restart.
func guestConfig(cgroupVersion int) vmtest.Config {
	return vmtest.Config{
		Disks: []string{"1G", "64M", "2M"}, Modules: "ext4,bfq", Give: []string{"mke2fs", "tar"}, Cgroup: cgroupVersion,
	}
}

func guestDevices(t *testing.T) *Devices {
	t.Helper()
	return &Devices{
		Disk: vmtest.Device(t, "disk0"), Journal: vmtest.Device(t, "disk1"), SmallJournal: vmtest.Device(t, "disk2"),
	}
}

func attributionIsWithinItsBounds(t *testing.T, o Options) {
	t.Helper()
	lab := fixturetest.New(t)
	o.On = guestDevices(t)
	a, err := Run(t.Context(), lab, o)
	if err != nil {
		t.Fatal(err)
	}
	text, _ := json.Marshal(a)
	t.Logf("%s", text)
	for _, row := range a.Alone {
		t.Logf("%-16s truth %8d B, handles %8d B (%+.2f %%), others %d B, %d transactions, %d restarts",
			row.Operation, row.TruthBytes, row.HandlesBytes, 100*row.HandlesError, row.OthersBytes, row.Transactions, row.Restarts)
	}
	for _, run := range a.Shared {
		t.Logf("%s: truth %d B, handles %+.2f %%, others %+.2f %%", run.Title(), run.TruthBytes, 100*run.HandlesError, 100*run.OthersShare)
		for _, part := range run.Parts {
			t.Logf("  %s: truth %d B, handles %d B (%+.2f %%)", part.Name, part.TruthBytes, part.HandlesBytes, 100*part.HandlesError)
		}
	}
	if err := a.Check(); err != nil {
		t.Error(err)
	}
}

// guestAttribution takes an emulated processor some seconds.
var guestAttribution = Options{
	Calls: 150, Turns: 1, Containers: []int{2},
	Alone: []string{
		workload.Mkdir, workload.Creat, workload.Unlink, workload.Rename, workload.Setxattr, workload.AppendFsync, workload.BufferedWrite,
	},
	// The small journal's transactions hold 512 blocks. The file is in more than
	// 512 block groups, each with a bitmap block.
	RestartExtents: 100, RestartBytes: 160 << 20,
}

func useBFQ(t *testing.T, node string) {
	t.Helper()
	disk, err := blockdev.Lookup(node)
	if err == nil {
		err = disk.SetScheduler(blockdev.BFQ)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestGuestAttributionIsWithinItsBounds(t *testing.T) {
	vmtest.InGuest(t, guestConfig(2), func(t *testing.T) {
		attributionIsWithinItsBounds(t, guestAttribution)
	})
}

// The programs that the kernel's BPF compiler makes on another architecture attribute the
// same, and so does Daybook's program for it.
func TestGuestAttributionOnOtherArchitectures(t *testing.T) {
	vmtest.OtherArchitectures(t, guestConfig(2), func(t *testing.T) {
		attributionIsWithinItsBounds(t, guestAttribution)
	})
}

func TestGuestAllOfAttributionIsWithinItsBounds(t *testing.T) {
	vmtest.Long(t)
	o := Quick
	o.RestartExtents, o.RestartBytes = guestAttribution.RestartExtents, guestAttribution.RestartBytes
	for _, version := range []int{1, 2} {
		t.Run(fmt.Sprintf("cgroup-v%d", version), func(t *testing.T) {
			vmtest.InGuest(t, guestConfig(version), func(t *testing.T) {
				if version == 1 {
					// Without BFQ, v1 counts only on throttled disks.
					useBFQ(t, vmtest.Device(t, "disk0"))
				}
				attributionIsWithinItsBounds(t, o)
			})
		})
	}
}

// On cgroup v2 the kernel charges writeback to the inode's cgroup, so Daybook must
// not count the bytes again.
func TestGuestWritebackIsChargedOnce(t *testing.T) {
	vmtest.InGuest(t, guestConfig(2), func(t *testing.T) { writebackIsAccountedOnce(t, true) })
}

// On cgroup v1 the kernel charges writeback to the root cgroup.
func TestGuestWritebackWithCgroup1IsAttributedToItsOwner(t *testing.T) {
	vmtest.Long(t)
	vmtest.InGuest(t, guestConfig(1), func(t *testing.T) { writebackIsAccountedOnce(t, false) })
}

func writebackIsAccountedOnce(t *testing.T, charged bool) {
	t.Helper()
	lab := fixturetest.New(t)
	flushSoon(t)
	w, err := openWatch(t.Context(), lab, Options{On: &Devices{Disk: vmtest.Device(t, "disk0")}}, fixture.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := w.close(); err != nil {
			t.Error(err)
		}
	}()
	if lab.Tree.Version() == cgroup.V2 {
		// The kernel chooses the inode's cgroup by the owner of its memory.
		file := filepath.Join(w.fileSystem.group.Directory(w.fileSystem.group.Parent), "cgroup.subtree_control")
		if err := os.WriteFile(file, []byte("+memory"), 0); err != nil {
			t.Fatal(err)
		}
	}
	blocks := []int{3000, 1000} // that each container writes
	all := make([]container, len(blocks))
	jobs := make([][]workload.Job, len(blocks))
	var data uint64
	for n, count := range blocks {
		if all[n], err = w.container(string(rune('a' + n))); err != nil {
			t.Fatal(err)
		}
		jobs[n] = []workload.Job{
			{Operation: workload.Append, In: all[n].directory + "/one", Count: count - 100},
			{Operation: workload.BufferedWrite, In: all[n].directory + "/many", Count: 100},
		}
		if _, err := w.do(t.Context(), all[n], workload.Spec{Jobs: jobs[n], Prepare: true}); err != nil {
			t.Fatal(err)
		}
		data += uint64(count) * workload.FileBytes
	}
	if err := fixture.WriteOut(w.fileSystem.directory); err != nil {
		t.Fatal(err)
	}
	written := func(n int) (bytes uint64) {
		t.Helper()
		io, err := lab.Tree.IO(all[n].cgroup)
		if err != nil {
			t.Fatal(err)
		}
		return io[w.fileSystem.disk.Dev].WriteBytes
	}
	before := []uint64{written(0), written(1)}
	diskBefore, err := w.fileSystem.disk.Stat()
	if err != nil {
		t.Fatal(err)
	}
	s, err := w.see(t.Context(), func() error {
		if err := w.atOnce(t.Context(), all, jobs); err != nil {
			return err
		}
		// No process syncs: the kernel chooses the time of writeback.
		return eventually(func() (bool, error) {
			now, err := w.fileSystem.disk.Stat()
			return now.WriteBytes-diskBefore.WriteBytes >= data, err
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	disk, err := w.fileSystem.disk.Stat()
	if err != nil {
		t.Fatal(err)
	}
	within := func(value, want, of uint64, format string, arguments ...any) {
		t.Helper()
		if apart := max(value, want) - min(value, want); float64(apart) > ChargedBound*float64(of) {
			t.Errorf("%s: %d bytes, want %d within %g %% of %d", fmt.Sprintf(format, arguments...), value, want, 100*ChargedBound, of)
		}
	}
	for n, count := range blocks {
		line, bytes := s.line(all[n]), uint64(count)*workload.FileBytes
		kernel := written(n) - before[n]
		t.Logf("container %s wrote %d bytes: charged %d, uncharged %d, returned %d, journal %d, metadata %d; its io.stat: %d",
			all[n].name, bytes, line.ChargedWriteBytes, line.UnchargedBytes, line.ReturnedBytes, line.JournalBytes, line.MetadataBytes, kernel)
		wantCharged, wantUncharged := bytes, uint64(0)
		if !charged {
			wantCharged, wantUncharged = wantUncharged, wantCharged
		}
		within(line.ChargedWriteBytes, wantCharged, bytes, "charged to %s", all[n].name)
		within(line.UnchargedBytes, wantUncharged, bytes, "uncharged of %s", all[n].name)
		within(line.ChargedWriteBytes+line.ReturnedBytes, kernel, bytes, "of %s by the kernel's counter", all[n].name)
	}
	within(s.device.DiskBytes, disk.Bytes()-diskBefore.Bytes(), data, "of the disk")
	if apart := s.device.UnaccountedBytes; float64(max(apart, -apart)) > UnaccountedBound*float64(s.device.DiskBytes) {
		t.Errorf("%d of %d bytes are unaccounted", apart, s.device.DiskBytes)
	}
	for _, line := range s.device.Containers {
		if line.Cgroup == cgroup.RootPath && float64(line.Bytes()) > OthersBound*float64(s.device.DiskBytes) {
			t.Errorf("%d of %d bytes are left in the root cgroup: %+v", line.Bytes(), s.device.DiskBytes, line)
		}
	}
}

// flushSoon makes the kernel write dirty pages back within a second or two.
func flushSoon(t *testing.T) {
	t.Helper()
	for _, name := range []string{"dirty_writeback_centisecs", "dirty_expire_centisecs"} {
		file := "/proc/sys/vm/" + name
		before, err := os.ReadFile(file)
		if err == nil {
			err = os.WriteFile(file, []byte("50"), 0)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := os.WriteFile(file, []byte(strings.TrimSpace(string(before))), 0); err != nil {
				t.Error(err)
			}
		})
	}
}

// eventually waits until it is done, for five minutes at most.
func eventually(done func() (bool, error)) error {
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if ok, err := done(); ok || err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return errors.New("the kernel wrote nothing back within five minutes")
		}
	}
}
