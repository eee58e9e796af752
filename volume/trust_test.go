package volume

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/needs"
	"github.com/daybook-project/daybook/volume/internal/mountpoint"
	"github.com/daybook-project/daybook/volume/internal/store"
)

// reachable lets every user come to the rig's mount points.
func (r *rig) reachable() {
	r.t.Helper()
	if err := errors.Join(os.Chmod(r.home, 0o711), os.Chmod(r.target(""), 0o755)); err != nil {
		r.t.Fatal(err)
	}
}

// Device nodes and set-user-ID programs in a volume work only if that is asked for.
func TestDevicesAndSetUserIDInAVolumeWorkOnlyIfAskedFor(t *testing.T) {
	needs.Tool(t, "setpriv")
	program := needs.Tool(t, "id")
	r := newRig(t)
	r.reachable()
	name, target := r.name("v"), r.target(r.name("v"))
	r.create(name, CreateOptions{})
	r.attach(name, AttachOptions{Dev: true, Suid: true})
	node, id := filepath.Join(target, "null"), filepath.Join(target, "id")
	text, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(unix.Mknod(node, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))), os.WriteFile(id, text, 0o755), os.Chmod(id, 0o755|os.ModeSetuid)); err != nil {
		t.Fatal(err)
	}
	r.detach(name)
	for _, o := range []AttachOptions{{}, {Dev: true}, {Suid: true}, {Dev: true, Suid: true}} {
		status := r.attach(name, o)
		if status.NoDev == o.Dev || status.NoSuid == o.Suid {
			t.Errorf("dev %v, suid %v: nodev %v, nosuid %v", o.Dev, o.Suid, status.NoDev, status.NoSuid)
		}
		if _, err := os.ReadFile(node); o.Dev != (err == nil) {
			t.Errorf("dev %v: the device node: %v", o.Dev, err)
		}
		out, err := exec.Command("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", id, "-u").CombinedOutput()
		if effective := strings.TrimSpace(string(out)); err != nil || o.Suid != (effective == "0") {
			t.Errorf("suid %v: another user runs as %q, %v", o.Suid, effective, err)
		}
		r.detach(name)
	}
	r.clear()
}

// What an earlier Daybook attached has neither option, and its record names none.
func TestWhatAnEarlierDaybookAttachedGoesOn(t *testing.T) {
	r := newRig(t)
	name := r.name("v")
	r.keep(name, CreateOptions{})
	r.attach(name, AttachOptions{})
	if err := unix.Mount("", r.target(name), "", unix.MS_REMOUNT|unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	if status := r.attach(name, AttachOptions{}); status.NoDev || status.NoSuid {
		t.Errorf("it was mounted anew: %+v", status)
	}
	if done := r.repair(); len(done.Volumes) != 0 {
		t.Errorf("%+v", done)
	}
	r.wantWhole(name)
	r.detach(name)
	r.wantKept(name)
	r.clear()
}

// Whatever the caller's umask is, others do not get into a mount point on which
// nothing is mounted.
func TestMountPointsAreRootsAlone(t *testing.T) {
	r := newRig(t)
	defer unix.Umask(unix.Umask(0))
	for _, persist := range []bool{false, true} {
		name := r.name("v")
		r.create(name, CreateOptions{})
		r.attach(name, AttachOptions{Persist: persist})
		dir, err := mountpoint.OpenBelow(r.target(name))
		if err != nil {
			t.Fatal(err)
		}
		info, err := dir.Stat()
		if err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("persistent %v: mode %v, %v", persist, info.Mode(), err)
		}
		_ = dir.Close()
		r.clear()
	}
}

