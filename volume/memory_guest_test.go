package volume

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/awaittest"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/needs"
	"github.com/daybook-project/daybook/vm"
	"github.com/daybook-project/daybook/vm/vmtest"
	"github.com/daybook-project/daybook/volume/internal/region"
)

// memoryKernels are the kernels that ext4nvj.ko is built for. Only the long form needs
// more than the first.
func memoryKernels(t *testing.T) []string {
	t.Helper()
	known := []string{"6.1", "6.12"}
	if os.Getenv("DAYBOOK_VM_LONG") != "1" && os.Getenv("DAYBOOK_VM_KERNELS") == "" {
		known = known[:1]
	}
	chosen := slices.DeleteFunc(slices.Clone(vmtest.Kernels(t)), func(kernel string) bool { return !slices.Contains(known, kernel) })
	if len(chosen) == 0 {
		t.Skipf("ext4nvj is for the kernels %s, and these were not chosen", strings.Join(known, ", "))
	}
	return chosen
}

// builtFile is a file on the host that make builds from this repository.
func builtFile(t *testing.T, path, target string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("../nvjournal", path))
	if err != nil {
		t.Fatal(err)
	}
	_, err = os.Stat(path)
	needs.That(t, err == nil, fmt.Sprintf("%s, which make %s builds", path, target))
	return path
}

func memoryModule(t *testing.T, kernel string) string {
	return builtFile(t, filepath.Join("kernel/build", kernel, "ext4nvj.ko"), "kernel")
}

func nvjProgram(t *testing.T) string { return builtFile(t, "build/nvj", "nvjournal") + ":/usr/bin/nvj" }

// memoryPrograms are what volumes with a journal in memory need.
var memoryPrograms = []string{"mke2fs", "e2fsck", "resize2fs", "tune2fs", "debugfs", "dumpe2fs", "e2undo", "wipefs", "modprobe"}

// memoryBytes is the size of the guests' regions.
const memoryBytes = 64 << 20

// smallMemory is a journal of the least size.
var smallMemory = MemoryOptions{Region: "/dev/pmem0", SizeBytes: 8 << 20, Partitions: 2}

// inMemoryGuest runs a test in a guest of each kernel with the module: with two disks and
// a slow one, a region at /dev/pmem0, and one that only its host can flush at /dev/pmem1.
func inMemoryGuest(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	for _, kernel := range memoryKernels(t) {
		t.Setenv("DAYBOOK_VM_KERNELS", kernel)
		config := vmtest.Config{Disks: []string{"256M", "64M", "64M,iops=100"}, Fresh: true}
		if !vmtest.Inside() {
			vmtest.Need(t, kernel)
			config.Pmem = []string{"64M", "16M,virtio"}
			config.Modules = "ext4,loop,bfq," + memoryModule(t, kernel)
			config.Give = append(slices.Clone(memoryPrograms), nvjProgram(t))
		}
		vmtest.InGuest(t, config, test)
	}
}

// wantSlices fails the test unless /dev/pmem0 has slices of these volumes only, and if there are
// none, the rest is zeros.
func wantSlices(t *testing.T, when string, want ...string) {
	t.Helper()
	wantSlicesOf(t, "/dev/pmem0", when, want...)
}

func wantSlicesOf(t *testing.T, node, when string, want ...string) {
	t.Helper()
	table, err := region.List(node, "")
	if err != nil {
		t.Fatalf("%s: %v", when, err)
	}
	names := []string{}
	for _, s := range table.Slices {
		names = append(names, s.Volume)
	}
	slices.Sort(names)
	if !slices.Equal(names, want) {
		t.Errorf("%s: the region has slices of %q, want %q", when, names, want)
	}
	if len(want) > 0 {
		return
	}
	text, err := os.ReadFile(node)
	if err != nil {
		t.Fatal(err)
	}
	if at := slices.IndexFunc(text[region.TableBytes:], func(b byte) bool { return b != 0 }); at >= 0 {
		t.Errorf("%s: byte %d of the region is not wiped", when, region.TableBytes+at)
	}
}

