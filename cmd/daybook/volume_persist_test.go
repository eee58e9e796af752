package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/internal/needs"
	"github.com/daybook-project/daybook/internal/systemdtest"
	"github.com/daybook-project/daybook/volume"
)

// A volume that is attached with --persist is attached again by the command of the
// unit; until then nobody can write into its mount point.
func TestPersistentVolumeIsAttachedAgain(t *testing.T) {
	s := newShelf(t)
	target := s.path("mnt")
	s.must("create", s.name, "--pool", s.path("pool"), "--size", "16M")
	s.must("attach", s.name, "--target", target, "--persist")
	defer func() { _, _ = s.run("detach", s.name) }()
	if text := s.must("inspect", s.name); !strings.Contains(text, "at each boot") {
		t.Errorf("inspect prints\n%s", text)
	}
	s.must("detach", s.name, "--keep-persist")
	err := os.WriteFile(filepath.Join(target, "ibdata1"), nil, 0o600)
	needs.That(t, errors.Is(err, unix.EPERM), fmt.Sprintf("the immutable flag on %s: %v", target, err))
	if err := os.MkdirAll(filepath.Join(target, "mysql", "data"), 0o755); !errors.Is(err, unix.EPERM) {
		t.Errorf("a directory was made in it: %v", err)
	}
	if text := s.must("list"); !strings.Contains(text, "PERSISTENT") || strings.Count(text, target) != 1 {
		t.Errorf("list prints\n%s", text)
	}
	var all struct{ Volumes []inspected }
	s.json(&all, "attach", "--all-persistent")
	if len(all.Volumes) != 1 || all.Volumes[0].Mountpoint != target || !all.Volumes[0].Placed {
		t.Errorf("attached %+v", all)
	}
	all.Volumes[0].agreesWithTheKernel(t)

	// Somebody takes the mount away; it is attached again by the name alone.
	if err := ext4.Unmount(t.Context(), target); err != nil {
		t.Fatal(err)
	}
	if text := s.must("attach", s.name); !strings.Contains(text, target) {
		t.Errorf("attach prints %q", text)
	}
	s.must("detach", s.name)
	if _, err := os.Lstat(target); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the mount point is left: %v", err)
	}
	if err := s.fails(exitUsage, "attach", s.name); !errors.Is(err, volume.ErrInvalid) {
		t.Errorf("attached without a target: %v", err)
	}
	s.json(&all, "attach", "--all-persistent")
	if len(all.Volumes) != 0 {
		t.Errorf("attached %+v", all)
	}
	// A pool whose disk is not mounted does not fail the others.
	if err := os.Rename(s.path("pool"), s.path("unmounted")); err != nil {
		t.Fatal(err)
	}
	if missing, err := (volume.Registry{StateDir: s.path("state")}).Missing(); err != nil || !slices.Equal(missing, []string{s.path("pool")}) {
		t.Errorf("missing pools: %q, %v", missing, err)
	}
	s.json(&all, "attach", "--all-persistent", "--wait", "1ms")
	if err := os.Rename(s.path("unmounted"), s.path("pool")); err != nil {
		t.Fatal(err)
	}
}

// Containers must find their volumes at boot.
func TestContainersStartAfterTheirVolumesAreAttached(t *testing.T) {
	const unit = "../../deploy/systemd/daybook-attach.service"
	before := systemdtest.Values(t, unit, "Before")
	cleared := systemdtest.Values(t, "../../deploy/systemd/daybook-volumes.service", "Before")
	for _, engine := range []string{
		"docker.service", "snap.docker.dockerd.service", "containerd.service", "podman.service", "podman-restart.service", "podman-clean-transient.service", "crio.service",
		"kubelet.service", "k3s.service", "k3s-agent.service", "rke2-server.service", "rke2-agent.service", "k0scontroller.service", "k0sworker.service",
		"snap.microk8s.daemon-kubelite.service", "lxc.service", "lxd.service", "snap.lxd.daemon.service", "incus.service", "machines.target",
		"libvirtd.service", "virtqemud.service", "virtlxcd.service", "libvirt-guests.service",
	} {
		if !slices.Contains(before, engine) {
			t.Errorf("%s may start before the volumes are attached: %q", engine, before)
		}
		if !slices.Contains(cleared, engine) {
			t.Errorf("%s may start before what the last boot left is cleared: %q", engine, cleared)
		}
	}
	// Before= in a unit names no template.
	machines := systemdtest.Values(t, "../../deploy/nspawn/daybook.conf", "After")
	for _, unit := range []string{"daybook-attach.service", "daybook-volumes.service"} {
		if !slices.Contains(machines, unit) {
			t.Errorf("machines of systemd-nspawn may start before %s: %q", unit, machines)
		}
	}
	// Those repair the same volumes, and engines start after them too.
	for _, repairing := range []string{"daybook-volumes.service", "daybook-docker.service"} {
		if !slices.Contains(before, repairing) {
			t.Errorf("%s may start before the volumes are attached: %q", repairing, before)
		}
	}
	after := systemdtest.Values(t, "../../deploy/systemd/daybook-volumes.service", "After")
	for _, unit := range []string{"remote-fs.target", "daybook-attach.service"} {
		if !slices.Contains(after, unit) {
			t.Errorf("daybook-volumes.service does not start after %s: %q", unit, after)
		}
	}
	if kind := systemdtest.Values(t, unit, "Type"); !slices.Equal(kind, []string{"oneshot"}) {
		t.Errorf("Type=%q: what is ordered after it would not wait for its end", kind)
	}
	if stays := systemdtest.Values(t, unit, "RemainAfterExit"); !slices.Equal(stays, []string{"yes"}) {
		t.Errorf("RemainAfterExit=%q", stays)
	}
}

// A host whose service manager does not attach persistent volumes is said so, once, on stderr.
func TestPersistWarnsThatNoUnitAttachesTheVolume(t *testing.T) {
	root := t.TempDir()
	warning := func() string {
		var errs bytes.Buffer
		cmd := &cobra.Command{}
		cmd.SetErr(&errs)
		warnOfNoUnit(cmd, root, "db1")
		return errs.String()
	}
	if text := warning(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "nothing attaches volume db1 at the next boot") || !strings.Contains(text, "systemctl enable daybook-attach.service") {
		t.Errorf("without a unit: %q", text)
	}
	// The unit alone is not enabled; a link to it in another's directory is, also a dangling one.
	dir := filepath.Join(root, "usr/lib/systemd/system")
	wants := filepath.Join(root, "etc/systemd/system/local-fs.target.wants")
	for _, made := range []string{dir, wants} {
		if err := os.MkdirAll(made, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, attachUnit), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if text := warning(); text == "" {
		t.Error("the unit is there and not enabled: no warning")
	}
	if err := os.Symlink("/usr/lib/systemd/system/"+attachUnit, filepath.Join(wants, attachUnit)); err != nil {
		t.Fatal(err)
	}
	if text := warning(); text != "" {
		t.Errorf("the unit is enabled: %q", text)
	}
}
