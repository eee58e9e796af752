package volume_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/vm/vmtest"
	"github.com/daybook-project/daybook/volume"
)

// lvmPrograms are what a guest gets for LVM. The commands of lvm2 are one program.
var lvmPrograms = []string{
	"mke2fs", "e2fsck", "resize2fs", "tune2fs", "debugfs", "dumpe2fs", "e2undo", "wipefs", "dmsetup", "thin_check",
	"lvm", "lvs", "vgs", "lvcreate", "lvextend", "lvreduce", "lvchange", "lvremove", "pvcreate", "vgcreate", "vgrename",
}

// lvmGroup makes a volume group. At the end of the test it must have nothing of
// Daybook.
type lvmGroup struct {
	t    *testing.T
	name string
}

func newLVMGroup(t *testing.T, disk string) lvmGroup {
	t.Helper()
	// Without udev, lvm2 makes the device nodes itself.
	t.Setenv("DM_DISABLE_UDEV", "1")
	g := lvmGroup{t, "vg0"}
	g.run("pvcreate", "--yes", disk)
	g.run("vgcreate", g.name, disk)
	return g
}

func (g lvmGroup) run(arguments ...string) string {
	g.t.Helper()
	command := exec.Command(arguments[0], arguments[1:]...)
	var problems strings.Builder
	command.Stderr = &problems
	output, err := command.Output()
	if err != nil {
		g.t.Fatalf("%q: %v: %s", arguments, err, problems.String())
	}
	return string(output)
}

// wantVolumes fails the test unless the group has that many logical volumes, not
// counting thin pools and their parts.
func (g lvmGroup) wantVolumes(when string, want int) {
	g.t.Helper()
	names := strings.Fields(g.run("lvs", "--noheadings", "--options", "lv_name", "--select", "lv_tags=daybook", g.name))
	if len(names) != want {
		g.t.Errorf("%s: the volume group has %q, want %d", when, names, want)
	}
}

func TestGuestVolumeOnLVM(t *testing.T) {
	vmtest.InGuest(t, vmtest.Config{
		Disks: []string{"256M", "1G"}, Modules: "ext4,bfq,loop,dm-mod,dm-snapshot,dm-thin-pool", Give: lvmPrograms, Fresh: true, OneKernel: true,
	}, func(t *testing.T) {
		pool := guestPool(t)
		group := newLVMGroup(t, vmtest.Device(t, "disk1"))
		disk, err := blockdev.Lookup(vmtest.Device(t, "disk1"))
		if err != nil {
			t.Fatal(err)
		}
		if err := disk.SetScheduler(blockdev.BFQ); err != nil {
			t.Fatal(err)
		}
		group.run("lvcreate", "--yes", "--type", "thin-pool", "--name", "tp", "--size", "200m", "--poolmetadatasize", "4m", group.name)
		for _, thin := range []string{"", "tp"} {
			t.Run("thin pool "+thin, func(t *testing.T) { lvmLife(t, pool, lvmGroup{t, group.name}, thin) })
			t.Run("lengthened by hand, thin pool "+thin, func(t *testing.T) { lvmLengthened(t, pool, lvmGroup{t, group.name}, thin) })
		}
		t.Run("what is wrong is said", func(t *testing.T) { lvmRefusals(t, pool, lvmGroup{t, group.name}) })
	})
}

