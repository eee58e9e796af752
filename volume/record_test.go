package volume

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/internal/kernel"
	"github.com/daybook-project/daybook/volume/internal/store"
	"github.com/daybook-project/daybook/volume/placement"
	"github.com/daybook-project/daybook/volume/records"
)

// lie changes a volume's record, like another user who can write to the pool.
func (r *rig) lie(name string, how func(*Record)) {
	r.t.Helper()
	record, err := r.pool.files.Read(name)
	if err != nil {
		r.t.Fatal(err)
	}
	how(&record)
	if err := os.WriteFile(filepath.Join(r.pool.files.VolumeDir(name), store.RecordFile), encoded(r.t, record), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// A record that names the property of others does no harm to mounts, loop devices,
// directories with content, files, or cgroups in use.
func TestAFalseRecordDoesNoHarm(t *testing.T) {
	r := newRig(t)
	name, other := r.name("v"), r.name("other")
	r.keep(name, CreateOptions{})
	r.keep(other, CreateOptions{})
	victim := r.attach(other, AttachOptions{})
	boot, err := kernel.BootID()
	if err != nil {
		t.Fatal(err)
	}
	full, file := filepath.Join(r.home, "full"), filepath.Join(r.home, "file")
	if err := errors.Join(os.Mkdir(full, 0o700), os.WriteFile(filepath.Join(full, "x"), nil, 0o600), os.WriteFile(file, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	host := r.host()
	for _, target := range []string{r.target(other), full, file, "/etc", "/etc/passwd", "/proc", "/sys/fs/cgroup", filepath.Join(r.home, "none"), r.pool.dir} {
		for _, state := range []AttachState{Attaching, Attached, Detaching} {
			r.lie(name, func(record *Record) {
				record.Frozen = true
				record.Attachment = &Attachment{
					State: state, BootID: boot, Target: target, MadeTarget: true, LoopDevice: strings.TrimPrefix(victim.LoopDevice, "/dev/"),
					Placed: placement.Placed{
						Placement: PlaceParent, Cgroup: "/daybook/" + other, Journal: placement.JournalCgroup("/daybook/"+other, name),
						MadeCgroups: []string{"/daybook", "/daybook/" + other, placement.JournalCgroup("/daybook/"+other, name)},
					},
				}
			})
			status := r.inspect(name)
			if status.LoopDevice != "" || status.JBD2PID != 0 || status.Mountpoint != "" || status.Problem == "" {
				t.Errorf("target %s: %+v", target, status)
			}
			if done := r.repair(); done.Volumes[name] == "" {
				t.Errorf("target %s: %+v", target, done)
			}
			r.wantSame("host", r.host(), host)
			r.wantWhole(other)
			if !exists(target) && filepath.Base(target) != "none" {
				t.Fatalf("%s is gone", target)
			}
		}
	}
	// A record that Daybook cannot have written is rejected completely.
	sound, err := r.pool.files.Read(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{"/", "/docker", "/daybook"} {
		if err := r.pool.files.Write(sound); err != nil {
			t.Fatal(err)
		}
		r.lie(name, func(record *Record) {
			record.Attachment = &Attachment{State: Attaching, BootID: boot, Target: full,
				Placed: placement.Placed{Placement: PlaceParent, Cgroup: "/x", Journal: "/x/journal-" + name, MadeCgroups: []string{at}}}
		})
		done, err := r.pool.Repair(t.Context())
		if !errors.Is(err, ErrCorrupt) || done.Damaged[name] == "" {
			t.Errorf("%s: %+v, %v", at, done, err)
		}
		r.wantSame("host", r.host(), host)
	}
	wantError(t, r.pool.Delete(t.Context(), name, DeleteOptions{}), ErrCorrupt, name)
	if err := r.pool.Delete(t.Context(), name, DeleteOptions{Damaged: true}); err != nil {
		t.Error(err)
	}
	r.wantKept(other)
	r.wantDetached(other)
}

// The cgroups that the record names belong to another boot.
func TestAfterAnotherStartOfTheHostNoCgroupIsTouched(t *testing.T) {
	r, disk := newWeightedRig(t)
	name := r.name("v")
	r.keep(name, CreateOptions{Weight: 700})
	parent, weights := r.weightedCgroup(disk.Disk, "user", 250)
	before, err := weights.Get(parent)
	if err != nil {
		t.Fatal(err)
	}
	child := parent + "/journal-" + name
	if err := r.tree.Make(child); err != nil {
		t.Fatal(err)
	}
	r.lie(name, func(record *Record) {
		record.Attachment = &Attachment{
			State: Attached, BootID: "an earlier one", Target: r.target(name), MadeTarget: true, LoopDevice: "loop0",
			Placed: placement.Placed{
				Placement: PlaceParent, Cgroup: parent, Journal: child, MadeCgroups: []string{child},
				WeightBefore: &WeightBefore{File: weights.File(), Disk: disk.Dev.String(), Scheduler: "bfq", Default: 999},
			},
		}
	})
	if err := os.Mkdir(r.target(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if done := r.repair(); done.Volumes[name] == "" {
		t.Errorf("%+v", done)
	}
	if now, err := weights.Get(parent); err != nil || now != before {
		t.Errorf("weight %+v, %v; before %+v", now, err, before)
	}
	if _, err := r.tree.Lookup(child); err != nil {
		t.Error(err)
	}
	if exists(r.target(name)) {
		t.Error("the mount point outlived the start")
	}
	if err := r.tree.Remove(child); err != nil {
		t.Error(err)
	}
	r.wantDetached(name)
	r.wantKept(name)
}

func TestDamagedRecordsAreReportedAndStopNoOtherVolume(t *testing.T) {
	r := newRig(t)
	sound := r.name("sound")
	r.keep(sound, CreateOptions{})
	whole, err := os.ReadFile(filepath.Join(r.pool.files.VolumeDir(sound), store.RecordFile))
	if err != nil {
		t.Fatal(err)
	}
	damages := map[string][]byte{
		"empty": {}, "cut": whole[:len(whole)/2], "foreign": whole, "zeros": make([]byte, 4096), "long": []byte(strings.Repeat(" ", records.MaxBytes+1)), "text": []byte("hello\n"),
	}
	var names []string
	for what, text := range damages {
		name := r.name(what)
		names = append(names, name)
		r.create(name, CreateOptions{})
		if err := os.WriteFile(filepath.Join(r.pool.files.VolumeDir(name), store.RecordFile), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	missing, device := r.name("missing"), r.name("device")
	names = append(names, missing, device)
	r.create(missing, CreateOptions{})
	r.create(device, CreateOptions{})
	record := func(name string) string { return filepath.Join(r.pool.files.VolumeDir(name), store.RecordFile) }
	if err := errors.Join(os.Remove(record(missing)), os.Remove(record(device)), os.Mkdir(record(device), 0o700)); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		_, err := r.pool.Attach(t.Context(), name, AttachOptions{Target: r.target(name)})
		if err == nil {
			t.Errorf("%s: attached", name)
		}
		if err := r.pool.Detach(t.Context(), name); err == nil {
			t.Errorf("%s: detached", name)
		}
		if err := r.pool.Delete(t.Context(), name, DeleteOptions{}); err == nil {
			t.Errorf("%s: deleted", name)
		}
	}
	r.attach(sound, AttachOptions{})
	done, err := r.pool.Repair(t.Context())
	if !errors.Is(err, ErrCorrupt) || len(done.Damaged) != len(names) {
		t.Errorf("%+v, %v", done, err)
	}
	all, err := r.pool.List(r.t.Context())
	if err != nil || len(all) != len(names)+1 {
		t.Errorf("%d volumes are listed, %v", len(all), err)
	}
	for _, status := range all {
		if (status.Name == sound) != (status.Problem == "") {
			t.Errorf("%+v", status)
		}
	}
	for _, name := range names {
		if err := r.pool.Delete(t.Context(), name, DeleteOptions{Damaged: true}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	r.wantKept(sound)
	r.wantDetached(sound)
}

// Files that others put into the pool are neither followed nor removed, except in
// the work directory.
func TestForeignThingsInThePool(t *testing.T) {
	r := newRig(t)
	outside := filepath.Join(r.home, "outside")
	inside := filepath.Join(outside, "precious")
	if err := errors.Join(os.Mkdir(outside, 0o755), os.WriteFile(inside, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	name := r.name("v")
	r.keep(name, CreateOptions{})
	work, volumes := filepath.Join(r.pool.dir, store.WorkDir), filepath.Join(r.pool.dir, store.VolumesDir)
	if err := errors.Join(
		os.Symlink(outside, filepath.Join(work, "link")), unix.Mkfifo(filepath.Join(volumes, "fifo"), 0o600), os.WriteFile(filepath.Join(volumes, "file"), nil, 0o600),
		os.Mkdir(filepath.Join(volumes, ".hidden"), 0o700),
	); err != nil {
		t.Fatal(err)
	}
	done, err := r.pool.Repair(t.Context())
	if err == nil || done.Damaged["fifo"] == "" || done.Damaged["file"] == "" {
		t.Errorf("%+v, %v", done, err)
	}
	if !exists(inside) {
		t.Fatal("a link was followed")
	}
	if info, err := os.Stat(outside); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("what a link leads to: %v, %v", info.Mode(), err)
	}
	// A mount in a volume's directory would be moved with it.
	mount := filepath.Join(r.pool.files.VolumeDir(name), store.SnapshotsDir)
	if err := unix.Mount(outside, mount, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	wantError(t, r.pool.Delete(t.Context(), name, DeleteOptions{}), ErrBusy, mount)
	if err := ext4.Unmount(t.Context(), mount); err != nil {
		t.Fatal(err)
	}
	if !exists(inside) {
		t.Fatal("a mount was emptied")
	}
	for _, foreign := range []string{"fifo", "file", ".hidden"} {
		if err := os.Remove(filepath.Join(volumes, foreign)); err != nil {
			t.Error(err)
		}
	}
	r.wantKept(name)
	if left := r.files(); slices.Contains(left, "work/link") {
		t.Errorf("%q", left)
	}
}

func encoded(t testing.TB, record Record) []byte {
	t.Helper()
	text, err := record.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return text
}