// The life of volumes whose journals are in slices of one region.
func TestGuestVolumeWithItsJournalInMemory(t *testing.T) {
	inMemoryGuest(t, func(t *testing.T) {
		makeFilesOnDisk(t, vmtest.Device(t, "disk0"))
		r := newRig(t)
		t.Run("life", func(t *testing.T) { memoryLife(t, r) })
		t.Run("keep", func(t *testing.T) { memoryKept(t, r) })
		t.Run("copies and moves", func(t *testing.T) { memoryCopies(t, r) })
		t.Run("a full slice", func(t *testing.T) { memoryFull(t, r) })
		t.Run("refusals", func(t *testing.T) { memoryRefusals(t, r) })
	})
}

// memoryCopies snapshots, clones, sends, resizes, and moves the journal.
func memoryCopies(t *testing.T, r *rig) {
	ctx := t.Context()
	db, clone, plain, back := r.name("db"), r.name("clone"), r.name("plain"), r.name("back")
	memory := smallMemory
	must := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	r.create(db, CreateOptions{SizeBytes: 32 << 20, JournalMemory: &memory, MountOptions: "journal_data=small"})
	r.attach(db, AttachOptions{})
	must("write", writeSynced(filepath.Join(r.target(db), keptFile)))
	// Copies of a mounted volume are plain ext4.
	_, err := r.pool.Snapshot(ctx, db, "snap", SnapshotOptions{MaxFreeze: time.Minute})
	must("snapshot", err)
	r.wantClean(r.pool.files.SnapshotImage(db, "snap"))
	record, err := r.pool.Clone(ctx, db, "", clone, CloneOptions{MaxFreeze: time.Minute, JournalMemory: &memory})
	must("clone", err)
	if record.JournalMemory == nil || record.MountOptions != "journal_data=small" {
		t.Errorf("%+v", record)
	}
	record, err = r.pool.Clone(ctx, db, "snap", plain, CloneOptions{})
	must("clone with its journal on the disk", err)
	if record.JournalMemory != nil || record.MountOptions != "" || record.Format != 1 {
		t.Errorf("%+v", record)
	}
	wantSlices(t, "with clones", clone, db)
	if canGrowMounted() {
		record, err = r.pool.Resize(ctx, db, 48<<20, ResizeOptions{})
		must("grow the mounted volume", err)
		if bytes, err := fileSystemBytes(r.inspect(db).BlockDevice); err != nil || bytes != 48<<20 || record.SizeBytes != 48<<20 {
			t.Errorf("the file system has %d bytes, %v", bytes, err)
		}
	}
	if _, err := r.pool.MoveJournal(ctx, db, nil); !errors.Is(err, ErrBusy) {
		t.Errorf("the journal of an attached volume moved: %v", err)
	}
	r.wantKept(db)
	var stream bytes.Buffer
	must("send", r.pool.Send(ctx, db, "snap", "", &stream, SendOptions{}))
	_, err = r.pool.Receive(ctx, back, bytes.NewReader(stream.Bytes()), ReceiveOptions{JournalMemory: &memory, KeepSettings: true})
	must("receive", err)
	wantSlices(t, "received", back, clone, db)
	_, err = r.pool.Resize(ctx, db, 40<<20, ResizeOptions{})
	must("shrink", err)
	for _, to := range []*MemoryOptions{nil, nil, &memory, &memory, nil} {
		record, err = r.pool.MoveJournal(ctx, db, to)
		must("move the journal", err)
		want := []string{back, clone, db}
		if to == nil {
			want = want[:2]
		}
		if (record.JournalMemory != nil) != (to != nil) || record.MountOptions != "journal_data=small" && to != nil && record.MountOptions != "" {
			t.Errorf("%+v", record)
		}
		if to != nil {
			larger := *to
			larger.SizeBytes *= 2
			if _, err := r.pool.MoveJournal(ctx, db, &larger); !errors.Is(err, ErrUnsupported) {
				t.Errorf("a journal in memory became larger: %v", err)
			}
		}
		wantSlices(t, "moved", want...)
		r.wantKept(db)
	}
	for _, name := range []string{db, clone, plain, back} {
		r.wantKept(name)
		must("delete", r.pool.Delete(ctx, name, DeleteOptions{}))
	}
	wantSlices(t, "after copies and moves")
	r.wantTidy()
}

