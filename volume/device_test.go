package volume

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/internal/needs"
	"github.com/daybook-project/daybook/volume/internal/backing"
	"github.com/daybook-project/daybook/volume/internal/store"
)

// wantEmpty fails the test if wipefs finds anything on a device.
func (r *rig) wantEmpty(node string) {
	r.t.Helper()
	if err := backing.CheckEmpty(r.t.Context(), node); err != nil {
		r.t.Errorf("the device is not as free as it was: %v", err)
	}
}

func TestALifeOnADevice(t *testing.T) {
	r := newRig(t)
	node := r.newDevice(2 * testBytes)
	name := r.name("db")
	record := r.create(name, CreateOptions{Device: node, Weight: 700, Mode: 0o750, UID: 33, GID: 34})
	if record.Provision != OnDevice || record.Device != node || record.SizeBytes != 2*testBytes {
		t.Errorf("%+v", record)
	}
	r.wantDetached(name)
	if _, err := r.pool.Create(t.Context(), r.name("other"), CreateOptions{Device: node}); !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), "ext4") {
		t.Errorf("a second volume on the device: %v", err)
	}
	status := r.attach(name, AttachOptions{})
	if status.LoopDevice != "" || status.BlockDevice != node || !status.DirectIO || !status.Placed || status.Mountpoint != r.target(name) || status.JBD2PID == 0 {
		t.Errorf("%+v", status)
	}
	var st unix.Stat_t
	if err := unix.Stat(r.target(name), &st); err != nil || st.Mode&0o7777 != 0o750 || st.Uid != 33 || st.Gid != 34 {
		t.Errorf("%+v, %v", st, err)
	}
	if err := writeSynced(filepath.Join(r.target(name), "file")); err != nil {
		t.Fatal(err)
	}
	if status = r.inspect(name); status.UsedBytes == 0 || status.AllocatedBytes != 0 || status.Problem != "" {
		t.Errorf("%+v", status)
	}
	if usage, err := r.pool.Usage(); err != nil || usage.PromisedBytes != 0 {
		t.Errorf("%+v, %v: the pool promises what is not its", usage, err)
	}
	if err := r.pool.Delete(t.Context(), name, DeleteOptions{}); !errors.Is(err, ErrBusy) {
		t.Errorf("deleted while attached: %v", err)
	}
	again := r.attach(name, AttachOptions{})
	if again.JBD2PID != status.JBD2PID {
		t.Errorf("attached anew: %+v", again)
	}
	r.detach(name)
	r.wantDetached(name)
	r.wantWhole(name)
	// Its cgroup, mount and thread are made again.
	r.attach(name, AttachOptions{})
	if err := checkContent(filepath.Join(r.target(name), "file")); err != nil {
		t.Error(err)
	}
	r.detach(name)
	if err := r.pool.Delete(t.Context(), name, DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	r.wantDetached()
	r.wantEmpty(node)
}

// The kernel gives the number of a device that is gone to another one. Here it is the same loop
// device, with a file system of somebody else.
func TestAnotherDeviceWithTheNumberOfAVolumesIsLeftAlone(t *testing.T) {
	for _, where := range []string{"elsewhere", "at the volume's mount point"} {
		t.Run(where, func(t *testing.T) {
			r := newRig(t)
			node := r.newDevice(2 * testBytes)
			name := r.name("v")
			r.create(name, CreateOptions{Device: node})
			r.attach(name, AttachOptions{})
			keeper, err := r.pool.Keeper()
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = keeper.Close() }()
			keeper.Once()
			if err := ext4.Unmount(t.Context(), r.target(name)); err != nil {
				t.Fatal(err)
			}
			if err := ext4.Make(t.Context(), node, ext4.MakeOptions{Arguments: []string{"-F"}}); err != nil {
				t.Fatal(err)
			}
			at := r.target(name)
			if where == "elsewhere" {
				at = r.target("stranger")
				if err := os.Mkdir(at, 0o700); err != nil {
					t.Fatal(err)
				}
			}
			if err := ext4.Mount(node, at, ext4.MountOptions{}); err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := ext4.Unmount(context.Background(), at); err != nil {
					t.Error(err)
				}
				_ = os.Remove(at)
			}()
			wantLeftAlone := func(after string) {
				t.Helper()
				pid, err := ext4.JournalThread(filepath.Base(node) + "-8")
				if err != nil {
					t.Fatal(err)
				}
				if in, err := r.tree.Of(pid); err != nil || in != "/" {
					t.Errorf("%s: the journal thread of another file system is in %s, %v", after, in, err)
				}
				var st unix.Stat_t
				if err := unix.Stat(at, &st); err != nil || blockdev.NodeOf(deviceName(t, st.Dev)) != node {
					t.Errorf("%s: another file system is no longer mounted on %s (%v)", after, at, err)
				}
			}
			keeper.Once()
			wantLeftAlone("keep")
			if err := r.pool.Detach(t.Context(), name); err != nil {
				t.Error(err)
			}
			wantLeftAlone("detach")
		})
	}
}

