package volume

import (
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/vm/vmtest"
)

// jfsPrograms are what volumes with JFS need more.
var jfsPrograms = []string{"mkfs.jfs", "fsck.jfs", "jfs_tune"}

// jfsMemoryModules are what they need more. jfs has what jfsnvj.ko needs of the kernel.
func jfsMemoryModules(t *testing.T, kernel string) []string {
	return []string{"jfs", builtFile(t, filepath.Join("kernel/build", kernel, "jfsnvj.ko"), "kernel")}
}

// inJFSGuest runs a test in a guest of each kernel with jfsnvj.
func inJFSGuest(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	vmtest.Long(t)
	for _, kernel := range memoryKernels(t) {
		t.Setenv("DAYBOOK_VM_KERNELS", kernel)
		config := vmtest.Config{Disks: []string{"256M", "64M"}, Fresh: true}
		if !vmtest.Inside() {
			vmtest.Need(t, kernel)
			config.Pmem = []string{"64M"}
			config.Modules = "ext4,loop,bfq," + memoryModule(t, kernel) + "," + strings.Join(jfsMemoryModules(t, kernel), ",")
			config.Give = slices.Concat(memoryPrograms, jfsPrograms, []string{nvjProgram(t)})
		}
		vmtest.InGuest(t, config, test)
	}
}

// The life of volumes with JFS.
func TestGuestVolumeWithJFS(t *testing.T) {
	inJFSGuest(t, func(t *testing.T) {
		makeFilesOnDisk(t, vmtest.Device(t, "disk0"))
		r := newRig(t)
		t.Run("life", func(t *testing.T) { jfsLife(t, r) })
		t.Run("refusals", func(t *testing.T) { jfsRefusals(t, r) })
	})
}

// As for ext4, without what JFS does not do.
func TestGuestKilledWithJFSARepairMakesWhole(t *testing.T) {
	inJFSGuest(t, func(t *testing.T) { killedInMemory(t, JFS) })
}

func jfsLife(t *testing.T, r *rig) {
	ctx, memory := t.Context(), smallMemory
	db, other, clone := r.name("db"), r.name("other"), r.name("clone")
	must := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	record := r.create(db, CreateOptions{SizeBytes: 32 << 20, Weight: 700, FileSystem: JFS, JournalMemory: &memory})
	if record.Format != 4 || record.FileSystem != JFS {
		t.Errorf("%+v", record)
	}
	status := r.attach(db, AttachOptions{})
	tree, err := cgroup.Find()
	must("cgroups", err)
	threads, err := r.pool.placed(status.Record).Workers()
	if err != nil || len(threads) == 0 || status.JBD2PID == 0 || !status.Placed {
		t.Errorf("the threads %d and %v, placed %v, %v", status.JBD2PID, threads, status.Placed, err)
	}
	for _, pid := range append(threads, status.JBD2PID) {
		if at, err := tree.Of(pid); err != nil || at != "/daybook/"+db+"/journal" {
			t.Errorf("thread %d is in %s, %v", pid, at, err)
		}
	}
	r.create(other, CreateOptions{Device: vmtest.Device(t, "disk1"), FileSystem: JFS, JournalMemory: &memory})
	wantSlices(t, "two volumes", db, other)
	r.attach(other, AttachOptions{})
	for _, name := range []string{db, other} {
		must("write", writeSynced(filepath.Join(r.target(name), keptFile)))
	}
	if m := r.inspect(db).Memory; m == nil || m.RingLines == 0 || m.LoggedBytes == 0 {
		t.Errorf("no statistics: %+v", m)
	}
	if _, err := r.pool.Create(ctx, r.name("ext4"), CreateOptions{SizeBytes: 16 << 20, JournalMemory: &memory}); !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), "another region") {
		t.Errorf("ext4nvj in a region that jfsnvj has: %v", err)
	}
	// Copies of a mounted volume are plain JFS.
	_, err = r.pool.Snapshot(ctx, db, "snap", SnapshotOptions{MaxFreeze: time.Minute})
	must("snapshot", err)
	r.wantClean(r.pool.files.SnapshotImage(db, "snap"))
	report, err := r.pool.Check(ctx, db, CheckOptions{Snapshot: "snap"})
	if err != nil || !report.Clean {
		t.Errorf("%+v, %v", report, err)
	}
	for _, snapshot := range []string{"", "snap"} {
		record, err := r.pool.Clone(ctx, db, snapshot, clone, CloneOptions{MaxFreeze: time.Minute, JournalMemory: &memory})
		must("clone", err)
		if record.FileSystem != JFS || record.JournalMemory == nil || record.ID == status.ID {
			t.Errorf("%+v", record)
		}
		wantSlices(t, "with a clone", clone, db, other)
		r.wantKept(clone)
		must("delete the clone", r.pool.Delete(ctx, clone, DeleteOptions{}))
	}
	for _, name := range []string{db, other} {
		r.wantWhole(name)
		r.wantKept(name)
		for _, repair := range []bool{false, true} {
			report, err := r.pool.Check(ctx, name, CheckOptions{Repair: repair})
			if err != nil || !report.Clean || report.Corrected {
				t.Errorf("repair %v: %+v, %v", repair, report, err)
			}
		}
		must("delete", r.pool.Delete(ctx, name, DeleteOptions{}))
	}
	wantSlices(t, "all deleted")
	r.wantTidy()
}

