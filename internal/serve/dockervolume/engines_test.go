package dockervolume

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/containertest"
	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/internal/needs"
	"github.com/daybook-project/daybook/volume"
)

// In the tests in this file, real engines call the plugin.

// writer writes with fsync into the container's volume until SIGTERM.
const writer = `trap 'exit 0' TERM
while :; do
	echo x | /bin/busybox dd of=/data/new conv=fsync 2>/dev/null && /bin/busybox mv /data/new "/data/written-by-$(/bin/busybox hostname)"
	/bin/busybox sleep 0.02
done`

// onWeightedDisk puts the pool on a disk of its own, with a scheduler that has
// weights.
func (r *rig) onWeightedDisk() {
	r.t.Helper()
	file := r.Path("disk.img")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Truncate(file, 512<<20); err != nil {
		r.t.Fatal(err)
	}
	loop, err := blockdev.Attach(file, blockdev.AttachOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	before, err := loop.Scheduler()
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if err := loop.SetScheduler(before.Current); err != nil { // the loop device stays after the file
			r.t.Error(err)
		}
		if err := loop.Detach(context.Background()); err != nil {
			r.t.Error(err)
		}
	})
	err = loop.SetScheduler("bfq")
	needs.That(r.t, !errors.Is(err, blockdev.ErrNoScheduler), "the scheduler bfq")
	if err == nil {
		err = ext4.Make(r.t.Context(), loop.Node(), ext4.MakeOptions{})
	}
	if err == nil {
		err = ext4.Mount(loop.Node(), r.home, ext4.MountOptions{})
	}
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		r.wantNothing()
		if err := ext4.Unmount(context.Background(), r.home); err != nil {
			r.t.Error(err)
			_ = unix.Unmount(r.home, unix.MNT_DETACH)
		}
	})
}