func deviceName(t *testing.T, number uint64) string {
	t.Helper()
	name, err := blockdev.DeviceName(blockdev.DevOf(number))
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// The weight is on the disk of the device; for a partition, on the whole disk.
func TestADevicesWeightIsThatOfItsOwnDisk(t *testing.T) {
	r := newRig(t)
	disk, err := blockdev.Lookup(r.newDevice(4 * testBytes))
	if err != nil {
		t.Fatal(err)
	}
	previous, err := disk.Scheduler()
	if err != nil {
		t.Fatal(err)
	}
	err = disk.SetScheduler(blockdev.BFQ)
	needs.That(t, !errors.Is(err, blockdev.ErrNoScheduler), "the scheduler bfq")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := disk.SetScheduler(previous.Current); err != nil {
			t.Error(err)
		}
	})
	parts, err := blockdev.AddPartitions(disk, 2, testBytes+1<<20)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := blockdev.RemovePartitions(disk, len(parts)); err != nil {
			t.Error(err)
		}
	})
	for i, part := range parts {
		name := r.name(string(rune('a' + i)))
		r.create(name, CreateOptions{Device: part.Node, Weight: uint64(300 + 400*i)})
		status := r.attach(name, AttachOptions{})
		if status.WeightInForce != uint64(300+400*i) || status.BlockDevice != part.Node {
			t.Errorf("%+v", status)
		}
		if err := writeSynced(filepath.Join(r.target(name), "file")); err != nil {
			t.Fatal(err)
		}
		if status = r.inspect(name); status.JournalWriteBytes == 0 {
			t.Errorf("no journal I/O is charged to it: %+v", status)
		}
	}
	r.clear()
	for _, part := range parts {
		r.wantEmpty(part.Node)
	}
}

func TestADeviceThatIsNotFreeIsLeftAlone(t *testing.T) {
	r := newRig(t)
	node := r.newDevice(2 * testBytes)
	small := r.newDevice(1 << 20)
	file := filepath.Join(r.home, "file")
	if err := os.WriteFile(file, make([]byte, 64), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := ext4.Make(t.Context(), node, ext4.MakeOptions{}); err != nil {
		t.Fatal(err)
	}
	before := head(t, node)
	for _, c := range []struct {
		what    string
		options CreateOptions
		want    error
	}{
		{"a file", CreateOptions{Device: file}, ErrInvalid},
		{"a directory", CreateOptions{Device: r.home}, ErrInvalid},
		{"nothing", CreateOptions{Device: "/dev/daybook-none"}, fs.ErrNotExist},
		{"too small", CreateOptions{Device: small}, ErrInvalid},
		{"a size, too", CreateOptions{Device: small, SizeBytes: testBytes}, ErrInvalid},
		{"a provision, too", CreateOptions{Device: small, Provision: Full}, ErrInvalid},
		{"a provision without one", CreateOptions{SizeBytes: testBytes, Provision: OnDevice}, ErrInvalid},
		{"a file system on it", CreateOptions{Device: node}, ErrBusy},
	} {
		if _, err := r.pool.Create(t.Context(), r.name("v"), c.options); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.what, err, c.want)
		}
	}
	point := filepath.Join(r.home, "mnt", "somebody")
	if err := os.Mkdir(point, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := ext4.Mount(node, point, ext4.MountOptions{ReadOnly: true}); err != nil {
		t.Fatal(err)
	}
	_, err := r.pool.Create(t.Context(), r.name("v"), CreateOptions{Device: node})
	if !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), "lsblk") {
		t.Errorf("a mounted device: %v", err)
	}
	if err := errors.Join(ext4.Unmount(t.Context(), point), os.Remove(point)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(head(t, node), before) {
		t.Error("the device that was refused has changed")
	}
	r.wantDetached()
}

