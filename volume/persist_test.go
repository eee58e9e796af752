package volume

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/awaittest"
	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/internal/needs"
	"github.com/daybook-project/daybook/volume/internal/backing"
	"github.com/daybook-project/daybook/volume/internal/mountpoint"
)

// restart makes the state of an attached volume after a boot: its
// record, and its mount point.
func (r *rig) restart(name string) {
	r.t.Helper()
	record, err := r.pool.files.Read(name)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := ext4.Unmount(r.t.Context(), record.Attachment.Target); err != nil {
		r.t.Fatal(err)
	}
	devices, err := r.pool.blocks(record).Opened(backing.Loops)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, device := range devices {
		if device.Loop == nil {
			continue
		}
		if err := device.Loop.Detach(r.t.Context()); err != nil {
			r.t.Fatal(err)
		}
	}
	for _, at := range record.Attachment.MadeCgroups {
		defer func() { _ = r.tree.Remove(at) }() // children first; other volumes may use the common parent
	}
	r.lie(name, func(record *Record) { record.Attachment.BootID = "an earlier start" })
}

// isProtected tries to create something in a directory, and reports whether that
// fails.
func isProtected(dir string) error {
	file := os.WriteFile(filepath.Join(dir, "ibdata1"), nil, 0o600)
	sub := os.MkdirAll(filepath.Join(dir, "mysql", "data"), 0o755) // as docker makes a missing source
	bound := unix.Symlink("/etc", filepath.Join(dir, "link"))
	for _, err := range []error{file, sub, bound, unix.Rmdir(dir)} {
		if !errors.Is(err, unix.EPERM) {
			return fmt.Errorf("into %s one could write: %v, %v, %v", dir, file, sub, bound)
		}
	}
	return nil
}

func (r *rig) wantProtected(dir string) {
	r.t.Helper()
	if err := isProtected(dir); err != nil {
		r.t.Error(err)
	}
}

// newPersistentRig is a rig whose mount points can be protected.
func newPersistentRig(t *testing.T) *rig {
	t.Helper()
	r := newRig(t)
	probe := filepath.Join(r.home, "probe")
	if err := os.Mkdir(probe, 0o700); err != nil {
		t.Fatal(err)
	}
	dir, err := os.Open(probe)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = dir.Close() }()
	_, err = mountpoint.SetImmutable(dir, true)
	needs.That(t, err == nil, fmt.Sprintf("the immutable flag on %s: %v", r.home, err))
	if _, err := mountpoint.SetImmutable(dir, false); err != nil {
		t.Fatal(err)
	}
	return r
}

// unprotectBelow clears the flags that a failed test left.
func (r *rig) unprotectBelow(dir string) {
	entries, _ := os.ReadDir(dir)
	for _, entry := range entries {
		if file, err := os.OpenFile(filepath.Join(dir, entry.Name()), unix.O_DIRECTORY|unix.O_NOFOLLOW, 0); err == nil {
			_, _ = mountpoint.SetImmutable(file, false)
			_ = file.Close()
		}
	}
}

func TestAfterAStartOfTheHostAPersistentTargetTakesNoWritesUntilItIsAttached(t *testing.T) {
	r := newPersistentRig(t)
	name, target := r.name("v"), r.target(r.name("v"))
	r.keep(name, CreateOptions{})
	status := r.attach(name, AttachOptions{Persist: true})
	if status.Persist == nil || !status.Persist.Protected || status.Persist.Unfinished || !status.Placed {
		t.Errorf("%+v: %+v", status, status.Persist)
	}
	r.restart(name)
	r.wantProtected(target)
	if done := r.repair(); done.Volumes[name] == "" { // as the keeper does first
		t.Errorf("%+v", done)
	}
	r.wantProtected(target)
	if problem := r.inspect(name).Problem; problem == "" {
		t.Error("that it is not attached is no problem")
	}

	all, err := r.pool.AttachAllPersistent(t.Context(), time.Now())
	if err != nil || len(all) != 1 || all[0].Name != name || !all[0].Placed || all[0].JBD2PID == 0 {
		t.Fatalf("%+v, %v", all, err)
	}
	r.wantWhole(name)
	if at, err := r.tree.Of(all[0].JBD2PID); err != nil || at != "/daybook/"+name+"/journal" {
		t.Errorf("the jbd2 thread is in %s, %v", at, err)
	}
	if err := errors.Join(checkContent(filepath.Join(target, keptFile)), writeSynced(filepath.Join(target, "new"))); err != nil {
		t.Error(err)
	}
	if again, err := r.pool.AttachAllPersistent(t.Context(), time.Now()); err != nil || len(again) != 1 || again[0].JBD2PID != all[0].JBD2PID {
		t.Errorf("a second time: %+v, %v", again, err)
	}
	r.detach(name)
	if exists(target) || r.inspect(name).Persist != nil {
		t.Error("detached, it is persistent still")
	}
	if all, err := r.pool.AttachAllPersistent(t.Context(), time.Now()); err != nil || len(all) != 0 {
		t.Errorf("%+v, %v", all, err)
	}
	r.clear()
}