// inspect queries the pool directly.
func (r *rig) inspect(name string) volume.Status {
	r.t.Helper()
	pool, err := volume.Open(r.t.Context(), r.home+"/pool", volume.PoolOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	status, err := pool.Inspect(r.t.Context(), name)
	if err != nil {
		r.t.Fatal(err)
	}
	return status
}

// wantWritten waits until a container has rewritten its file.
func (r *rig) wantWritten(name, hostname string) {
	r.t.Helper()
	file := filepath.Join(r.home, "mnt", name, "written-by-"+hostname)
	_ = os.Remove(file)
	r.Await("container "+hostname+" writes into its volume", "", func() bool {
		_, err := os.Stat(file)
		return err == nil
	})
}

// wantPlaced fails the test unless one weight applies to both the container and
// the jbd2 thread.
func (r *rig) wantPlaced(name string, c containertest.Container, weight uint64) {
	r.t.Helper()
	parent := "/daybook/" + name
	at := r.CgroupOf(c.PID())
	if !strings.HasPrefix(at, parent+"/") || at == parent+"/journal" {
		r.t.Errorf("the container is in %s, want below %s", at, parent)
	}
	status := r.inspect(name)
	if now, err := r.tree.Of(status.JBD2PID); err != nil || now != parent+"/journal" || !status.Placed {
		r.t.Errorf("the jbd2 thread %d is in %s, %v, placed %v", status.JBD2PID, now, err, status.Placed)
	}
	if status.WeightInForce != weight || !status.DirectIO {
		r.t.Errorf("weight %d in force, want %d; direct I/O %v", status.WeightInForce, weight, status.DirectIO)
	}
	if status.JournalWriteBytes == 0 {
		r.t.Error("nothing is charged to the journal's cgroup")
	}
}

func TestDockersContainersHaveVolumes(t *testing.T) {
	r := newRig(t)
	r.socket = r.PluginSocket()
	r.onWeightedDisk()
	r.start()
	docker := r.StartDocker()
	driver, name := r.Name, r.name("db")
	if _, err := docker.Try("volume", "create", "-d", driver, "-o", "sise=1G", name); err == nil || !strings.Contains(err.Error(), "there are: size") {
		t.Errorf("a wrong option: %v", err)
	}
	docker.Run("volume", "create", "-d", driver, "-o", "size=64M", "-o", "weight=700", name)
	run := func(container string) containertest.Container {
		t.Helper()
		return docker.Create(containertest.Spec{Name: container, Parent: "/daybook/" + name, Script: writer},
			"--volume", name+":/data", "--hostname", container)
	}
	first := run("first")
	r.wantWritten(name, "first")
	r.wantPlaced(name, first, 700)
	if got := docker.Run("volume", "inspect", "--format", "{{.Mountpoint}} {{.Status.journal_cgroup}}", name); got != r.mountpoint(name)+" /daybook/"+name+"/journal" {
		t.Errorf("docker volume inspect: %s", got)
	}

	// Start a second container after the daemon was killed.
	r.daemon.Kill()
	r.wantWritten(name, "first")
	r.start()
	second := run("second")
	r.wantWritten(name, "second")
	if err := first.Stop(); err != nil {
		t.Error(err)
	}
	r.wantMounted(name, true)
	r.wantWritten(name, "second")
	if _, err := docker.Try("volume", "rm", name); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("docker removed a volume in use: %v", err)
	}
	if err := second.Remove(); err != nil {
		t.Error(err)
	}
	r.wantMounted(name, false)

	// The container is killed, and the plugin is stopped while the container
	// ends: docker repeats the call until it is answered.
	docker.Run("start", "first")
	r.wantWritten(name, "first")
	r.daemon.Kill()
	removed := make(chan error, 1)
	go func() { removed <- first.Remove() }()
	r.Await("the container ends", "", func() bool {
		_, err := r.tree.Lookup("/daybook/" + name)
		left, _ := filepath.Glob(r.tree.Root() + "/daybook/" + name + "/*/cgroup.procs")
		return errors.Is(err, cgroup.ErrVanished) || len(left) == 1 // the journal's
	})
	r.wantMounted(name, true)
	r.start()
	if err := <-removed; err != nil {
		t.Error(err)
	}
	r.wantMounted(name, false)

	docker.Run("volume", "rm", name)
	if got := docker.Run("volume", "ls", "--quiet"); strings.Contains(got, name) {
		t.Errorf("docker volume ls: %s", got)
	}
	if entries, err := os.ReadDir(r.home + "/pool/volumes"); err != nil || len(entries) > 0 {
		t.Errorf("volumes left: %v, %v", entries, err)
	}
}

func TestPodmansContainersHaveVolumes(t *testing.T) {
	r := newRig(t)
	r.socket = r.PluginSocket()
	r.onWeightedDisk()
	r.start()
	podman := r.StartPodman()
	driver, name := r.Name, r.name("db")
	if _, err := podman.Try("volume", "create", "--driver", driver, "--opt", "sise=1G", name); err == nil || !strings.Contains(err.Error(), "there are: size") {
		t.Errorf("a wrong option: %v", err)
	}
	podman.Run("volume", "create", "--driver", driver, "--opt", "size=64M", "--opt", "weight=700", name)
	c := podman.Create(containertest.Spec{Name: "first", Parent: "/daybook/" + name, Script: writer}, "--volume", name+":/data", "--hostname", "first")
	r.wantWritten(name, "first")
	r.wantPlaced(name, c, 700)
	r.daemon.Kill()
	r.wantWritten(name, "first")
	r.start()
	if err := c.Stop(); err != nil {
		t.Error(err)
	}
	r.Await("podman unmounts the volume", r.daemon.Log, func() bool { return r.mountpoint(name) == "" })
	podman.Run("start", "first")
	r.wantWritten(name, "first")
	if err := c.Remove(); err != nil {
		t.Error(err)
	}
	r.wantMounted(name, false)
	podman.Run("volume", "rm", name)
	if entries, err := os.ReadDir(r.home + "/pool/volumes"); err != nil || len(entries) > 0 {
		t.Errorf("volumes left: %v, %v", entries, err)
	}
}
