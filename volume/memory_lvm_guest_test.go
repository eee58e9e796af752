package volume

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/vm/vmtest"
	"github.com/daybook-project/daybook/volume/internal/region"
)

// inMemoryLVMGuest runs a test in a guest of each kernel with ext4nvj and LVM, with two disks.
func inMemoryLVMGuest(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	vmtest.Long(t)
	for _, kernel := range memoryKernels(t) {
		t.Setenv("DAYBOOK_VM_KERNELS", kernel)
		config := vmtest.Config{Disks: []string{"256M", "512M"}, Fresh: true}
		if !vmtest.Inside() {
			vmtest.Need(t, kernel)
			config.Pmem = []string{"64M"}
			config.Modules = "ext4,loop,bfq,dm-mod,dm-snapshot,dm-thin-pool," + memoryModule(t, kernel)
			config.Give = slices.Concat(memoryPrograms, []string{
				nvjProgram(t), "dmsetup", "thin_check", "lvm", "lvs", "vgs", "lvcreate", "lvextend", "lvreduce", "lvchange", "lvremove", "pvcreate", "pvremove", "vgcreate", "vgchange", "vgremove",
			})
		}
		vmtest.InGuest(t, config, func(t *testing.T) {
			makeFilesOnDisk(t, vmtest.Device(t, "disk0"))
			t.Setenv("DM_DISABLE_UDEV", "1") // lvm2 makes the device nodes itself
			test(t)
		})
	}
}

// On LVM, thick and thin, the snapshot of a mounted volume is whole, too.
func TestGuestVolumeOnLVMWithItsJournalInMemory(t *testing.T) {
	inMemoryLVMGuest(t, func(t *testing.T) {
		lvmRun(t, "pvcreate", "--yes", vmtest.Device(t, "disk1"))
		lvmRun(t, "vgcreate", "vg0", vmtest.Device(t, "disk1"))
		lvmRun(t, "lvcreate", "--yes", "--type", "thin-pool", "--name", "tp", "--size", "160m", "--poolmetadatasize", "4m", "vg0")
		for _, thinPool := range []string{"", "tp"} {
			t.Run("thin pool "+thinPool, func(t *testing.T) { memoryOnLVM(t, thinPool) })
		}
		t.Run("a thin logical volume of the user", memoryOnAThinDevice)
	})
}

func memoryOnLVM(t *testing.T, thinPool string) {
	r, ctx, memory := newRig(t), t.Context(), smallMemory
	db, clone := r.name("db"), r.name("clone")
	must := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	record := r.create(db, CreateOptions{SizeBytes: 32 << 20, VolumeGroup: "vg0", ThinPool: thinPool, JournalMemory: &memory})
	if record.Format != 3 || record.LVM == nil || record.LVM.ThinPool != thinPool || record.JournalMemory == nil {
		t.Errorf("%+v", record)
	}
	r.attach(db, AttachOptions{})
	must("write", writeSynced(filepath.Join(r.target(db), keptFile)))
	_, err := r.pool.Snapshot(ctx, db, "snap", SnapshotOptions{})
	must("snapshot", err)
	snapshot, err := r.pool.files.ReadSnapshot(db, "snap")
	must("record of the snapshot", err)
	r.wantClean(snapshot.LVM.Node())
	_, err = r.pool.Clone(ctx, db, "snap", clone, CloneOptions{JournalMemory: &memory})
	must("clone", err)
	wantSlices(t, "on LVM", clone, db)
	must("delete the snapshot", r.pool.DeleteSnapshot(ctx, db, "snap"))
	if canGrowMounted() {
		_, err = r.pool.Resize(ctx, db, 64<<20, ResizeOptions{})
		must("grow", err)
	}
	_, err = r.pool.Clone(ctx, db, "", db+"-live", CloneOptions{})
	must("clone of the mounted volume", err)
	for _, name := range []string{db, clone, db + "-live"} {
		r.wantKept(name)
		must("delete", r.pool.Delete(ctx, name, DeleteOptions{}))
	}
	wantSlices(t, "in the end")
	if left := strings.Fields(lvmRun(t, "lvs", "--noheadings", "--options", "lv_name", "--select", "lv_tags=daybook", "vg0")); len(left) > 0 {
		t.Errorf("logical volumes are left: %q", left)
	}
}