// head is the beginning of a device.
func head(t *testing.T, node string) []byte {
	t.Helper()
	file, err := os.Open(node)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	text := make([]byte, 64<<10)
	if _, err := file.ReadAt(text, 0); err != nil {
		t.Fatal(err)
	}
	return text
}

// After a boot, a node can be another device.
func TestAnotherDeviceAtThePathIsLeftAlone(t *testing.T) {
	r := newRig(t)
	node := r.newDevice(2 * testBytes)
	name := r.name("db")
	r.create(name, CreateOptions{Device: node})
	if err := ext4.Make(t.Context(), node, ext4.MakeOptions{}); err != nil {
		t.Fatal(err)
	}
	before := head(t, node)
	_, err := r.pool.Attach(t.Context(), name, AttachOptions{Target: r.target(name)})
	if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "another device") {
		t.Errorf("attached: %v", err)
	}
	if _, err := r.pool.Resize(t.Context(), name, testBytes, ResizeOptions{}); !errors.Is(err, ErrCorrupt) {
		t.Errorf("resized: %v", err)
	}
	if done, err := r.pool.Repair(t.Context()); !errors.Is(err, ErrCorrupt) || done.Damaged[name] == "" {
		t.Errorf("%+v, %v", done, err)
	}
	var said strings.Builder
	r.pool.log = slog.New(slog.NewTextHandler(&said, nil))
	if err := r.pool.Delete(t.Context(), name, DeleteOptions{}); err != nil {
		t.Error(err)
	}
	if !strings.Contains(said.String(), "left as it is") || !strings.Contains(said.String(), "another device") {
		t.Errorf("that the device is left was not said: %q", said.String())
	}
	if !bytes.Equal(head(t, node), before) {
		t.Error("somebody else's file system has changed")
	}
	r.wantDetached()
}

func TestADeviceThatIsGone(t *testing.T) {
	r := newRig(t)
	link := filepath.Join(r.home, "lv")
	if err := os.Symlink(r.newDevice(2*testBytes), link); err != nil {
		t.Fatal(err)
	}
	name := r.name("db")
	r.create(name, CreateOptions{Device: link})
	r.attach(name, AttachOptions{})
	// It disappears while it is attached: the mount is still known.
	if err := os.Remove(link); err != nil {
		t.Fatal(err)
	}
	if status := r.inspect(name); status.Mountpoint != r.target(name) || status.JBD2PID == 0 {
		t.Errorf("%+v", status)
	}
	r.detach(name)
	r.wantDetached(name)
	_, err := r.pool.Attach(t.Context(), name, AttachOptions{Target: r.target(name)})
	if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "missing") {
		t.Errorf("attached: %v", err)
	}
	if status := r.inspect(name); status.Problem == "" {
		t.Errorf("%+v", status)
	}
	if err := r.pool.Delete(t.Context(), name, DeleteOptions{}); err != nil {
		t.Error(err)
	}
	r.wantDetached()
}

func TestADeviceHasNoCopiesOfOurs(t *testing.T) {
	r := newRig(t)
	name := r.name("db")
	r.create(name, CreateOptions{Device: r.newDevice(2 * testBytes)})
	for _, attached := range []bool{false, true} {
		if attached {
			r.attach(name, AttachOptions{})
		}
		_, err1 := r.pool.Snapshot(t.Context(), name, "s", SnapshotOptions{})
		_, err2 := r.pool.Clone(t.Context(), name, "", r.name("clone"), CloneOptions{})
		var stream bytes.Buffer
		err3 := r.pool.Send(t.Context(), name, "", "", &stream, SendOptions{})
		for _, err := range []error{err1, err2, err3} {
			if !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), "lvcreate") {
				t.Errorf("attached %v: %v", attached, err)
			}
		}
	}
	r.clear()
	r.wantDetached()
}