// memoryFull has a volume whose slice is always full beside another. Both go on, and the
// statistics are reported.
func memoryFull(t *testing.T, r *rig) {
	vmtest.Long(t)
	small, other := r.name("small"), r.name("other")
	least := MemoryOptions{Region: "/dev/pmem0", SizeBytes: 2 << 20, Partitions: 1}
	memory := smallMemory
	// Blocks go home to a disk that is slower than the writers.
	r.create(small, CreateOptions{Device: vmtest.Device(t, "disk2"), JournalMemory: &least})
	r.create(other, CreateOptions{SizeBytes: 32 << 20, JournalMemory: &memory})
	r.attach(small, AttachOptions{})
	r.attach(other, AttachOptions{})
	end := make(chan struct{})
	ended := make(chan error, memoryWriters)
	for writer := range memoryWriters {
		go func() {
			for n := 0; ; n++ {
				select {
				case <-end:
					ended <- nil
					return
				default:
				}
				directory := filepath.Join(r.target(small), fmt.Sprint("w", writer), fmt.Sprint("d", n%500))
				err := errors.Join(os.MkdirAll(directory, 0o755), os.WriteFile(filepath.Join(directory, "f"), []byte(directory), 0o644))
				if n%500 == 499 {
					err = errors.Join(err, os.RemoveAll(filepath.Dir(directory)))
				}
				if err != nil {
					ended <- err
					return
				}
			}
		}()
	}
	full, waited := uint64(0), false
	for n := 0; n < 40 || !waited && n < 400; n++ {
		path := filepath.Join(r.target(other), fmt.Sprint("f", n%40, "-", n))
		if err := errors.Join(writeSynced(path), os.Remove(path)); err != nil {
			t.Fatal(err)
		}
		m := r.inspect(small).Memory
		if m == nil || m.RingLines == 0 {
			t.Fatalf("no statistics: %+v", m)
		}
		full, waited = max(full, m.UsedLines*100/m.RingLines), m.Waits > 0
	}
	close(end)
	for range memoryWriters {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	before, after := r.inspect(small).Memory, r.inspect(other).Memory
	t.Logf("the small slice was up to %d %% full; handles of it waited %d times, of the other %d times", full, before.Waits, after.Waits)
	if before.Waits == 0 || after.Waits != 0 {
		t.Errorf("handles of the full slice waited %d times, of the other %d times", before.Waits, after.Waits)
	}
	for _, name := range []string{small, other} {
		r.detach(name)
		r.wantClean(r.pool.blocks(r.inspect(name).Record).Node())
		if err := r.pool.Delete(t.Context(), name, DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	wantSlices(t, "after a full slice")
}

const memoryWriters = 4

// memoryCrashes are operations on volumes whose journal is in memory, killed at each of
// their steps. A journal of JFS does not move, and JFS does not grow.
func memoryCrashes(fileSystem FileSystem) []crash {
	memory := smallMemory
	o := CreateOptions{SizeBytes: testBytes, JournalMemory: &memory, FileSystem: fileSystem}
	inMemory := func(r *rig, name string) { r.keep(name, o) }
	attached := func(r *rig, name string) {
		r.keep(name, o)
		r.attach(name, AttachOptions{})
	}
	all := []crash{
		{
			name: "create", order: order{Operation: "create", Size: testBytes, JournalMemory: &memory, FileSystem: fileSystem}, optional: true,
			steps: []string{"work", "slice reserved", "slice recorded", "slice formatted", "made", "published"},
		},
		{
			name: "to memory", prepare: func(r *rig, name string) { r.keep(name, CreateOptions{SizeBytes: testBytes}) },
			order: order{Operation: "move journal", JournalMemory: &memory}, existed: true,
			steps: []string{"moving to memory", "slice reserved", "slice recorded", "slice formatted", "journal moved"},
		},
		{name: "to disk", prepare: inMemory, order: order{Operation: "move journal"}, existed: true, steps: []string{"moving to disk", "slice freed", "journal moved"}},
		{name: "delete", prepare: inMemory, order: order{Operation: "delete"}, existed: true, optional: true, steps: []string{"dropped", "cleared"}},
		{name: "attach", prepare: inMemory, order: order{Operation: "attach"}, existed: true, steps: []string{"attaching", "opened", "mounted", "thread", "attached"}},
		{name: "detach", prepare: attached, order: order{Operation: "detach"}, existed: true, steps: []string{"detaching", "mounted undone", "detached"}},
		{name: "snapshot", prepare: attached, order: order{Operation: "snapshot"}, existed: true, after: snapshotIsWhole, steps: []string{"work", "frozen", "copied", "published"}},
		{
			name: "clone", prepare: attached, order: order{Operation: "clone", JournalMemory: &memory}, existed: true,
			steps: []string{"work", "slice reserved", "slice formatted", "copied", "renewed", "published"},
			after: func(r *rig, name string) {
				if clone := name + "-clone"; exists(r.pool.files.VolumeDir(clone)) {
					r.wantWhole(clone)
					r.wantKept(clone)
					if err := r.pool.Delete(r.t.Context(), clone, DeleteOptions{}); err != nil {
						r.t.Error(err)
					}
				}
			},
		},
		{name: "grow", prepare: attached, order: order{Operation: "resize", Size: 2 * testBytes}, existed: true, after: sizeIsWhole, steps: []string{"resizing", "lengthened", "grown"}},
	}
	if fileSystem == JFS {
		all = slices.DeleteFunc(all, func(c crash) bool { return c.order.Operation == "move journal" || c.order.Operation == "resize" })
	}
	return all
}

// A repair also finds the slices that a killed process has reserved, and frees those that
// belong to nothing. Each test is in a guest of its own.
func TestGuestKilledWithTheJournalInMemoryARepairMakesWhole(t *testing.T) {
	vmtest.Long(t)
	inMemoryGuest(t, func(t *testing.T) { killedInMemory(t, Ext4) })
}

func killedInMemory(t *testing.T, fileSystem FileSystem) {
	makeFilesOnDisk(t, vmtest.Device(t, "disk0"))
	for _, c := range memoryCrashes(fileSystem) {
		t.Run(c.name, func(t *testing.T) {
			kills := newRig(t).crashAtEachStep(c)
			t.Logf("%d kills", kills)
			wantSlices(t, "in the end")
		})
	}
}

func memoryLife(t *testing.T, r *rig) {
	db, other := r.name("db"), r.name("other")
	memory := smallMemory
	r.create(db, CreateOptions{SizeBytes: 32 << 20, Weight: 700, JournalMemory: &memory})
	status := r.attach(db, AttachOptions{})
	tree, err := cgroup.Find()
	if err != nil {
		t.Fatal(err)
	}
	threads, err := r.pool.placed(status.Record).Workers()
	if err != nil || len(threads) == 0 || status.JBD2PID == 0 || !status.Placed {
		t.Errorf("the threads %d and %v, placed %v, %v", status.JBD2PID, threads, status.Placed, err)
	}
	for _, pid := range append(threads, status.JBD2PID) {
		if at, err := tree.Of(pid); err != nil || at != "/daybook/"+db+"/journal" {
			t.Errorf("thread %d is in %s, %v", pid, at, err)
		}
	}
	// Another slice, made and removed while the first is mounted; on a device.
	r.create(other, CreateOptions{Device: vmtest.Device(t, "disk1"), JournalMemory: &memory})
	wantSlices(t, "two volumes", db, other)
	r.attach(other, AttachOptions{})
	for _, name := range []string{db, other} {
		if err := writeSynced(filepath.Join(r.target(name), keptFile)); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.pool.Delete(t.Context(), other, DeleteOptions{}); !errors.Is(err, ErrBusy) {
		t.Errorf("an attached volume was deleted: %v", err)
	}
	r.wantKept(other)
	if err := r.pool.Delete(t.Context(), other, DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	wantSlices(t, "one deleted", db)
	r.wantWhole(db)
	r.wantKept(db)
	if report, err := r.pool.Check(t.Context(), db, CheckOptions{}); err != nil || !report.Clean {
		t.Errorf("%+v, %v", report, err)
	}
	if err := r.pool.Delete(t.Context(), db, DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	wantSlices(t, "all deleted")
	r.wantTidy()
}

// memoryKept has the threads of the journal in the cgroup of a container, which can be
// removed after the container has ended.
func memoryKept(t *testing.T, r *rig) {
	vmtest.Long(t)
	db := r.name("db")
	memory := smallMemory
	at := "/" + r.name("container")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(r.tree.Make(at))
	container := exec.Command("sleep", "1000")
	must(container.Start())
	t.Cleanup(func() { _ = container.Process.Kill(); _ = container.Wait() })
	must(r.tree.Move(container.Process.Pid, at))
	r.create(db, CreateOptions{JournalMemory: &memory})
	status := r.attach(db, AttachOptions{Placement: PlaceContainer, Cgroup: at})
	wantIn := func(want string) {
		t.Helper()
		workers := mustPIDs(t, r.pool.placed(status.Record).Workers)
		if len(workers) == 0 {
			t.Fatal("the journal has one thread only")
		}
		for _, pid := range append(workers, status.JBD2PID) {
			if now, err := r.tree.Of(pid); err != nil || now != want {
				t.Errorf("thread %d is in %s, %v, want %s", pid, now, err, want)
			}
		}
	}
	wantIn(at)
	keeper, err := r.pool.Keeper()
	must(err)
	keeper.Once()
	wantIn(at)
	for _, pid := range append(mustPIDs(t, r.pool.placed(status.Record).Workers), status.JBD2PID) {
		must(r.tree.Move(pid, cgroup.RootPath)) // by somebody else
	}
	keeper.Once()
	wantIn(at)
	must(container.Process.Kill())
	_ = container.Wait() // killed
	keeper.Once()
	wantIn(cgroup.RootPath)
	must(r.tree.Remove(at))
	must(keeper.Close())
	r.detach(db)
	must(r.pool.Delete(t.Context(), db, DeleteOptions{}))
	wantSlices(t, "kept")
}

func mustPIDs(t *testing.T, find func() ([]int, error)) []int {
	t.Helper()
	pids, err := find()
	if err != nil {
		t.Fatal(err)
	}
	return pids
}

// memoryRefusals tries what cannot be, and finds nothing half-made.
func memoryRefusals(t *testing.T, r *rig) {
	db := r.name("db")
	for _, c := range []struct {
		what   string
		memory MemoryOptions
		cause  error
		says   string
	}{
		{"too large for the region", MemoryOptions{Region: "/dev/pmem0", SizeBytes: memoryBytes}, ErrInvalid, "1 MiB for the table"},
		{"too small for its partitions", MemoryOptions{Region: "/dev/pmem0", SizeBytes: 2 << 20, Partitions: 2}, ErrInvalid, "2 MiB for each"},
		{"a disk", MemoryOptions{Region: vmtest.Device(t, "disk1")}, ErrInvalid, "no persistent memory"},
		{"no device", MemoryOptions{Region: "/dev/pmem7"}, ErrInvalid, "no such file"},
		{"volatile memory", MemoryOptions{Region: "/dev/pmem1", SizeBytes: 8 << 20}, ErrUnsupported, "--allow-volatile"},
		{"several regions", MemoryOptions{}, ErrInvalid, "name the one"},
	} {
		_, err := r.pool.Create(t.Context(), db, CreateOptions{SizeBytes: 16 << 20, JournalMemory: &c.memory})
		if !errors.Is(err, c.cause) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.what, err)
		}
	}
	wantSlices(t, "after what was refused")
	r.wantTidy()

	// A volume that needs too much of what is left.
	memory := smallMemory
	r.create(db, CreateOptions{JournalMemory: &memory})
	_, err := r.pool.Create(t.Context(), r.name("large"), CreateOptions{SizeBytes: 16 << 20, JournalMemory: &MemoryOptions{Region: "/dev/pmem0", SizeBytes: 56 << 20}})
	if !errors.Is(err, ErrNoSpace) || !strings.Contains(err.Error(), db+" (8 MiB)") {
		t.Errorf("larger than what is free: %v", err)
	}
	wantSlices(t, "after one too large", db)

	// A damaged slice of a clean file system.
	r.attach(db, AttachOptions{})
	if err := writeSynced(filepath.Join(r.target(db), keptFile)); err != nil {
		t.Fatal(err)
	}
	r.detach(db)
	at := r.inspect(db).JournalMemory
	overwrite(t, "/dev/pmem0", int64(at.OffsetBytes), 64<<10)
	if _, err := r.pool.Attach(t.Context(), db, AttachOptions{Target: r.target(db)}); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "nothing is lost") {
		t.Errorf("a damaged slice: %v", err)
	}
	r.repair()
	r.wantKept(db)

	// A table of which one copy, and then both, are damaged.
	moved := r.name("moved")
	r.keep(moved, CreateOptions{JournalMemory: &memory})
	overwrite(t, "/dev/pmem0", 0, 4096)
	r.attach(db, AttachOptions{})
	r.detach(db)
	overwrite(t, "/dev/pmem0", region.TableBytes/2, 4096)
	if _, err := r.pool.Attach(t.Context(), db, AttachOptions{Target: r.target(db)}); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a damaged table: %v", err)
	}
	if err := r.pool.Delete(t.Context(), db, DeleteOptions{}); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "--damaged") {
		t.Errorf("deleted with a damaged table: %v", err)
	}
	if err := r.pool.Delete(t.Context(), db, DeleteOptions{Damaged: true}); err != nil {
		t.Error(err)
	}
	// A file system that does not need its memory goes on without.
	if record, err := r.pool.MoveJournal(t.Context(), moved, nil); err != nil || record.JournalMemory != nil {
		t.Errorf("%+v, %v", record, err)
	}
	r.wantKept(moved)
	if err := r.pool.Delete(t.Context(), moved, DeleteOptions{}); err != nil {
		t.Error(err)
	}
	r.wantTidy()

	// Volatile memory that the user accepts; and a region that has another name now.
	volatile := MemoryOptions{Region: "/dev/pmem1", SizeBytes: 8 << 20, AllowVolatile: true}
	record := r.create(db, CreateOptions{JournalMemory: &volatile})
	record.JournalMemory.Region = "/dev/pmem0"
	if err := r.pool.files.Write(record); err != nil {
		t.Fatal(err)
	}
	r.attach(db, AttachOptions{})
	if err := writeSynced(filepath.Join(r.target(db), keptFile)); err != nil {
		t.Fatal(err)
	}
	r.wantKept(db)

	// Without the module, and without nvj.
	t.Setenv("PATH", t.TempDir())
	if _, err := r.pool.Attach(t.Context(), db, AttachOptions{Target: r.target(db)}); !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), "nvj") {
		t.Errorf("without nvj: %v", err)
	}
	if err := unix.DeleteModule("ext4nvj", 0); err != nil {
		t.Fatal(err)
	}
	_, err = r.pool.Attach(t.Context(), db, AttachOptions{Target: r.target(db)})
	_, createErr := r.pool.Create(t.Context(), r.name("new"), CreateOptions{SizeBytes: 16 << 20, JournalMemory: &volatile})
	for _, err := range []error{err, createErr} {
		if !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), "ext4nvj-dkms") {
			t.Errorf("without the module: %v", err)
		}
	}
	r.wantDetached(db)
	// Deleting needs neither.
	if err := r.pool.Delete(t.Context(), db, DeleteOptions{}); err != nil {
		t.Error(err)
	}
	if table, err := region.List("/dev/pmem1", ""); err != nil || len(table.Slices) > 0 {
		t.Errorf("%+v, %v", table, err)
	}
	r.wantTidy()
}