// lvmStreams sends the detached volume db, with 200 files, and its snapshot mounted, with
// 100, and receives them in images and on LVM.
func lvmStreams(t *testing.T, pool *volume.Pool, group lvmGroup, thinPool, target string) {
	ctx := t.Context()
	send := func(snapshot, base string, w io.Writer) {
		t.Helper()
		if err := pool.Send(ctx, "db", snapshot, base, w, volume.SendOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	var whole, present, detached bytes.Buffer
	deleted := error(nil)
	send("mounted", "", io.MultiWriter(&whole, writerFunc(func() { deleted = pool.DeleteSnapshot(ctx, "db", "mounted") })))
	if !errors.Is(deleted, volume.ErrBusy) {
		t.Errorf("deleted while it was sent: %v", deleted)
	}
	if _, err := pool.Attach(ctx, "db", volume.AttachOptions{Target: target}); err != nil {
		t.Fatal(err)
	}
	send("", "mounted", io.MultiWriter(&present, writerFunc(func() { group.wantVolumes("while an attached volume is sent", 3) })))
	if err := pool.Detach(ctx, "db"); err != nil {
		t.Fatal(err)
	}
	send("", "mounted", &detached)
	group.wantVolumes("after sending", 2)
	wantNoWork(t, pool)

	onLVM := volume.ReceiveOptions{VolumeGroup: group.name, ThinPool: thinPool}
	damaged := bytes.Clone(whole.Bytes())
	damaged[len(damaged)/2] ^= 1
	if _, err := pool.Receive(ctx, "back", bytes.NewReader(damaged), onLVM); !errors.Is(err, volume.ErrCorrupt) {
		t.Errorf("a damaged stream: %v", err)
	}
	group.wantVolumes("after a damaged stream", 2)
	wantNoWork(t, pool)
	for _, c := range []struct {
		name    string
		options volume.ReceiveOptions
		stream  []byte
		files   int
	}{
		{"back", onLVM, whole.Bytes(), 100},
		{"copy", volume.ReceiveOptions{}, whole.Bytes(), 100},
		{"copy", volume.ReceiveOptions{}, present.Bytes(), 200},
	} {
		record, err := pool.Receive(ctx, c.name, bytes.NewReader(c.stream), c.options)
		if err != nil {
			t.Fatal(err)
		}
		if onLVM := c.options.VolumeGroup != ""; onLVM != (record.LVM != nil) || record.SizeBytes != 64<<20 || onLVM && record.LVM.ThinPool != thinPool {
			t.Errorf("%+v", record)
		}
		if report, err := pool.Check(ctx, c.name, volume.CheckOptions{}); err != nil || !report.Clean {
			t.Errorf("%s: %+v, %v", c.name, report, err)
		}
		at := filepath.Join(t.TempDir(), c.name)
		if _, err := pool.Attach(ctx, c.name, volume.AttachOptions{Target: at, ReadOnly: true}); err != nil {
			t.Fatal(err)
		}
		if entries, err := os.ReadDir(at); err != nil || len(entries) != c.files+1 { // and lost+found
			t.Errorf("%s has %d entries, %v; want %d", c.name, len(entries), err, c.files)
		}
		if err := pool.Detach(ctx, c.name); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := pool.Receive(ctx, "back", bytes.NewReader(detached.Bytes()), volume.ReceiveOptions{}); !errors.Is(err, volume.ErrUnsupported) {
		t.Errorf("a change of a volume on LVM: %v", err)
	}
	for _, name := range []string{"back", "copy"} {
		if err := pool.Delete(ctx, name, volume.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}
	group.wantVolumes("after receiving", 2)
	wantNoWork(t, pool)
}

// writerFunc is called at each write.
type writerFunc func()

func (f writerFunc) Write(p []byte) (int, error) {
	f()
	return len(p), nil
}

// lvmLife runs all operations on a volume.
func lvmLife(t *testing.T, pool *volume.Pool, group lvmGroup, thinPool string) {
	ctx := t.Context()
	must := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	record, err := pool.Create(ctx, "db", volume.CreateOptions{SizeBytes: 62 << 20, VolumeGroup: group.name, ThinPool: thinPool, Weight: 700})
	must("create", err)
	if record.SizeBytes != 64<<20 || record.Format != 2 { // whole extents of 4 MiB
		t.Errorf("%+v", record)
	}
	target := filepath.Join(t.TempDir(), "db")
	attach := func() volume.Status {
		t.Helper()
		status, err := pool.Attach(ctx, "db", volume.AttachOptions{Target: target})
		must("attach", err)
		return status
	}
	status := attach()
	if status.WeightInForce != 700 || !status.Placed || !status.DirectIO || status.LoopDevice != "" || !strings.HasPrefix(status.BlockDevice, "/dev/"+group.name+"/daybook-") {
		t.Errorf("%+v", status)
	}
	wantWeightOn(t, status.ParentCgroup, "disk1", 700)
	wantWeightOn(t, status.ParentCgroup, "disk0", 0)
	fill(t, target, "before", 100)

	// A snapshot of the mounted volume, and another of the detached one.
	_, err = pool.Snapshot(ctx, "db", "mounted", volume.SnapshotOptions{})
	must("snapshot", err)
	fill(t, target, "after", 100)
	_, err = pool.Clone(ctx, "db", "", "live", volume.CloneOptions{})
	must("clone of the mounted volume", err)
	must("detach", pool.Detach(ctx, "db"))
	_, err = pool.Clone(ctx, "db", "mounted", "old", volume.CloneOptions{})
	must("clone of the snapshot", err)
	snapshots, err := pool.Snapshots(t.Context(), "db")
	if err != nil || len(snapshots) != 1 || snapshots[0].Method != volume.LVMSnapshot || snapshots[0].Problem != "" || snapshots[0].AllocatedBytes == 0 {
		t.Errorf("%+v, %v", snapshots, err)
	}
	if thinPool != "" { // LVM deactivates a thick one only with its origin
		group.run("lvchange", "--activate", "n", snapshots[0].LVM.String())
	}
	if report, err := pool.Check(ctx, "db", volume.CheckOptions{Snapshot: "mounted"}); err != nil || !report.Clean {
		t.Errorf("check of the snapshot: %+v, %v", report, err)
	}
	group.wantVolumes("with a snapshot and two clones", 4)
	for name, want := range map[string]int{"live": 200, "old": 100} {
		at := filepath.Join(t.TempDir(), name)
		_, err := pool.Attach(ctx, name, volume.AttachOptions{Target: at})
		must("attach "+name, err)
		entries, err := os.ReadDir(at)
		if err != nil || len(entries) != want+1 { // and lost+found
			t.Errorf("%s has %d entries, %v; want %d", name, len(entries), err, want)
		}
		must("detach "+name, pool.Detach(ctx, name))
		if report, err := pool.Check(ctx, name, volume.CheckOptions{}); err != nil || !report.Clean {
			t.Errorf("check of %s: %+v, %v", name, report, err)
		}
		must("delete "+name, pool.Delete(ctx, name, volume.DeleteOptions{}))
	}

	lvmStreams(t, pool, group, thinPool, target)

	if thinPool == "" {
		if _, err := pool.Resize(ctx, "db", 96<<20, volume.ResizeOptions{}); !errors.Is(err, volume.ErrBusy) || !strings.Contains(err.Error(), "snapshots") {
			t.Errorf("a thick volume with a snapshot grew: %v", err)
		}
	}
	must("delete the snapshot", pool.DeleteSnapshot(ctx, "db", "mounted"))
	group.wantVolumes("after the snapshot", 1)

	// Growing, attached and detached; shrinking, detached.
	attach()
	resize := func(bytes uint64) {
		t.Helper()
		record, err := pool.Resize(ctx, "db", bytes, volume.ResizeOptions{})
		must(fmt.Sprintf("resize to %d", bytes), err)
		size := strings.TrimSpace(group.run("lvs", "--noheadings", "--units", "b", "--nosuffix", "--options", "lv_size", group.name+"/daybook-"+record.ID))
		if record.SizeBytes != bytes || size != fmt.Sprint(bytes) {
			t.Errorf("size %d, the logical volume's %s, want %d", record.SizeBytes, size, bytes)
		}
	}
	resize(96 << 20)
	must("detach", pool.Detach(ctx, "db"))
	resize(128 << 20)
	resize(72 << 20)
	if report, err := pool.Check(ctx, "db", volume.CheckOptions{}); err != nil || !report.Clean {
		t.Errorf("%+v, %v", report, err)
	}

	// A boot after which the logical volume is inactive.
	group.run("lvchange", "--activate", "n", group.name+"/daybook-"+record.ID)
	if status, err := pool.Inspect(t.Context(), "db"); err != nil || status.Problem != "" || thinPool == "" && status.AllocatedBytes != 72<<20 {
		t.Errorf("inactive: %+v, %v", status, err)
	}
	if all, err := pool.Overview(); err != nil || len(all) != 1 || all[0].Problem != "" {
		t.Errorf("inactive: %+v, %v", all, err)
	}
	attach()
	if status, err := pool.Inspect(t.Context(), "db"); err != nil || status.AllocatedBytes == 0 || status.AllocatedBytes > 72<<20 {
		t.Errorf("%d bytes are allocated, %v", status.AllocatedBytes, err)
	}
	entries, err := os.ReadDir(target)
	if err != nil || len(entries) != 201 {
		t.Errorf("%d entries, %v", len(entries), err)
	}
	if done, err := pool.Repair(ctx); err != nil || len(done.Volumes) > 0 {
		t.Errorf("%+v, %v", done, err)
	}
	if _, err := pool.Snapshot(ctx, "db", "kept", volume.SnapshotOptions{}); err != nil {
		t.Error(err)
	}
	if err := pool.Delete(ctx, "db", volume.DeleteOptions{}); !errors.Is(err, volume.ErrBusy) {
		t.Errorf("an attached volume was deleted: %v", err)
	}
	must("detach", pool.Detach(ctx, "db"))
	must("delete", pool.Delete(ctx, "db", volume.DeleteOptions{}))
	group.wantVolumes("in the end", 0)
	wantNoWork(t, pool)
}

// wantWeightOn fails the test unless a cgroup has that own weight on a disk, which
// is under BFQ; 0 means none.
func wantWeightOn(t *testing.T, parent, name string, want uint64) {
	t.Helper()
	disk, err := blockdev.Lookup(vmtest.Device(t, name))
	if err != nil {
		t.Fatal(err)
	}
	tree, err := cgroup.Find()
	if err != nil {
		t.Fatal(err)
	}
	weights, err := tree.Weights(disk.Dev, blockdev.BFQ)
	if err != nil {
		t.Fatal(err)
	}
	if now, err := weights.Get(parent); err != nil || now.Device != want {
		t.Errorf("%s has %+v on %s, %v; want %d", parent, now, name, err, want)
	}
}

func wantNoWork(t *testing.T, pool *volume.Pool) {
	t.Helper()
	if work, err := os.ReadDir(filepath.Join(pool.Dir(), "work")); err != nil || len(work) > 0 {
		t.Errorf("left in the pool's work: %v, %v", work, err)
	}
}

// lvmLeft deletes a volume while lvremove fails, and has a repair finish it.
func lvmLeft(t *testing.T, pool *volume.Pool, group lvmGroup) {
	wantWork := func(when string, err error) {
		t.Helper()
		work, readErr := os.ReadDir(filepath.Join(pool.Dir(), "work"))
		if err == nil || readErr != nil || len(work) != 1 {
			t.Fatalf("%s: %v; work: %v, %v", when, err, work, readErr)
		}
	}
	t.Run("lvremove", func(t *testing.T) {
		few := t.TempDir()
		for _, name := range []string{"lvs", "vgs"} {
			path, err := exec.LookPath(name)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(path, filepath.Join(few, name)); err != nil {
				t.Fatal(err)
			}
		}
		t.Setenv("PATH", few)
		wantWork("delete", pool.Delete(t.Context(), "db", volume.DeleteOptions{}))
		_, err := pool.Repair(t.Context())
		wantWork("repair", err)
		if !errors.Is(err, volume.ErrWorkLeft) {
			t.Error(err)
		}
	})
	group.wantVolumes("while LVM fails", 2)
	if done, err := pool.Repair(t.Context()); err != nil || done.Work != 1 {
		t.Errorf("%+v, %v", done, err)
	}
	group.wantVolumes("repaired", 0)
	wantNoWork(t, pool)
}

// lvmGone deletes a volume whose volume group is gone.
func lvmGone(t *testing.T, pool *volume.Pool, group lvmGroup) {
	ctx := t.Context()
	record, err := pool.Create(ctx, "lost", volume.CreateOptions{SizeBytes: 64 << 20, VolumeGroup: group.name})
	if err != nil {
		t.Fatal(err)
	}
	group.run("vgrename", group.name, "away")
	if err := pool.Delete(ctx, "lost", volume.DeleteOptions{}); !errors.Is(err, volume.ErrCorrupt) || !strings.Contains(err.Error(), "--damaged") {
		t.Errorf("without its volume group: %v", err)
	}
	if _, err := pool.Inspect(t.Context(), "lost"); err != nil {
		t.Errorf("after a refused delete: %v", err)
	}
	if err := pool.Delete(ctx, "lost", volume.DeleteOptions{Damaged: true}); err != nil {
		t.Error(err)
	}
	if _, err := pool.Inspect(t.Context(), "lost"); !errors.Is(err, volume.ErrNotFound) {
		t.Errorf("deleted: %v", err)
	}
	wantNoWork(t, pool)
	group.run("vgrename", "away", group.name)
	group.run("lvremove", "--yes", group.name+"/daybook-"+record.ID)
}

func lvmRefusals(t *testing.T, pool *volume.Pool, group lvmGroup) {
	ctx := t.Context()
	if _, err := pool.Create(ctx, "big", volume.CreateOptions{SizeBytes: 4 << 30, VolumeGroup: group.name}); !errors.Is(err, volume.ErrNoSpace) {
		t.Errorf("larger than the volume group: %v", err)
	}
	for _, o := range []volume.CreateOptions{{VolumeGroup: "none"}, {VolumeGroup: group.name, ThinPool: "none"}} {
		o.SizeBytes = 64 << 20
		if _, err := pool.Create(ctx, "none", o); !errors.Is(err, volume.ErrInvalid) || !strings.Contains(err.Error(), "none") {
			t.Errorf("no such volume group or thin pool: %v", err)
		}
	}
	for _, o := range []volume.CreateOptions{
		{SizeBytes: 64 << 20, ThinPool: "tp"}, {SizeBytes: 64 << 20, VolumeGroup: "a/b"}, {SizeBytes: 64 << 20, VolumeGroup: "-vg"},
		{VolumeGroup: group.name, Device: "/dev/null"}, {SizeBytes: 64 << 20, VolumeGroup: group.name, Provision: volume.Thin},
	} {
		if _, err := pool.Create(ctx, "bad", o); !errors.Is(err, volume.ErrInvalid) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	group.wantVolumes("after what was refused", 0)
	wantNoWork(t, pool)
	// A logical volume that Daybook did not create is not removed, whatever a
	// record says.
	record, err := pool.Create(ctx, "db", volume.CreateOptions{SizeBytes: 64 << 20, VolumeGroup: group.name})
	if err != nil {
		t.Fatal(err)
	}
	lv := group.name + "/daybook-" + record.ID
	wantKept := func(err error, naming string) {
		t.Helper()
		if !errors.Is(err, volume.ErrBusy) || !strings.Contains(err.Error(), naming) {
			t.Errorf("deleted, although of %s: %v", naming, err)
		}
		if status, err := pool.Inspect(t.Context(), "db"); err != nil || status.Problem != "" || len(status.Snapshots) != 1 {
			t.Errorf("after a refused delete: %+v, %v", status, err)
		}
		group.run("lvs", lv)
		wantNoWork(t, pool)
	}
	snapshot, err := pool.Snapshot(ctx, "db", "s", volume.SnapshotOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, untagged := range []string{lv, snapshot.LVM.String()} {
		group.run("lvchange", "--deltag", "daybook", untagged)
		wantKept(pool.Delete(ctx, "db", volume.DeleteOptions{}), untagged)
		if untagged != lv {
			wantKept(pool.DeleteSnapshot(ctx, "db", "s"), untagged)
		}
		group.run("lvchange", "--addtag", "daybook", untagged)
	}
	// Nor one that LVM would remove with it.
	group.run("lvcreate", "--yes", "--snapshot", "--name", "foreign", "--size", "4m", lv)
	wantKept(pool.Delete(ctx, "db", volume.DeleteOptions{}), "foreign")
	group.run("lvs", group.name+"/foreign")
	group.run("lvremove", "--yes", group.name+"/foreign")
	// Nor one in use, here by a mount that is not Daybook's.
	at := t.TempDir()
	if err := ext4.Mount("/dev/"+lv, at, ext4.MountOptions{}); err != nil {
		t.Fatal(err)
	}
	wantKept(pool.Delete(ctx, "db", volume.DeleteOptions{}), lv)
	if err := ext4.Unmount(ctx, at); err != nil {
		t.Fatal(err)
	}
	t.Run("while LVM fails", func(t *testing.T) { lvmLeft(t, pool, group) })
	t.Run("without the group", func(t *testing.T) { lvmGone(t, pool, group) })
	// A volume whose logical volume another program removed is a problem, and can
	// be deleted.
	gone, err := pool.Create(ctx, "gone", volume.CreateOptions{SizeBytes: 64 << 20, VolumeGroup: group.name})
	if err != nil {
		t.Fatal(err)
	}
	group.run("lvremove", "--yes", group.name+"/daybook-"+gone.ID)
	if status, err := pool.Inspect(t.Context(), "gone"); err != nil || !strings.Contains(status.Problem, "missing") {
		t.Errorf("%+v, %v", status, err)
	}
	if _, err := pool.Attach(ctx, "gone", volume.AttachOptions{Target: filepath.Join(t.TempDir(), "gone")}); !errors.Is(err, volume.ErrCorrupt) {
		t.Errorf("without its logical volume: %v", err)
	}
	if err := pool.Delete(ctx, "gone", volume.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := pool.Repair(ctx); err != nil {
		t.Error(err)
	}
	wantNoWork(t, pool)
}