// memoryOnAThinDevice has a volume on a thin logical volume that Daybook did not create.
func memoryOnAThinDevice(t *testing.T) {
	r, memory := newRig(t), smallMemory
	db := r.name("db")
	lvmRun(t, "lvcreate", "--yes", "--type", "thin", "--virtualsize", "64m", "--thinpool", "tp", "--name", "own", "vg0")
	r.create(db, CreateOptions{Device: "/dev/vg0/own", JournalMemory: &memory})
	r.attach(db, AttachOptions{})
	if err := writeSynced(filepath.Join(r.target(db), keptFile)); err != nil {
		t.Fatal(err)
	}
	wantSlices(t, "on a device", db)
	r.wantWhole(db)
	r.wantKept(db)
	if err := r.pool.Delete(t.Context(), db, DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	wantSlices(t, "in the end")
	lvmRun(t, "lvremove", "--yes", "vg0/own")
}

// A region on a logical volume of persistent memory with struct page is like one on the memory itself.
// Without struct page the device mapper has no DAX.
func TestGuestRegionOnALogicalVolume(t *testing.T) {
	inMemoryLVMGuest(t, func(t *testing.T) {
		group := func() {
			lvmRun(t, "pvcreate", "--yes", "/dev/pmem0")
			lvmRun(t, "vgcreate", "vgpm", "/dev/pmem0")
			lvmRun(t, "lvcreate", "--yes", "--name", "db1", "--size", "28m", "vgpm")
		}
		group()
		t.Run("raw memory", regionOnRawMemory)
		lvmRun(t, "vgremove", "--force", "--yes", "vgpm")
		lvmRun(t, "pvremove", "--yes", "/dev/pmem0")
		vmtest.WithPages(t, "/dev/pmem0")
		group()
		t.Run("life", regionOnLVM)
		t.Run("two segments", regionOnTwoSegments)
	})
}

func regionOnRawMemory(t *testing.T) {
	r := newRig(t)
	memory := MemoryOptions{Region: "/dev/vgpm/db1", SizeBytes: 8 << 20}
	_, err := r.pool.Create(t.Context(), r.name("db"), CreateOptions{SizeBytes: 16 << 20, JournalMemory: &memory})
	if !errors.Is(err, ErrInvalid) || !strings.Contains(fmt.Sprint(err), "fsdax") {
		t.Errorf("on memory in raw mode: %v", err)
	}
	r.wantTidy()
}

func regionOnLVM(t *testing.T) {
	const node = "/dev/vgpm/db1"
	r, memory := newRig(t), MemoryOptions{Region: node, SizeBytes: 8 << 20, Partitions: 2}
	db, other := r.name("db"), r.name("other")
	must := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	for _, name := range []string{db, other} {
		record := r.create(name, CreateOptions{SizeBytes: 16 << 20, JournalMemory: &memory})
		if record.JournalMemory == nil || record.JournalMemory.Region != node {
			t.Errorf("%+v", record.JournalMemory)
		}
		r.attach(name, AttachOptions{})
		must("write", writeSynced(filepath.Join(r.target(name), keptFile)))
	}
	wantSlicesOf(t, node, "attached", db, other)
	if m := r.inspect(db).Memory; m == nil || m.RingLines == 0 {
		t.Errorf("no statistics: %+v", m)
	}
	// Volume group and slices are there again after a restart: the group is inactive, and then active.
	for _, name := range []string{db, other} {
		r.wantKept(name)
	}
	lvmRun(t, "vgchange", "--activate", "n", "vgpm")
	if _, err := r.pool.Attach(t.Context(), db, AttachOptions{Target: r.target(db)}); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), node) {
		t.Errorf("without the logical volume: %v", err)
	}
	lvmRun(t, "vgchange", "--activate", "y", "vgpm")
	for _, name := range []string{db, other} {
		r.attach(name, AttachOptions{})
		r.wantWhole(name)
		r.wantKept(name)
		report, err := r.pool.Check(t.Context(), name, CheckOptions{Repair: true})
		if err != nil || !report.Clean {
			t.Errorf("%+v, %v", report, err)
		}
		must("delete", r.pool.Delete(t.Context(), name, DeleteOptions{}))
	}
	wantSlicesOf(t, node, "in the end")
	r.wantTidy()
}

// regionOnTwoSegments has a region whose memory is in two pieces, of which each mount can map one: a
// slice lies in one of them, or is refused before anything is made.
func regionOnTwoSegments(t *testing.T) {
	const node = "/dev/vgpm/two"
	lvmRun(t, "lvcreate", "--yes", "--name", "two", "--size", "12m", "vgpm")
	lvmRun(t, "lvcreate", "--yes", "--name", "between", "--size", "4m", "vgpm")
	lvmRun(t, "lvextend", "--size", "24m", "vgpm/two")
	r := newRig(t)
	db, other := r.name("db"), r.name("other")
	large := MemoryOptions{Region: node, SizeBytes: 16 << 20, Partitions: 2}
	_, err := r.pool.Create(t.Context(), db, CreateOptions{SizeBytes: 16 << 20, JournalMemory: &large})
	if !errors.Is(err, ErrNoSpace) || !strings.Contains(fmt.Sprint(err), "lvs --segments") {
		t.Errorf("over both segments: %v", err)
	}
	if _, err := region.List(node, ""); !errors.Is(err, region.ErrNoTable) {
		t.Errorf("what was refused has left a table: %v", err)
	}
	r.wantTidy()
	for _, c := range []struct {
		name   string
		offset uint64
	}{{db, 1 << 20}, {other, 12 << 20}} {
		record := r.create(c.name, CreateOptions{SizeBytes: 16 << 20, JournalMemory: &MemoryOptions{Region: node, SizeBytes: 8 << 20, Partitions: 2}})
		if at := record.JournalMemory; at == nil || at.OffsetBytes != c.offset {
			t.Errorf("%s: %+v, want the slice at byte %d", c.name, at, c.offset)
		}
		r.attach(c.name, AttachOptions{})
		if err := writeSynced(filepath.Join(r.target(c.name), keptFile)); err != nil {
			t.Fatal(err)
		}
	}
	wantSlicesOf(t, node, "attached", db, other)
	for _, name := range []string{db, other} {
		r.wantKept(name)
		if err := r.pool.Delete(t.Context(), name, DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	wantSlicesOf(t, node, "in the end")
	r.wantTidy()
	lvmRun(t, "lvremove", "--yes", "vgpm/two", "vgpm/between")
}