// A volume that cannot be attached must have a protected mount point, and must not
// delay the others.
func TestAPersistentVolumeThatCannotBeAttachedIsProtected(t *testing.T) {
	r := newPersistentRig(t)
	broken, whole := r.name("a"), r.name("b")
	for _, name := range []string{broken, whole} {
		r.create(name, CreateOptions{})
		r.attach(name, AttachOptions{Persist: true})
		r.restart(name)
	}
	image := r.pool.files.Image(broken)
	if err := os.Rename(image, image+".gone"); err != nil {
		t.Fatal(err)
	}
	// Another program has cleared the flag of one, and removed the other.
	r.unprotectBelow(filepath.Join(r.home, "mnt"))
	if err := os.Remove(r.target(whole)); err != nil {
		t.Fatal(err)
	}
	all, err := r.pool.AttachAllPersistent(t.Context(), time.Now())
	wantError(t, err, ErrCorrupt, broken)
	if len(all) != 1 || all[0].Name != whole {
		t.Errorf("%+v", all)
	}
	r.wantWhole(whole)
	r.wantProtected(r.target(broken))
	if err := os.Rename(image+".gone", image); err != nil {
		t.Fatal(err)
	}
	if _, err := r.pool.AttachPersistent(t.Context(), broken); err != nil {
		t.Error(err)
	}
	r.wantWhole(broken)
	r.clear()
}

