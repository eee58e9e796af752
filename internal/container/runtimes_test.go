package container

import (
	"strings"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/containertest"
)

// The tests in this file start real containers and resolve the cgroup that the
// kernel reports for them.

func wants(t *testing.T, r *Resolver, cgroupPath string, want Identity) {
	t.Helper()
	if got := r.Resolve(cgroupPath); got != want {
		t.Errorf("%s:\n got %+v\nwant %+v", cgroupPath, got, want)
	}
}

func TestRealRuncContainerIsNamed(t *testing.T) {
	w := containertest.New(t)
	runc := w.Runc()
	r := NewResolver(Config{RuncRoots: []string{runc.Root()}, Refresh: time.Nanosecond})
	for _, spec := range []containertest.Spec{
		{Name: w.Name + "-own", Cgroup: "/" + w.Name + "/deep"}, // a path without information
		{Name: w.Name + "-default"},                             // runc's own choice
	} {
		c := runc.Start(spec)
		got := w.CgroupOf(c.PID())
		if spec.Cgroup != "" && got != spec.Cgroup {
			t.Errorf("runc put it at %s, not at %s", got, spec.Cgroup)
		}
		wants(t, r, got, Identity{Runtime: Runc, ID: c.ID(), Name: spec.Name, Root: got})
	}
}

func TestRealDockerContainersAreNamed(t *testing.T) {
	w := containertest.New(t)
	docker := w.StartDocker()
	r := NewResolver(Config{
		DockerRoots:      []string{w.Path("data")},
		ContainerdStates: []string{w.Path("exec/containerd/daemon/io.containerd.runtime.v2.task")},
		RuncRoots:        []string{w.Path("exec/runtime-runc/*")},
		Refresh:          time.Nanosecond,
	})

	first := docker.Start(containertest.Spec{Name: "daybook-test-db"})
	at := w.CgroupOf(first.PID())
	wants(t, r, at, Identity{Runtime: Docker, ID: first.ID(), Name: "daybook-test-db", Root: at})
	wants(t, r, at+"/inner", Identity{Runtime: Docker, ID: first.ID(), Name: "daybook-test-db", Root: at})

	docker.Run("rename", "daybook-test-db", "daybook-test-renamed")
	for range renameRounds + 1 {
		r.Resolve(at)
	}
	wants(t, r, at, Identity{Runtime: Docker, ID: first.ID(), Name: "daybook-test-renamed", Root: at})

	second := docker.Start(containertest.Spec{Name: "daybook-test-web", Parent: "/" + w.Name})
	at = w.CgroupOf(second.PID())
	if !strings.HasPrefix(at, "/"+w.Name+"/") {
		t.Errorf("docker put it at %s, not below /%s", at, w.Name)
	}
	wants(t, r, at, Identity{Runtime: Docker, ID: second.ID(), Name: "daybook-test-web", Root: at})

	// The runtime is also known from containerd's state, without dockerd's
	// files.
	noFiles := NewResolver(Config{DockerRoots: []string{}, ContainerdStates: r.config.ContainerdStates, RuncRoots: []string{}, StorageRoots: []string{}})
	wants(t, noFiles, at, Identity{Runtime: Docker, ID: second.ID(), Name: second.ID()[:shortDigits], Root: at})

	// dockerd's containerd also runs containers of other clients.
	c := docker.Containerd().Start(containertest.Spec{Name: "daybook-test-ctr"})
	at = w.CgroupOf(c.PID())
	wants(t, r, at, Identity{Runtime: Containerd, ID: c.ID(), Name: c.ID(), Root: at, Namespace: w.Name})
	if want := "/" + w.Name + "/" + c.ID(); at != want {
		t.Errorf("containerd put it at %s, not at %s", at, want)
	}
}

func TestRealLXCContainerIsNamed(t *testing.T) {
	w := containertest.New(t)
	c := w.LXC().Start(containertest.Spec{Name: w.Name})
	at := w.CgroupOf(c.PID())
	r := NewResolver(Config{})
	wants(t, r, at, Identity{Runtime: LXC, ID: w.Name, Name: w.Name, Root: at})
	wants(t, r, at+"/system.slice/a.service", Identity{Runtime: LXC, ID: w.Name, Name: w.Name, Root: at})
}