func TestADeviceThatBecomesLonger(t *testing.T) {
	r := newRig(t)
	node := r.newDevice(2 * testBytes)
	name := r.name("db")
	r.keep(name, CreateOptions{Device: node})
	for _, size := range []uint64{3 * testBytes, 4 * testBytes} {
		_, err := r.pool.Resize(t.Context(), name, size, ResizeOptions{})
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "lvextend") {
			t.Errorf("longer than its device: %v", err)
		}
		if status := r.wantWhole(name); status.Resize != 0 {
			t.Errorf("%+v", status)
		}
		r.lengthen(node, size)
		if _, err := r.pool.Resize(t.Context(), name, size, ResizeOptions{}); err != nil {
			t.Error(err)
		}
		sizeIsWhole(r, name)
	}
	r.attach(name, AttachOptions{})
	r.lengthen(node, 5*testBytes)
	_, err := r.pool.Resize(t.Context(), name, 5*testBytes, ResizeOptions{})
	if canGrowMounted() && err != nil || !canGrowMounted() && !errors.Is(err, ErrUnsupported) {
		t.Errorf("at work: %v", err)
	}
	r.detach(name)
	sizeIsWhole(r, name)
	if _, err := r.pool.Resize(t.Context(), name, testBytes, ResizeOptions{}); err != nil {
		t.Error(err)
	}
	sizeIsWhole(r, name)
	r.wantWhole(name)
	r.wantKept(name)
	r.clear()
}