// overwrite damages bytes of a device.
func overwrite(t *testing.T, node string, at int64, bytes int) {
	t.Helper()
	file, err := os.OpenFile(node, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = file.WriteAt([]byte(strings.Repeat("damaged ", bytes/8)), at)
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		t.Fatal(err)
	}
}

// A host loses its power under load. Then what was synced is there, and when the volumes
// are deleted, all slices are free.
func TestGuestVolumeWithItsJournalInMemoryAfterAPowerCut(t *testing.T) {
	vmtest.Long(t)
	for _, kernel := range memoryKernels(t) {
		t.Run("kernel-"+kernel, func(t *testing.T) { memoryPowerCut(t, kernel, Ext4) })
	}
}

func memoryPowerCut(t *testing.T, kernel string, fileSystem FileSystem) {
	config := vm.Config{
		Kernel: kernel, Disks: []vm.Disk{{SizeBytes: 256 << 20, Volatile: true}}, Pmem: []vm.Pmem{{SizeBytes: memoryBytes}},
		Modules: []string{"ext4", "bfq", "loop", memoryModule(t, kernel)},
	}
	programs := append(slices.Clone(memoryPrograms), nvjProgram(t))
	if fileSystem == JFS {
		config.Modules = append(config.Modules, jfsMemoryModules(t, kernel)...)
		programs = append(programs, jfsPrograms...)
	}
	for _, program := range programs {
		give, err := vm.ParseGive(program)
		if err != nil {
			t.Fatal(err)
		}
		config.Give = append(config.Give, give)
	}
	m := vmtest.Boot(t, config)
	sh := func(script string) string {
		t.Helper()
		out, err := m.Run(t.Context(), "sh", "-c", script)
		if err != nil {
			t.Fatalf("%s: %v: %s", script, err, out)
		}
		return out
	}
	do := func(name string, o order) {
		t.Helper()
		o.Pool, o.Name, o.KillAt, o.MakePool = "/mnt/pool", name, -1, true
		text, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		var said strings.Builder
		if err := m.Do(t.Context(), vm.Command{Args: []string{vm.Self}, Env: []string{victimVariable + "=" + string(text)}, Stdout: &said, Stderr: &said}); err != nil {
			t.Fatalf("%s: %v: %s", o.Operation, err, &said)
		}
	}
	names := []string{"db1", "db2"}
	sh("mke2fs -q -t ext4 /dev/daybook/disk0 && mount /dev/daybook/disk0 /mnt")
	memory := smallMemory
	for _, name := range names {
		do(name, order{Operation: "create", Size: 32 << 20, JournalMemory: &memory, FileSystem: fileSystem})
		do(name, order{Operation: "attach", Attach: AttachOptions{Target: "/srv/" + name}})
	}
	const leastRounds = 100
	// Each says what it has synced, in a file that is not on the volume.
	const load = `i=0; while mkdir /srv/%[1]s/d$i && echo $i | dd of=/srv/%[1]s/d$i/f conv=fsync 2>/dev/null; do echo $i >/next-%[1]s; mv /next-%[1]s /synced-%[1]s; i=$((i+1)); done`
	ended := make(chan error, len(names)) // the test may fail before it reads
	for _, name := range names {
		go func() {
			out, err := m.Run(context.WithoutCancel(t.Context()), "sh", "-c", fmt.Sprintf(load, name))
			ended <- fmt.Errorf("the load ended: %w: %s", err, out)
		}()
	}
	synced := map[string]string{}
	for _, name := range names {
		awaittest.Until(t, awaittest.Patience, name+" has synced some rounds", func() bool {
			select {
			case err := <-ended:
				t.Fatal(err)
			default:
			}
			synced[name] = strings.TrimSpace(sh("cat /synced-" + name + " 2>/dev/null || echo 0"))
			n, err := strconv.Atoi(synced[name])
			return err == nil && n >= leastRounds
		})
	}
	m.Kill()
	for range names {
		t.Log(<-ended)
	}
	if err := m.Reboot(t.Context()); err != nil {
		t.Fatal(err)
	}
	sh("mount /dev/daybook/disk0 /mnt")
	do("db1", order{Operation: "repair"})
	for _, name := range names {
		do(name, order{Operation: "check"})
		do(name, order{Operation: "attach", Attach: AttachOptions{Target: "/srv/" + name}})
		if got := strings.TrimSpace(sh("cat /srv/" + name + "/d" + synced[name] + "/f")); got != synced[name] || got == "" {
			t.Errorf("%s: the file of round %q holds %q", name, synced[name], got)
		}
		do(name, order{Operation: "detach"})
		do(name, order{Operation: "delete"})
	}
	do("db1", order{Operation: "no slices"})
	t.Logf("rounds synced before the power cut: %v", synced)
}