// jfsRefusals tries what JFS cannot do, and finds nothing half-made.
func jfsRefusals(t *testing.T, r *rig) {
	ctx, memory := t.Context(), smallMemory
	db := r.name("db")
	for _, c := range []struct {
		options CreateOptions
		says    string
	}{
		{CreateOptions{}, "journal in memory"},
		{CreateOptions{JournalMemory: &memory, InodeSizeBytes: 512}, "no choice of inodes"},
		{CreateOptions{JournalMemory: &memory, UID: 999}, "after the first attach"},
	} {
		c.options.SizeBytes, c.options.FileSystem = 16<<20, JFS
		if _, err := r.pool.Create(ctx, db, c.options); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v", c.options, err)
		}
	}
	r.wantTidy()
	r.keep(db, CreateOptions{FileSystem: JFS, JournalMemory: &memory})
	_, resizeErr := r.pool.Resize(ctx, db, 2*testBytes, ResizeOptions{})
	_, moveErr := r.pool.MoveJournal(ctx, db, nil)
	_, cloneErr := r.pool.Clone(ctx, db, "", r.name("clone"), CloneOptions{})
	for _, c := range []struct{ err, cause error }{
		{resizeErr, ErrUnsupported}, {moveErr, ErrUnsupported}, {cloneErr, ErrInvalid}, {r.pool.Send(ctx, db, "", "", io.Discard, SendOptions{}), ErrUnsupported},
	} {
		if !errors.Is(c.err, c.cause) || !strings.Contains(c.err.Error(), "JFS") {
			t.Errorf("%v", c.err)
		}
	}
	r.wantKept(db)
	// Damage that fsck.jfs finds.
	overwrite(t, r.pool.blocks(r.inspect(db).Record).Node(), 0x8000+4096, 4096)
	if report, err := r.pool.Check(ctx, db, CheckOptions{}); !errors.Is(err, ErrCorrupt) || report.Clean {
		t.Errorf("a damaged file system: %+v, %v", report, err)
	}

	// Without jfsutils, and without the module.
	path := t.TempDir()
	t.Setenv("PATH", path)
	if _, err := r.pool.Attach(ctx, db, AttachOptions{Target: r.target(db)}); !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), "jfsutils") {
		t.Errorf("without jfsutils: %v", err)
	}
	if err := unix.DeleteModule("jfsnvj", 0); err != nil {
		t.Fatal(err)
	}
	if _, err := r.pool.Attach(ctx, db, AttachOptions{Target: r.target(db)}); !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), "docs/jfsnvj.md") {
		t.Errorf("without the module: %v", err)
	}
	if err := r.pool.Delete(ctx, db, DeleteOptions{}); err != nil {
		t.Error(err)
	}
	wantSlices(t, "after refusals")
	r.wantTidy()
}

// A host loses its power under load, as for ext4.
func TestGuestVolumeWithJFSAfterAPowerCut(t *testing.T) {
	vmtest.Long(t)
	for _, kernel := range memoryKernels(t) {
		t.Run("kernel-"+kernel, func(t *testing.T) { memoryPowerCut(t, kernel, JFS) })
	}
}