func TestDetachUntilStartKeepsTheTargetProtected(t *testing.T) {
	r := newPersistentRig(t)
	name, target := r.name("v"), r.target(r.name("v"))
	r.create(name, CreateOptions{})
	r.attach(name, AttachOptions{})
	// Persistence of what is attached already protects the directory below.
	r.attach(name, AttachOptions{Persist: true})
	if err := r.pool.DetachUntilStart(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	r.wantProtected(target)
	if status := r.inspect(name); status.Problem != "" || status.Persist == nil {
		t.Errorf("%+v", status)
	}
	if err := r.pool.DetachUntilStart(t.Context(), name); err != nil {
		t.Error(err)
	}
	r.unprotectBelow(filepath.Join(r.home, "mnt"))
	if done := r.repair(); done.Volumes[name] == "" {
		t.Errorf("%+v", done)
	}
	r.wantProtected(target)
	if _, err := r.pool.Attach(t.Context(), name, AttachOptions{Target: r.target("elsewhere"), Persist: true}); !errors.Is(err, ErrBusy) {
		t.Errorf("persistent in two ways: %v", err)
	}
	// Attached elsewhere once, as the Docker plugin does.
	r.attach(name, AttachOptions{Target: r.target("elsewhere")})
	for _, untilStart := range []bool{true, false} {
		if err := r.pool.DetachFrom(t.Context(), name, target, untilStart); !errors.Is(err, ErrNotFound) || r.inspect(name).Mountpoint != r.target("elsewhere") {
			t.Errorf("detached from where it is not attached: %v", err)
		}
	}
	if err := r.pool.DetachUntilStart(t.Context(), name); err != nil || exists(r.target("elsewhere")) {
		t.Error(err)
	}
	r.wantProtected(target)
	if err := r.pool.Delete(t.Context(), name, DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if exists(target) {
		t.Error("the mount point outlives the volume")
	}
	r.wantDetached()
}

// Of a directory that we did not make, we clear only the flag, and only if we set
// it.
func TestADirectoryThatWasThereKeepsItsFlag(t *testing.T) {
	r := newPersistentRig(t)
	name := r.name("v")
	r.create(name, CreateOptions{})
	for _, before := range []bool{false, true} {
		target := r.target(fmt.Sprint(before))
		if err := os.Mkdir(target, 0o750); err != nil {
			t.Fatal(err)
		}
		if before {
			dir, err := os.Open(target)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := mountpoint.SetImmutable(dir, true); err != nil {
				t.Fatal(err)
			}
			_ = dir.Close()
		}
		r.attach(name, AttachOptions{Target: target, Persist: true})
		if err := r.pool.DetachUntilStart(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		r.wantProtected(target)
		r.detach(name)
		if err := os.WriteFile(filepath.Join(target, "x"), nil, 0o600); errors.Is(err, unix.EPERM) != before {
			t.Errorf("immutable before: %v; after: %v", before, err)
		}
		if info, err := os.Stat(target); err != nil || info.Mode().Perm() != 0o750 {
			t.Errorf("%+v, %v", info, err)
		}
	}
	r.unprotectBelow(filepath.Join(r.home, "mnt"))
	r.clear()
}

func TestATargetThatCannotBeProtected(t *testing.T) {
	r := newPersistentRig(t)
	name, full := r.name("v"), r.target("full")
	r.create(name, CreateOptions{})
	if err := errors.Join(os.Mkdir(full, 0o700), os.WriteFile(filepath.Join(full, "x"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	_, err := r.pool.Attach(t.Context(), name, AttachOptions{Target: full, Persist: true})
	wantError(t, err, ErrInvalid, "not empty")
	r.attach(name, AttachOptions{Target: full})
	_, err = r.pool.Attach(t.Context(), name, AttachOptions{Target: full, Persist: true})
	wantError(t, err, ErrInvalid, "not empty")
	r.detach(name)
	_, err = r.pool.Attach(t.Context(), name, AttachOptions{Target: r.target(name), Placement: PlaceContainer, Cgroup: "/x", Persist: true})
	wantError(t, err, ErrInvalid, "container")
	if _, err := r.pool.AttachPersistent(t.Context(), name); !errors.Is(err, ErrInvalid) {
		t.Errorf("never made persistent: %v", err)
	}
	r.wantDetached(name)

	memory := r.target("memory")
	if err := errors.Join(os.Mkdir(memory, 0o700), unix.Mount("ramfs", memory, "ramfs", 0, "")); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Unmount(memory, unix.MNT_DETACH) }()
	status := r.attach(name, AttachOptions{Target: filepath.Join(memory, "db"), Persist: true})
	if status.Persist == nil || status.Persist.Protected || status.Persist.Unprotected == "" {
		t.Errorf("%+v", status.Persist)
	}
	// After the next start, neither the directory nor its parent exist.
	r.restart(name)
	if err := os.Remove(filepath.Join(memory, "db")); err != nil {
		t.Fatal(err)
	}
	if all, err := r.pool.AttachAllPersistent(t.Context(), time.Now()); err != nil || len(all) != 1 {
		t.Errorf("%+v, %v", all, err)
	}
	r.detach(name)
	if err := os.RemoveAll(full); err != nil {
		t.Error(err)
	}
	if err := unix.Unmount(memory, 0); err != nil {
		t.Error(err)
	}
	if err := os.Remove(memory); err != nil {
		t.Error(err)
	}
	r.clear()
}

// The flag belongs to the directory on which protect set it, and not to another one
// at its path.
func TestAnotherDirectoryAtTheTargetKeepsItsFlag(t *testing.T) {
	r := newPersistentRig(t)
	name, target := r.name("v"), r.target(r.name("v"))
	r.create(name, CreateOptions{})
	r.attach(name, AttachOptions{Persist: true})
	if err := r.pool.DetachUntilStart(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	moved := target + "-moved"
	r.unprotectBelow(filepath.Dir(target)) // an immutable directory cannot be renamed
	if err := errors.Join(os.Rename(target, moved), os.Mkdir(target, 0o700)); err != nil {
		t.Fatal(err)
	}
	needs.Tool(t, "chattr")
	if out, err := exec.Command("chattr", "+i", target).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	r.detach(name)
	r.wantProtected(target)
	r.unprotectBelow(filepath.Dir(target))
	if err := errors.Join(os.Remove(target), os.Remove(moved)); err != nil {
		t.Error(err)
	}
	r.clear()
}

// persistentWithoutItsNode makes a persistent volume on a device, as it is at the start of the
// host: not attached, and node, the link by which it knows the device, is not there yet.
func (r *rig) persistentWithoutItsNode() (name, device, node string) {
	r.t.Helper()
	name, node = r.name("v"), filepath.Join(r.home, "lv")
	device = r.newDevice(testBytes)
	if err := os.Symlink(device, node); err != nil {
		r.t.Fatal(err)
	}
	r.create(name, CreateOptions{Device: node})
	r.attach(name, AttachOptions{Persist: true})
	r.restart(name)
	if err := os.Remove(node); err != nil {
		r.t.Fatal(err)
	}
	return name, device, node
}

// Logical volumes appear some time after the boot.
func TestAPersistentVolumesDeviceIsAwaited(t *testing.T) {
	r := newPersistentRig(t)
	name, device, node := r.persistentWithoutItsNode()
	all, err := r.pool.AttachAllPersistent(t.Context(), time.Now().Add(100*time.Millisecond))
	wantError(t, err, ErrCorrupt, "missing")
	if len(all) != 0 {
		t.Errorf("%+v", all)
	}
	r.wantProtected(r.target(name))
	came := make(chan error, 1)
	time.AfterFunc(300*time.Millisecond, func() { came <- os.Symlink(device, node) })
	if all, err = r.pool.AttachAllPersistent(t.Context(), time.Now().Add(awaittest.Patience)); err != nil || len(all) != 1 {
		t.Errorf("%+v, %v", all, err)
	}
	if err := <-came; err != nil {
		t.Fatal(err)
	}
	r.wantWhole(name)
	r.clear()
}

// While it waits for the device of a volume, another command can delete the volume.
func TestAPersistentVolumeThatIsDeletedMeanwhileIsNoError(t *testing.T) {
	r := newPersistentRig(t)
	name, device, node := r.persistentWithoutItsNode()
	deleted := make(chan error, 1)
	time.AfterFunc(300*time.Millisecond, func() {
		err := r.pool.Delete(context.Background(), name, DeleteOptions{})
		deleted <- errors.Join(err, os.Symlink(device, node))
	})
	if all, err := r.pool.AttachAllPersistent(t.Context(), time.Now().Add(awaittest.Patience)); err != nil || len(all) != 0 {
		t.Errorf("%+v, %v", all, err)
	}
	if err := <-deleted; err != nil {
		t.Fatal(err)
	}
	r.clear()
}

// A mount point that cannot be protected does not mean that the volume is damaged.
func TestRepairGoesOnWithoutTheMountPoint(t *testing.T) {
	r := newRig(t)
	name := r.name("v")
	r.create(name, CreateOptions{})
	r.leaveAJournal(name)
	r.lie(name, func(record *Record) {
		record.Persist = &Persistence{Target: r.target("missing/db"), Placement: PlaceNone}
	})
	done, err := r.pool.Repair(t.Context())
	if err != nil || len(done.Damaged) > 0 || !strings.Contains(done.Volumes[name], "journal replayed") {
		t.Errorf("%+v, %v", done, err)
	}
	r.lie(name, func(record *Record) { record.Persist = nil })
	r.clear()
}

// Another program may work on a volume during the boot.
func TestABusyPersistentVolumeIsTriedAgain(t *testing.T) {
	r := newPersistentRig(t)
	name, target := r.name("v"), r.target(r.name("v"))
	r.create(name, CreateOptions{})
	r.attach(name, AttachOptions{Persist: true})
	r.restart(name)
	if err := unix.Mount("ramfs", target, "ramfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	_, err := r.pool.AttachAllPersistent(t.Context(), time.Now())
	wantError(t, err, ErrBusy, "ramfs")
	left := make(chan error, 1)
	time.AfterFunc(300*time.Millisecond, func() { left <- unix.Unmount(target, 0) })
	if all, err := r.pool.AttachAllPersistent(t.Context(), time.Now().Add(awaittest.Patience)); err != nil || len(all) != 1 {
		t.Errorf("%+v, %v", all, err)
	}
	if err := <-left; err != nil {
		t.Error(err)
	}
	r.wantWhole(name)
	r.clear()
}

// The recorded options have no allow-cache: since the boot the user has attached the
// volume with it. Then daybook-attach is started again.
func TestAPersistentVolumeKeepsTheAllowCacheThatItIsAttachedWith(t *testing.T) {
	r := newPersistentRig(t)
	name, target := r.name("v"), r.target(r.name("v"))
	r.create(name, CreateOptions{})
	r.attach(name, AttachOptions{Persist: true})
	r.restart(name)
	r.attach(name, AttachOptions{AllowCache: true, Weight: 700})
	var said strings.Builder
	r.pool.log = slog.New(slog.NewTextHandler(&said, nil))
	all, err := r.pool.AttachAllPersistent(t.Context(), time.Now())
	if err != nil || len(all) != 1 || !all[0].Attachment.AllowCache || all[0].Persist == nil || all[0].Persist.AllowCache {
		t.Errorf("%+v, %v", all, err)
	}
	if want := "attached at " + target + "; allow-cache true, not false"; !strings.Contains(said.String(), want) {
		t.Errorf("%q is missing in the log: %s", want, said.String())
	}
	if err := r.pool.DetachUntilStart(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	r.attach(name, AttachOptions{AllowCache: true, ReadOnly: true})
	_, err = r.pool.AttachPersistent(t.Context(), name)
	wantError(t, err, ErrBusy, "read-only true, not false; allow-cache true, not false")
	r.clear()
}

// In a pool without space, the end of the persistence cannot be recorded.
func TestDetachInAFullPoolDoesNotClaimThatThePersistenceEnded(t *testing.T) {
	r := newPersistentRig(t)
	disk := r.newDisk(64<<20, 512, "", "-m", "0")
	r.open(filepath.Join(disk.dir, "pool"))
	name, target, ballast := r.name("v"), r.target(r.name("v")), filepath.Join(disk.dir, "ballast")
	r.create(name, CreateOptions{Provision: Full})
	r.attach(name, AttachOptions{Persist: true})
	fillUp(t, ballast)
	wantError(t, r.pool.Detach(t.Context(), name), ErrNoSpace, "it is detached now")
	r.wantProtected(target)
	wantError(t, r.pool.Detach(t.Context(), name), ErrNoSpace, "daybook volume detach")
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if s := r.inspect(name).Persist; s == nil || s.Unfinished {
		t.Errorf("%+v", s)
	}
	r.detach(name)
	if exists(target) || r.inspect(name).Persist != nil {
		t.Error("it is persistent still")
	}
	r.clear()
}

// A flag that cannot be cleared does not block access to the data.
func TestDetachGoesOnWhereTheFlagStays(t *testing.T) {
	needs.Tool(t, "setpriv")
	r := newPersistentRig(t)
	name, target := r.name("v"), r.target(r.name("v"))
	r.create(name, CreateOptions{})
	r.attach(name, AttachOptions{Persist: true})
	detach := r.victim(order{Operation: "detach", Name: name, KillAt: -1})
	limited := exec.Command("setpriv", "--bounding-set=-linux_immutable", "--inh-caps=-all", os.Args[0])
	limited.Env = detach.Env
	if said, err := limited.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, said)
	}
	r.wantDetached(name)
	r.wantProtected(target)
	r.attach(name, AttachOptions{})
	r.detach(name)
	r.unprotectBelow(filepath.Dir(target))
	if err := os.Remove(target); err != nil {
		t.Error(err)
	}
	r.clear()
}

// If the disk of the mount point is not mounted, the directory below is not
// changed.
func TestAPersistentTargetOnADiskThatIsNotMounted(t *testing.T) {
	r := newPersistentRig(t)
	disk := r.newDisk(16<<20, 512, "")
	t.Cleanup(func() { r.unprotectBelow(disk.dir) })
	name, target := r.name("v"), filepath.Join(disk.dir, "db")
	r.create(name, CreateOptions{})
	r.attach(name, AttachOptions{Target: target, Persist: true})
	r.restart(name)
	if err := ext4.Unmount(t.Context(), disk.dir); err != nil {
		t.Fatal(err)
	}
	if done, err := r.pool.Repair(t.Context()); err != nil || len(done.Damaged) > 0 {
		t.Errorf("%+v, %v", done, err)
	}
	before := *r.inspect(name).Persist
	_, err := r.pool.AttachAllPersistent(t.Context(), time.Now())
	wantError(t, err, ErrInvalid, "the file system of "+disk.dir+" is not mounted")
	if entries, err := os.ReadDir(disk.dir); err != nil || len(entries) > 0 {
		t.Errorf("below the mount point of the disk there is %v, %v", entries, err)
	}
	if after := *r.inspect(name).Persist; after != before {
		t.Errorf("%+v, was %+v", after, before)
	}
	mounted := make(chan error, 1)
	time.AfterFunc(200*time.Millisecond, func() { mounted <- ext4.Mount(disk.Node(), disk.dir, ext4.MountOptions{}) })
	if all, err := r.pool.AttachAllPersistent(t.Context(), time.Now().Add(awaittest.Patience)); err != nil || len(all) != 1 {
		t.Errorf("%+v, %v", all, err)
	}
	if err := <-mounted; err != nil {
		t.Fatal(err)
	}
	r.wantWhole(name)
	r.detach(name)
	if exists(target) {
		t.Error("the mount point stays")
	}
	r.clear()
}

// wantWholePersistence fails the test if a volume is only partly persistent: a
// persistent volume has a protected mount point.
func wantWholePersistence(r *rig, name string) {
	r.t.Helper()
	record := r.inspect(name).Record
	if record.Persist == nil {
		return // wantTidy has checked the mount point
	}
	dir, err := mountpoint.OpenBelow(record.Persist.Target)
	if err != nil {
		r.t.Error(err)
		return
	}
	defer func() { _ = dir.Close() }()
	if record.Persist.Unfinished || !record.Persist.Protected || !mountpoint.IsImmutable(dir) {
		r.t.Errorf("%+v, immutable: %v", record.Persist, mountpoint.IsImmutable(dir))
	}
}

// The crashes of persistent volumes.
var persistentCrashes = []crash{
	{
		name: "attach persistently", prepare: func(r *rig, name string) { r.keep(name, CreateOptions{SizeBytes: testBytes}) },
		order: order{Operation: "attach", Attach: AttachOptions{Persist: true}}, existed: true, after: wantWholePersistence,
		steps: []string{"attaching", "persistent target", "protected intended", "protected", "mounted"},
	},
	{
		name: "make an attached volume persistent", prepare: func(r *rig, name string) {
			r.keep(name, CreateOptions{SizeBytes: testBytes})
			r.attach(name, AttachOptions{})
		},
		order: order{Operation: "attach", Attach: AttachOptions{Persist: true}}, existed: true, after: wantWholePersistence,
		steps: []string{"persisting", "protected intended", "protected", "persistent"},
	},
	{
		name: "detach a persistent volume", prepare: attachPersistently,
		order: order{Operation: "detach"}, existed: true, after: wantWholePersistence,
		steps: []string{"detaching", "mounted undone", "protected undone", "persistent target undone"},
	},
	{
		name: "detach until the start", prepare: attachPersistently,
		order: order{Operation: "detach until start"}, existed: true, after: wantWholePersistence,
		steps: []string{"detaching", "mounted undone"},
	},
	{
		name: "delete a persistent volume", prepare: func(r *rig, name string) {
			attachPersistently(r, name)
			if err := r.pool.DetachUntilStart(context.Background(), name); err != nil {
				r.t.Fatal(err)
			}
		},
		order: order{Operation: "delete"}, existed: true, optional: true, after: wantWholePersistence,
		steps: []string{"persistence ending", "protected undone", "persistent target undone", "dropped"},
	},
}

func attachPersistently(r *rig, name string) {
	r.keep(name, CreateOptions{SizeBytes: testBytes})
	r.attach(name, AttachOptions{Persist: true})
}

func TestKilledAtEachStepPersistenceIsWhole(t *testing.T) {
	newPersistentRig(t) // skips if there is no flag
	for _, c := range persistentCrashes {
		// The other steps are the same as without persistence.
		c.onlySteps = os.Getenv("DAYBOOK_VM_LONG") != "1"
		t.Run(c.name, func(t *testing.T) { newRig(t).crashAtEachStep(c) })
	}
}