// lengthen has the effect of lvextend.
func (r *rig) lengthen(node string, bytes uint64) {
	r.t.Helper()
	disk, err := blockdev.Lookup(node)
	if err != nil {
		r.t.Fatal(err)
	}
	file, err := disk.BackingFile()
	if err == nil {
		err = os.Truncate(file, int64(bytes))
	}
	if err == nil {
		err = r.pool.blocks(Record{}).Lengthened(node)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// As a device that becomes a volume.
func TestAJournalDeviceMustBeEmptyAndIsFoundFromEveryDirectory(t *testing.T) {
	r := newRig(t)
	node := r.newDevice(testBytes)
	t.Chdir("/dev")
	name, other := r.name("v"), r.name("other")
	record := r.create(name, CreateOptions{SizeBytes: 2 * testBytes, JournalDevice: filepath.Base(node)})
	if record.JournalDevice != node {
		t.Errorf("recorded as %s, want %s", record.JournalDevice, node)
	}
	t.Chdir("/")
	attempt := func(o CreateOptions) error {
		o.SizeBytes = 2 * testBytes
		_, err := r.pool.Create(t.Context(), other, o)
		return err
	}
	// The journal of a detached volume, and of an attached one.
	wantError(t, attempt(CreateOptions{JournalDevice: node}), ErrBusy, "it holds jbd; to erase that: wipefs --all "+node)
	r.attach(name, AttachOptions{Placement: PlaceNone})
	wantError(t, attempt(CreateOptions{JournalDevice: node}), ErrBusy, node)
	if err := writeSynced(filepath.Join(r.target(name), keptFile)); err != nil {
		t.Error(err)
	}
	r.detach(name)
	r.attach(name, AttachOptions{Placement: PlaceNone})
	if err := checkContent(filepath.Join(r.target(name), keptFile)); err != nil {
		t.Error(err)
	}
	r.detach(name)
	if err := r.pool.Delete(t.Context(), name, DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	wantError(t, attempt(CreateOptions{JournalDevice: "/dev/none"}), ErrInvalid, "/dev/none")
	wantError(t, attempt(CreateOptions{JournalDevice: r.home}), ErrInvalid, "no block device")
	// Mount options are separated by commas.
	odd := filepath.Join(r.home, "a,b")
	if err := os.Symlink(node, odd); err != nil {
		t.Fatal(err)
	}
	wantError(t, attempt(CreateOptions{JournalDevice: odd}), ErrInvalid, "comma")
	if err := os.Remove(odd); err != nil {
		t.Error(err)
	}
	// What fails leaves the device empty, so that it can be tried again.
	empty := r.newDevice(testBytes)
	r.pool.engine.Stop = func(step string) {
		if step == "made" {
			if err := os.Mkdir(r.pool.files.VolumeDir(other), 0o711); err != nil {
				t.Error(err)
			}
		}
	}
	if err := attempt(CreateOptions{JournalDevice: empty}); !errors.Is(err, ErrExists) {
		t.Errorf("%v", err)
	}
	r.pool.engine.Stop = nil
	if err := os.Remove(r.pool.files.VolumeDir(other)); err != nil {
		t.Error(err)
	}
	r.wantEmpty(empty)
}

// As an error of the pool's disk while the directory of the volumes is synced.
func TestAVolumeThatIsInItsPlaceKeepsItsJournalIfTheCreateFailsAfterwards(t *testing.T) {
	r := newRig(t)
	name, journal := r.name("v"), r.newDevice(testBytes)
	volumes := filepath.Dir(r.pool.files.VolumeDir(name))
	r.pool.engine.Stop = func(step string) {
		if step == "published" {
			if err := os.Rename(volumes, volumes+"-away"); err != nil {
				t.Error(err)
			}
		}
	}
	_, err := r.pool.Create(t.Context(), name, CreateOptions{SizeBytes: 2 * testBytes, JournalDevice: journal})
	r.pool.engine.Stop = nil
	wantError(t, err, os.ErrNotExist, "volumes")
	if err := os.Rename(volumes+"-away", volumes); err != nil {
		t.Fatal(err)
	}
	r.attach(name, AttachOptions{Placement: PlaceNone})
	r.detach(name)
}

func TestAWorkIsNotClearedOfAJournalThatAnotherHasMadeSince(t *testing.T) {
	r := newRig(t)
	name, journal := r.name("v"), r.newDevice(testBytes)
	if !r.killed(order{Operation: "create", Name: name, Size: 2 * testBytes, JournalDevice: journal, KillAt: 1}) {
		t.Fatal("it was not killed")
	}
	wantError(t, backing.CheckEmpty(t.Context(), journal), ErrBusy, "jbd")
	if out, err := exec.Command("mke2fs", "-F", "-O", "journal_dev", journal).CombinedOutput(); err != nil {
		t.Fatal(err, string(out))
	}
	r.repair()
	wantError(t, backing.CheckEmpty(t.Context(), journal), ErrBusy, "jbd")
}

func TestADeviceThatCannotBeWipedStaysRecordedUntilARepairWipesIt(t *testing.T) {
	r := newRig(t)
	tools := t.TempDir()
	if err := os.WriteFile(filepath.Join(tools, "wipefs"), []byte("#!/bin/sh\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	device := r.newDevice(2 * testBytes)
	kill := func(o order) {
		o.Operation, o.Name = "create", r.name("v")
		if !r.killed(o) {
			t.Fatal("it was not killed")
		}
	}
	for what, begin := range map[string]func(){
		"a create with its journal on a device": func() { kill(order{Size: 2 * testBytes, JournalDevice: device, KillAt: 1}) },
		"a create on a device":                  func() { kill(order{Device: device, Mode: 0o700, KillAt: 2}) },
		"a delete": func() {
			r.create(r.name("v"), CreateOptions{Device: device})
			r.pool.engine.Stop = func(step string) {
				if step == "dropped" {
					t.Setenv("PATH", tools)
				}
			}
			defer func() { r.pool.engine.Stop = nil }()
			if err := r.pool.Delete(t.Context(), r.name("v"), DeleteOptions{}); err == nil || !strings.Contains(err.Error(), "recorded in "+r.pool.dir) {
				t.Errorf("the delete: %v", err)
			}
		},
	} {
		path := os.Getenv("PATH")
		begin()
		t.Setenv("PATH", tools)
		if done, err := r.pool.Repair(t.Context()); !errors.Is(err, ErrWorkLeft) || done.Work != 0 {
			t.Errorf("%s: %+v, %v", what, done, err)
		}
		t.Setenv("PATH", path)
		wantError(t, backing.CheckEmpty(t.Context(), device), ErrBusy, "")
		if done := r.repair(); done.Work != 1 {
			t.Errorf("%s: the next repair: %+v", what, done)
		}
		r.wantEmpty(device)
	}
	kill(order{Device: device, Mode: 0o700, KillAt: 2})
	works, err := os.ReadDir(filepath.Join(r.pool.dir, store.WorkDir))
	if err != nil || len(works) != 1 {
		t.Fatal(works, err)
	}
	path := os.Getenv("PATH")
	t.Setenv("PATH", tools)
	_, err = r.pool.Repair(t.Context())
	wantError(t, err, ErrWorkLeft, "--forget "+works[0].Name())
	t.Setenv("PATH", path) // it could be wiped now
	if err := r.pool.Forget(t.Context(), works[0].Name()); err != nil {
		t.Error(err)
	}
	wantError(t, backing.CheckEmpty(t.Context(), device), ErrBusy, "") // it is left as it is
	if done := r.repair(); done.Work != 0 {
		t.Errorf("after it was forgotten: %+v", done)
	}
}