func TestAReceiverTakesTheSendersSettingsOnlyIfAskedFor(t *testing.T) {
	r := newRig(t)
	name := r.name("v")
	r.create(name, CreateOptions{Weight: 300, Labels: map[string]string{"docker.cgroup": "/x"}, MountOptions: "commit=30", NoAtime: true})
	stream := r.send(name, "", "")
	for _, keep := range []bool{false, true} {
		to := r.name("received")
		record, err := r.pool.Receive(t.Context(), to, bytes.NewReader(stream), ReceiveOptions{KeepSettings: keep})
		if err != nil {
			t.Fatal(err)
		}
		kept := record.Weight == 300 && record.Labels["docker.cgroup"] == "/x" && record.MountOptions == "commit=30" && record.NoAtime
		none := record.Weight == 0 && len(record.Labels) == 0 && record.MountOptions == "" && !record.NoAtime
		if keep && !kept || !keep && !none {
			t.Errorf("settings kept %v: %+v", keep, record)
		}
		if err := r.pool.Delete(t.Context(), to, DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	r.clear()
}

// What another user could have written root does not act on.
func TestRecordsThatOthersCouldHaveWrittenAreRefused(t *testing.T) {
	r := newRig(t)
	name := r.name("v")
	r.keep(name, CreateOptions{})
	if _, err := r.pool.Snapshot(t.Context(), name, "snap", SnapshotOptions{}); err != nil {
		t.Fatal(err)
	}
	ways := map[string]struct {
		spoil, restore func(path string, mode os.FileMode) error
	}{
		"owner": {
			func(path string, _ os.FileMode) error { return os.Chown(path, 65534, 0) },
			func(path string, _ os.FileMode) error { return os.Chown(path, 0, 0) },
		},
		"group": {func(path string, mode os.FileMode) error { return os.Chmod(path, mode|0o020) }, os.Chmod},
		"other": {func(path string, mode os.FileMode) error { return os.Chmod(path, mode|0o002) }, os.Chmod},
	}
	dir := r.pool.files.VolumeDir(name)
	open := func() error {
		_, err := Open(t.Context(), r.pool.dir, PoolOptions{})
		return err
	}
	use := func() error {
		_, inspect := r.pool.Inspect(r.t.Context(), name)
		_, attach := r.pool.Attach(t.Context(), name, AttachOptions{Target: r.target(name)})
		remove := r.pool.Delete(t.Context(), name, DeleteOptions{Damaged: true})
		for _, err := range []error{inspect, attach, remove} {
			if !errors.Is(err, ErrUntrusted) {
				return err
			}
		}
		return inspect
	}
	snapshot := func() error {
		_, err := r.pool.Clone(t.Context(), name, "snap", r.name("clone"), CloneOptions{})
		return err
	}
	for path, refused := range map[string]func() error{
		r.pool.dir: open,
		filepath.Join(r.pool.dir, store.PoolFile):   open,
		filepath.Join(r.pool.dir, store.VolumesDir): open,
		filepath.Join(r.pool.dir, store.WorkDir):    open,
		dir:                                         use,
		filepath.Join(dir, store.RecordFile):        use,
		filepath.Join(dir, store.SnapshotsDir):      snapshot,
		r.pool.files.SnapshotDir(name, "snap"):      snapshot,
		filepath.Join(r.pool.files.SnapshotDir(name, "snap"), store.SnapshotFile): snapshot,
	} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		for what, way := range ways {
			if err := way.spoil(path, info.Mode()); err != nil {
				t.Fatal(err)
			}
			err := refused()
			wantError(t, err, ErrUntrusted, path)
			if err != nil && !strings.Contains(err.Error(), ": ch") {
				t.Errorf("%s, %s: what is to be done is not in %q", path, what, err)
			}
			if err := errors.Join(way.restore(path, info.Mode()), open()); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.wantKept(name)
	// Nor is a pool made in another user's directory.
	theirs := filepath.Join(r.home, "theirs")
	if err := errors.Join(os.Mkdir(theirs, 0o755), os.Chown(theirs, 65534, 65534)); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), theirs, PoolOptions{Create: true}); !errors.Is(err, ErrUntrusted) {
		t.Errorf("a pool in another user's directory: %v", err)
	}
	r.clear()
}
